#include "codegen/identifiers.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace tenon::codegen_detail {
namespace {

// Keywords of C++20 and macros of the C library that are plain words, then what the code uses itself.
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
                                         "tenon"};

/// Names that C++ keeps for its implementations: all with two underscores, and with one at the
/// beginning of a namespace's names.
bool is_kept(std::string_view name) {
  return name.starts_with('_') || name.find("__") != name.npos;
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
  if (std::ranges::find(reserved, name) != std::end(reserved)) name = stem;
  for (int number = 2; !taken_.insert(name).second; ++number) {
    name = fmt::format("{}{}", stem, number);
  }
  return name;
}

std::string cpp_string(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
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
