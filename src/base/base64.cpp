#include "base/base64.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tenon {
namespace {

constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::optional<std::uint32_t> value_of_digit(char digit) {
  if (digit >= 'A' && digit <= 'Z') return static_cast<std::uint32_t>(digit - 'A');
  if (digit >= 'a' && digit <= 'z') return static_cast<std::uint32_t>(digit - 'a') + 26;
  if (digit >= '0' && digit <= '9') return static_cast<std::uint32_t>(digit - '0') + 52;
  if (digit == '+') return 62;
  if (digit == '/') return 63;
  return std::nullopt;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = (bits << 8) | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text.push_back(i <= count ? base64_digits[(bits >> (18 - 6 * i)) & 63] : '=');
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  unsigned count = 0;  // of bits that no byte has yet
  for (const char c : text) {
    const auto digit = value_of_digit(c);
    if (!digit) return std::nullopt;
    bits = (bits << 6) | *digit;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return bytes;
}

}  // namespace tenon
