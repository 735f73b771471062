#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::text {

/// The alphabet that byte-level BPE writes bytes in: printable characters of Latin-1 stand for
/// themselves, the other 68 bytes for U+0100 onwards (GPT-2's encoder.py, bytes_to_unicode).
struct ByteAlphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::int16_t, 0x144> bytes{};  ///< -1: no byte

  constexpr ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      characters[byte] = is_printable ? char32_t{byte} : next++;
      bytes[characters[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

inline constexpr ByteAlphabet byte_alphabet;

/// Writes bytes in the alphabet.
void append_in_alphabet(std::string& out, std::string_view bytes);

/// Reads a token back; a token with a character outside the alphabet stands for itself.
void append_from_alphabet(std::string& out, std::string_view token);

}  // namespace tenon::text
