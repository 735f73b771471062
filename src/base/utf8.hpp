#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

/// One decoded character. For invalid UTF-8, it is U+FFFD and covers the longest part that could
/// begin a character (Unicode 15, section 3.9, "maximal subpart").
struct CodePoint {
  char32_t value = 0xFFFD;
  std::uint32_t length = 0;  ///< bytes; 0 only past the end
  bool is_valid = false;
  bool is_cut = false;  ///< ill-formed only because the text ends
};

inline CodePoint decode_multibyte(std::string_view text, std::size_t position) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned lead = byte(0);
  // Table 3-7 of the Unicode standard: the second byte's range depends on the first.
  std::uint32_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0xFFFD, 1, false, false};
  }
  char32_t value = lead & (0xFFu >> (length + 1));
  for (std::uint32_t i = 1; i < length; ++i) {
    if (position + i == text.size()) return {0xFFFD, i, false, true};
    const unsigned next = byte(i);
    if (next < low || next > high) return {0xFFFD, i, false, false};
    low = 0x80;
    high = 0xBF;
    value = (value << 6) | (next & 0x3F);
  }
  return {value, length, true, false};
}

/// Whether a byte is none that a character begins with: it continues one.
constexpr bool continues_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// The character at a byte position; past the end, one of length 0.
inline CodePoint code_point_at(std::string_view text, std::size_t position) noexcept {
  if (position >= text.size()) return {};
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) return {lead, 1, true, false};
  return decode_multibyte(text, position);
}

/// Where a text stops being well-formed UTF-8 (shortest form, no surrogates); its size where it
/// does not.
inline std::size_t utf8_end(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (!c.is_valid) return i;
    i += c.length;
  }
  return text.size();
}
inline bool is_utf8(std::string_view text) noexcept { return utf8_end(text) == text.size(); }

/// Where the character (or the ill-formed part) that ends at `end` begins; `end` must not be 0.
inline std::size_t character_before(std::string_view text, std::size_t end) noexcept {
  // A lead byte always begins a part, so the longest that fits is the one.
  for (std::size_t length = end < 4 ? end : 4; length > 1; --length) {
    if (code_point_at(text, end - length).length == length) return end - length;
  }
  return end - 1;
}

inline void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

}  // namespace tenon
