#pragma once

#include "blocks.hpp"

/// Codes of a block in element order, taken out of and put into the packed bytes.
namespace tenon::quant {

/// Nibbles of `half` consecutive bytes: low ones first, high ones `half` places later.
template <int half>
inline void unpack_nibbles(const std::uint8_t* packed, std::uint8_t* codes) noexcept {
  for (int i = 0; i < half; ++i) {
    codes[i] = packed[i] & 15u;
    codes[half + i] = static_cast<std::uint8_t>(packed[i] >> 4);
  }
}

template <int half>
inline void pack_nibbles(const std::uint8_t* codes, std::uint8_t* packed) noexcept {
  for (int i = 0; i < half; ++i) {
    packed[i] = static_cast<std::uint8_t>((codes[i] & 15u) | ((codes[half + i] & 15u) << 4));
  }
}

/// Two-bit fields of 64 bytes as q2_k, q3_k and q6_k place them: 256 codes of 0 to 3, moved up by
/// `shift` and merged into `codes`.
template <int shift>
inline void merge_crumbs(const std::uint8_t (&packed)[64], std::uint8_t* codes) noexcept {
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      const unsigned crumb = (unsigned{packed[group / 4 * 32 + i]} >> (group % 4 * 2)) & 3u;
      codes[group * 32 + i] = static_cast<std::uint8_t>(codes[group * 32 + i] | (crumb << shift));
    }
  }
}

/// The reverse of merge_crumbs: bits `shift` and `shift` + 1 of each code.
template <int shift>
inline void pack_crumbs(const std::uint8_t* codes, std::uint8_t (&packed)[64]) noexcept {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      unsigned byte = 0;
      for (int k = 0; k < 4; ++k) {
        byte |= ((codes[half * 128 + k * 32 + i] >> shift) & 3u) << (2 * k);
      }
      packed[half * 32 + i] = static_cast<std::uint8_t>(byte);
    }
  }
}

/// One bit for each of 256 codes as q3_k and q5_k place them, moved up by `shift` and merged in.
template <int shift>
inline void merge_high_bits(const std::uint8_t (&packed)[32], std::uint8_t* codes) noexcept {
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      const unsigned bit = (packed[i] >> group) & 1u;
      codes[group * 32 + i] = static_cast<std::uint8_t>(codes[group * 32 + i] | (bit << shift));
    }
  }
}

/// The reverse of merge_high_bits: bit `shift` of each code.
template <int shift>
inline void pack_high_bits(const std::uint8_t* codes, std::uint8_t (&packed)[32]) noexcept {
  for (int i = 0; i < 32; ++i) {
    unsigned byte = 0;
    for (int group = 0; group < 8; ++group) {
      byte |= ((codes[group * 32 + i] >> shift) & 1u) << group;
    }
    packed[i] = static_cast<std::uint8_t>(byte);
  }
}

/// All codes of a block, not yet shifted by the type's offset.
inline void unpack_codes(const BlockQ2K& block, std::uint8_t (&codes)[256]) noexcept {
  for (auto& code : codes) code = 0;
  merge_crumbs<0>(block.crumbs, codes);
}

inline void unpack_codes(const BlockQ3K& block, std::uint8_t (&codes)[256]) noexcept {
  for (auto& code : codes) code = 0;
  merge_crumbs<0>(block.crumbs, codes);
  merge_high_bits<2>(block.high, codes);
}

inline void unpack_codes(const BlockQ4K& block, std::uint8_t (&codes)[256]) noexcept {
  for (int pair = 0; pair < 4; ++pair) {
    unpack_nibbles<32>(block.nibbles + pair * 32, codes + pair * 64);
  }
}

inline void unpack_codes(const BlockQ5K& block, std::uint8_t (&codes)[256]) noexcept {
  for (int pair = 0; pair < 4; ++pair) {
    unpack_nibbles<32>(block.nibbles + pair * 32, codes + pair * 64);
  }
  merge_high_bits<4>(block.high, codes);
}

inline void unpack_codes(const BlockQ6K& block, std::uint8_t (&codes)[256]) noexcept {
  for (int half = 0; half < 2; ++half) {
    unpack_nibbles<64>(block.nibbles + half * 64, codes + half * 128);
  }
  merge_crumbs<4>(block.crumbs, codes);
}

}  // namespace tenon::quant
