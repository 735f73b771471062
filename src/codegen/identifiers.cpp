#include "codegen/identifiers.hpp"

#include "codegen/c_words.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace tenon::codegen_detail {
namespace {

// Keywords of C++20, macros of the C library in small letters, and what the code uses itself.
// clang-format off
constexpr std::string_view reserved[] = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return",
    "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline",
    "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
    "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
    "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
    "while", "xor", "xor_eq", "assert", "errno", "linux", "main", "stderr", "stdin", "stdout",
    "unix", "Array", "Model", "Scope", "eager_", "std", "tenon", "offsetof", "setjmp", "va_arg",
    "va_copy", "va_end", "va_start", "B0", "basename", "d_fileno", "h_addr", "h_errno",
    "math_errhandling", "no_argument", "optional_argument", "required_argument", "s6_addr",
    "s6_addr16", "s6_addr32", "sa_handler", "sa_sigaction", "si_addr", "si_addr_lsb", "si_arch",
    "si_band", "si_call_addr", "si_fd", "si_int", "si_lower", "si_overrun", "si_pid", "si_pkey",
    "si_ptr", "si_status", "si_stime", "si_syscall", "si_timerid", "si_uid", "si_upper",
    "si_utime", "si_value", "sigev_notify_attributes", "sigev_notify_function", "st_atime",
    "st_ctime", "st_mtime", "AF_DECnet", "PF_DECnet", "L_ctermid", "L_cuserid", "L_tmpnam",
    "P_tmpdir",
};
// clang-format on

/// Whether C's headers have the name in the global namespace, or may have it: families of names are known by how they
/// begin or end.
bool is_of_c(std::string_view name) {
  static constexpr std::string_view beginnings[] = {
      "Dl_",    "Elf32_",   "Elf64_", "Elf_",  "La_",    "Val_GNU_", "aio_",     "clock_",
      "dl_",    "epoll_",   "inet6_", "inet_", "la_",    "mq_",      "obstack_", "pkey_",
      "posix_", "pthread_", "sched_", "sem_",  "timer_", "timerfd_"};
  static constexpr std::string_view ends[] = {"_t", "_r", "_l", "_unlocked"};
  const auto is_begun_by = [&](std::string_view part) { return name.starts_with(part); };
  const auto is_ended_by = [&](std::string_view part) { return name.ends_with(part); };
  if (std::ranges::any_of(beginnings, is_begun_by) || std::ranges::any_of(ends, is_ended_by)) {
    return true;
  }
  // Functions of other types: sqrtf, sqrtl, sqrtf64x; f32xaddf64 of fadd; open64 of large files.
  std::string word(name);
  for (const std::string_view result : {"f32x", "f64x", "f32", "f64"}) {
    if (!name.starts_with(result)) continue;
    word = fmt::format("f{}", name.substr(result.size()));
    break;
  }
  static constexpr std::string_view types[] = {"",    "f",   "l",    "64",   "f16",
                                               "f32", "f64", "f128", "f32x", "f64x"};
  return std::ranges::any_of(types, [&](std::string_view type) {
    return word.ends_with(type) &&
           std::ranges::binary_search(c_words, word.substr(0, word.size() - type.size()));
  });
}

/// Names that C++ keeps for its implementations: all with two underscores, and with one at the
/// beginning of a namespace's names.
bool is_kept(std::string_view name) {
  return name.starts_with('_') || name.find("__") != name.npos;
}

/// Whether it may be a macro of the C library, such as NULL, EOF or INT64_MIN: they have three
/// letters and more, all of them capitals but in M_PIf, SYS_read and PRIx64.
bool is_like_a_macro(std::string_view name) {
  const auto has_small = [](std::string_view part) {
    return std::ranges::any_of(part, [](char c) { return c >= 'a' && c <= 'z'; });
  };
  if (name.size() < 3) return false;
  if (name.starts_with("M_") || name.starts_with("SYS_") || name.starts_with("SHT_")) return true;
  const bool is_format = name.starts_with("PRI") || name.starts_with("SCN");
  return !has_small(is_format && name.size() > 4 ? name.substr(4) : name);
}

/// The text with one underscore for what identifiers do not have: names of modules are any text.
std::string identifier_of(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && name.empty()) name += 'v';
    if (is_letter || is_digit || c == '_') {
      name += c;
    } else if (!name.ends_with('_')) {
      name += '_';
    }
  }
  if (name.empty()) name += 'v';
  return name;
}

}  // namespace

std::string Identifiers::take(std::string_view wanted) {
  std::string name = identifier_of(wanted);
  if (is_kept(name)) {
    std::string plain = "v";
    for (const char c : name) {
      if (c != '_' || plain.back() != '_') plain += c;
    }
    name = std::move(plain);
  }
  const std::string stem = name.ends_with('_') ? name + "v" : name + "_";
  if (is_like_a_macro(name) || std::ranges::find(reserved, name) != std::end(reserved)) name = stem;
  for (int number = 2; !taken_.insert(name).second; ++number) {
    name = fmt::format("{}{}", stem, number);
  }
  return name;
}

std::string namespace_of(std::string_view module) {
  std::string name = Identifiers().take(module);
  if (is_of_c(name)) name += '_';
  return name;
}

std::string cpp_string(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || (c == '?' && literal.back() == '?')) {  // "??/" is a trigraph
      literal += '\\';
      literal += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      literal += fmt::format("\\{:03o}", byte);  // three digits: what follows is no part of it
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

}  // namespace tenon::codegen_detail
