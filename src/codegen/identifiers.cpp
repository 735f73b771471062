#include "codegen/identifiers.hpp"

#include "codegen/c_words.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace tenon::codegen_detail {
namespace {

// Keywords of C++20, macros of the C library in small letters, and what the code uses itself.
constexpr std::string_view reserved[] = {"alignas",       "alignof",     "and",
                                         "and_eq",        "asm",         "auto",
                                         "bitand",        "bitor",       "bool",
                                         "break",         "case",        "catch",
                                         "char",          "char16_t",    "char32_t",
                                         "char8_t",       "class",       "co_await",
                                         "co_return",     "co_yield",    "compl",
                                         "concept",       "const",       "const_cast",
                                         "consteval",     "constexpr",   "constinit",
                                         "continue",      "decltype",    "default",
                                         "delete",        "do",          "double",
                                         "dynamic_cast",  "else",        "enum",
                                         "explicit",      "export",      "extern",
                                         "false",         "float",       "for",
                                         "friend",        "goto",        "if",
                                         "inline",        "int",         "long",
                                         "mutable",       "namespace",   "new",
                                         "noexcept",      "not",         "not_eq",
                                         "nullptr",       "operator",    "or",
                                         "or_eq",         "private",     "protected",
                                         "public",        "register",    "reinterpret_cast",
                                         "requires",      "return",      "short",
                                         "signed",        "sizeof",      "static",
                                         "static_assert", "static_cast", "struct",
                                         "switch",        "template",    "this",
                                         "thread_local",  "throw",       "true",
                                         "try",           "typedef",     "typeid",
                                         "typename",      "union",       "unsigned",
                                         "using",         "virtual",     "void",
                                         "volatile",      "wchar_t",     "while",
                                         "xor",           "xor_eq",      "assert",
                                         "errno",         "linux",       "main",
                                         "stderr",        "stdin",       "stdout",
                                         "unix",          "Array",       "Model",
                                         "Scope",         "eager_",      "std",
                                         "tenon",         "offsetof",    "setjmp",
                                         "va_arg",        "va_copy",     "va_end",
                                         "va_start"};

/// Whether C's headers have the name in the global namespace.
bool is_of_c(std::string_view name) {
  const auto has = [](std::string_view word) { return std::ranges::binary_search(c_words, word); };
  return has(name) ||
         ((name.ends_with('f') || name.ends_with('l')) && has(name.substr(0, name.size() - 1)));
}

/// Names that C++ keeps for its implementations: all with two underscores, and with one at the
/// beginning of a namespace's names.
bool is_kept(std::string_view name) {
  return name.starts_with('_') || name.find("__") != name.npos;
}

/// Whether it may be a macro of the C library, such as NULL, EOF or INT64_MIN: they have three
/// letters and more, all of them capitals.
bool is_like_a_macro(std::string_view name) {
  return name.size() >= 3 &&
         std::ranges::none_of(name, [](char c) { return c >= 'a' && c <= 'z'; });
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
