#include "program/literals.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

void append_utf8(std::string& text, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

/// The code point that `digits` hexadecimal digits name; nothing when they do not.
std::optional<std::uint32_t> hex_point(std::string_view digits) {
  std::uint32_t point = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), point, 16);
  const bool surrogate = point >= 0xD800 && point < 0xE000;
  if (error != std::errc() || end != digits.data() + digits.size() || surrogate ||
      point > 0x10FFFF) {
    return std::nullopt;
  }
  return point;
}

}  // namespace

std::string real_literal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // d.ddde+xx with the fewest digits; repr then writes exponents from -4 to 15 without an e.
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string result;
  if (text[0] == '-') {
    result = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent > 15) {
    result += digits[0];
    if (digits.size() > 1) result += "." + digits.substr(1);
    return result + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole)
    return result + digits + std::string(whole - digits.size(), '0') + ".0";
  return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string string_literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          result += c;
        }
    }
  }
  return result + '"';
}

std::string literal(const AttributeValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::int64_t>) {
          return fmt::format("{}", held);
        } else if constexpr (std::is_same_v<T, double>) {
          return real_literal(held);
        } else if constexpr (std::is_same_v<T, bool>) {
          return held ? "True" : "False";
        } else if constexpr (std::is_same_v<T, Name>) {
          return string_literal(held.text());
        } else if constexpr (std::is_same_v<T, DType>) {
          return string_literal(name(held));
        } else {
          return fmt::format("[{}]", fmt::join(held.span(), ", "));
        }
      },
      value);
}

std::optional<std::string> unescape(std::string_view body) {
  std::string result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      result += body[i];
      continue;
    }
    if (++i == body.size()) return std::nullopt;
    std::size_t digits = 0;
    switch (body[i]) {
      case '\\':
      case '"':
      case '\'':
        result += body[i];
        break;
      case 'n':
        result += '\n';
        break;
      case 'r':
        result += '\r';
        break;
      case 't':
        result += '\t';
        break;
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      default:
        return std::nullopt;
    }
    if (digits == 0) continue;
    if (body.size() - i - 1 < digits) return std::nullopt;
    const std::optional<std::uint32_t> point = hex_point(body.substr(i + 1, digits));
    if (!point) return std::nullopt;
    append_utf8(result, *point);
    i += digits;
  }
  return result;
}

}  // namespace tenon
