#pragma once

#include <cstddef>
#include <cstdint>

/// Block layouts of GGUF's quantised types, as in a file (little-endian).
///
/// Every block holds `size` consecutive elements. In the comments, e is an element's place in its
/// block, b the sub-block it belongs to and q its code; f16 fields are kept as bits. The structs
/// describe bytes only: copy a block out of a buffer with memcpy, since a buffer of bytes promises
/// no alignment.
///
/// Source: the GGUF specification and the numpy functions of Python's `gguf` package.
namespace tenon::quant {

/// y = d (q - 8). The low nibble of byte i is element i, the high nibble element i + 16.
struct BlockQ4_0 {
  static constexpr int size = 32;
  std::uint16_t d;
  std::uint8_t nibbles[16];
};

/// y = d q + m. Nibbles as in q4_0.
struct BlockQ4_1 {
  static constexpr int size = 32;
  std::uint16_t d;
  std::uint16_t m;
  std::uint8_t nibbles[16];
};

/// y = d (q - 16). Nibbles as in q4_0; bit e of the 32-bit word `high` is bit 4 of element e.
struct BlockQ5_0 {
  static constexpr int size = 32;
  std::uint16_t d;
  std::uint8_t high[4];
  std::uint8_t nibbles[16];
};

/// y = d q + m. Codes as in q5_0.
struct BlockQ5_1 {
  static constexpr int size = 32;
  std::uint16_t d;
  std::uint16_t m;
  std::uint8_t high[4];
  std::uint8_t nibbles[16];
};

/// y = d q.
struct BlockQ8_0 {
  static constexpr int size = 32;
  std::uint16_t d;
  std::int8_t q[32];
};

/// y = d scale_b q - dmin min_b with sub-blocks of 16. The low nibble of scales[b] is the scale,
/// the high nibble the min. Code e: bits 2 (e / 32 % 4) and up of byte 32 (e / 128) + e % 32.
struct BlockQ2K {
  static constexpr int size = 256;
  std::uint8_t scales[16];
  std::uint8_t crumbs[64];
  std::uint16_t d;
  std::uint16_t dmin;
};

/// y = d (scale_b - 32) q with sub-blocks of 16 and q in [-4, 3]. Low two bits of code e as in
/// q2_k; bit e / 32 of high[e % 32] says that 4 need not be taken off. Scales: `unpack_scales_q3k`.
struct BlockQ3K {
  static constexpr int size = 256;
  std::uint8_t high[32];
  std::uint8_t crumbs[64];
  std::uint8_t scales[12];
  std::uint16_t d;
};

/// y = d scale_b q - dmin min_b with sub-blocks of 32. Byte 32 (e / 64) + e % 32 holds code e in
/// its low nibble where e / 32 is even, in its high nibble otherwise. Scales: `unpack_scales_q4k`.
struct BlockQ4K {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t nibbles[128];
};

/// As q4_k, with bit e / 32 of high[e % 32] as bit 4 of code e.
struct BlockQ5K {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t high[32];
  std::uint8_t nibbles[128];
};

/// y = d scale_b (q - 32) with sub-blocks of 16. Low nibble of code e: byte 64 (e / 128) + e % 64,
/// its high nibble where e / 64 is odd. High two bits: placed as in q2_k.
struct BlockQ6K {
  static constexpr int size = 256;
  std::uint8_t nibbles[128];
  std::uint8_t crumbs[64];
  std::int8_t scales[16];
  std::uint16_t d;
};

/// y = d q. `sums[i]` is the sum of q over elements 16 i to 16 i + 15: the term that a dot product
/// with a type that has mins needs.
struct BlockQ8K {
  static constexpr int size = 256;
  float d;
  std::int8_t q[256];
  std::int16_t sums[16];
};

/// y = d iq4_values[q]. Nibbles as in q4_0.
struct BlockIQ4NL {
  static constexpr int size = 32;
  std::uint16_t d;
  std::uint8_t nibbles[16];
};

/// y = d (scale_b - 32) iq4_values[q] with sub-blocks of 32, each with its nibbles as in q4_0. The
/// low four bits of scale_b: nibble b of scales_low; the high two: bits 2 b and up of scales_high.
struct BlockIQ4XS {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint16_t scales_high;
  std::uint8_t scales_low[4];
  std::uint8_t nibbles[128];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2K) == 84);
static_assert(sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176);
static_assert(sizeof(BlockQ6K) == 210 && sizeof(BlockQ8K) == 292 && sizeof(BlockIQ4NL) == 18);
static_assert(sizeof(BlockIQ4XS) == 136);

/// The sixteen levels of iq4_nl and iq4_xs.
inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

/// The eight six-bit scales and mins of q4_k and q5_k. The first four scales lie in bytes 0-3 and
/// the first four mins in bytes 4-7; of the last four, bytes 8-11 hold the low nibbles (scale low,
/// min high) and the top two bits of bytes 0-7 the rest.
inline void unpack_scales_q4k(const std::uint8_t (&packed)[12], std::uint8_t (&scales)[8],
                              std::uint8_t (&mins)[8]) noexcept {
  for (int b = 0; b < 4; ++b) {
    const unsigned s = packed[b], m = packed[4 + b], rest = packed[8 + b];
    scales[b] = static_cast<std::uint8_t>(s & 63u);
    mins[b] = static_cast<std::uint8_t>(m & 63u);
    scales[4 + b] = static_cast<std::uint8_t>((rest & 15u) | (s >> 6 << 4));
    mins[4 + b] = static_cast<std::uint8_t>((rest >> 4) | (m >> 6 << 4));
  }
}

/// The sixteen scales of q3_k, with 32 already taken off. Nibble b of bytes 0-7 (bytes first: the
/// low nibbles are scales 0-7, the high ones 8-15) holds the low bits; bits 2 (b / 4) and up of
/// byte 8 + b % 4 the high ones.
inline void unpack_scales_q3k(const std::uint8_t (&packed)[12],
                              std::int8_t (&scales)[16]) noexcept {
  for (int b = 0; b < 16; ++b) {
    const int low = (packed[b % 8] >> (b / 8 * 4)) & 15;
    const int high = (packed[8 + b % 4] >> (b / 4 * 2)) & 3;
    scales[b] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

/// The eight scales of iq4_xs, with 32 already taken off.
inline void unpack_scales_iq4xs(const BlockIQ4XS& block, std::int8_t (&scales)[8]) noexcept {
  for (int b = 0; b < 8; ++b) {
    const int low = (block.scales_low[b / 2] >> (b % 2 * 4)) & 15;
    const int high = (block.scales_high >> (2 * b)) & 3;
    scales[b] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

}  // namespace tenon::quant
