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

/// y = d (2 scale_b + 1) (g + delta_b) with sub-blocks of 32, g in {-1, 0, 1} and delta_b 1/8, or
/// -1/8 where bit 15 of high[b] is set; scale_b: bits 12 to 14. Eight elements from e on are entry
/// codes[e / 8] of `iq1_grid`, bits 3 (e / 8 % 4) and up of high[b] being the entry's upper three.
struct BlockIQ1S {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint8_t codes[32];
  std::uint16_t high[8];
};

/// As iq1_s with a scale for 16 and a delta for 8 elements: nibble e / 8 of `high` holds three bits
/// of the entry and, in bit 3, the delta's sign. Scale b: bits 3 (b % 4) and up of scales[b / 4],
/// whose top four bits, of all four words, make the f16 d.
struct BlockIQ1M {
  static constexpr int size = 256;
  std::uint8_t codes[32];
  std::uint8_t high[16];
  std::uint16_t scales[4];
};

/// y = d (2 scale_b + 1) / 8 s m with sub-blocks of 32, s = 1 or -1 and m in {8, 25, 43}. The eight
/// bytes of a sub-block: four entries of `iq2_xxs_grid` for 8 elements each, and a little-endian
/// word of four times 7 signs (the eighth makes their number even) and, on top, scale_b.
struct BlockIQ2XXS {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint8_t codes[64];
};

/// As iq2_xxs with sub-blocks of 16: 9 bits of codes[e / 8] are the entry of `iq2_xs_grid`, the 7
/// above its signs. Scales are nibbles.
struct BlockIQ2XS {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint16_t codes[32];
  std::uint8_t scales[8];
};

/// As iq2_xs, with a sign for every element: bit e % 8 of signs[e / 8]. Entries of `iq2_s_grid`;
/// crumb e / 8 of `high` has the upper two bits.
struct BlockIQ2S {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint8_t codes[32];
  std::uint8_t signs[32];
  std::uint8_t high[8];
  std::uint8_t scales[8];
};

/// y = d (2 scale_b + 1) / 4 s m with sub-blocks of 32 and m in {4, 12, ..., 52, 62}: codes[e / 4]
/// is the entry of `iq3_xxs_grid`. A word per sub-block holds signs and scale as in iq2_xxs.
struct BlockIQ3XXS {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint8_t codes[64];
  std::uint8_t signs[32];
};

/// y = d (2 scale_b + 1) s m with sub-blocks of 32 and m in {1, 3, ..., 15}: codes[e / 4] and, as
/// bit 8, bit e / 4 of `high` are the entry of `iq3_s_grid`. Signs as in iq2_s, scales nibbles.
struct BlockIQ3S {
  static constexpr int size = 256;
  std::uint16_t d;
  std::uint8_t codes[64];
  std::uint8_t high[8];
  std::uint8_t signs[32];
  std::uint8_t scales[4];
};

/// y = d (q - 1) with q in {0, 1, 2}. A byte holds five digits to the base 3 as the fraction
/// byte / 256, the first digit on top: elements e, e + 32, ... of 160 in the first 32 bytes,
/// e, e + 16, ... of the next 80 in 16 more, and four, e + 4 apart, of the last 16 in `last`.
struct BlockTQ1_0 {
  static constexpr int size = 256;
  std::uint8_t digits[48];
  std::uint8_t last[4];
  std::uint16_t d;
};

/// y = d (q - 1). Two-bit codes as q2_k places them; files hold 0 to 2.
struct BlockTQ2_0 {
  static constexpr int size = 256;
  std::uint8_t crumbs[64];
  std::uint16_t d;
};

/// y = 2^(exponent - 128) mxfp4_values[q]: the OCP microscaling format, with values and scale twice
/// and half of what it says. Nibbles as in q4_0. The largest exponent is no NaN here.
struct BlockMXFP4 {
  static constexpr int size = 32;
  std::uint8_t exponent;
  std::uint8_t nibbles[16];
};

/// y = scale mxfp4_values[q], with a scale for each 16 elements: a float8_e4m3 without its sign, halved
/// as the values are doubled (nvfp4_scale); 0 and 0x7F are zero. Nibbles: of each 16 elements eight bytes,
/// the first eight elements low. NVIDIA's format; its scale of a whole tensor is a tensor of its own.
struct BlockNVFP4 {
  static constexpr int size = 64;
  std::uint8_t scales[4];
  std::uint8_t nibbles[32];
};

/// y = d (2 q - 1): a bit for each element, the lowest first.
struct BlockQ1_0 {
  static constexpr int size = 128;
  std::uint16_t d;
  std::uint8_t bits[16];
};

/// y = d (q - 1) with q in 0 to 3, four to a byte, the lowest first.
struct BlockQ2_0 {
  static constexpr int size = 64;
  std::uint16_t d;
  std::uint8_t crumbs[16];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2K) == 84);
static_assert(sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176);
static_assert(sizeof(BlockQ6K) == 210 && sizeof(BlockQ8K) == 292 && sizeof(BlockIQ4NL) == 18);
static_assert(sizeof(BlockIQ4XS) == 136 && sizeof(BlockIQ1S) == 50 && sizeof(BlockIQ1M) == 56);
static_assert(sizeof(BlockIQ2XXS) == 66 && sizeof(BlockIQ2XS) == 74 && sizeof(BlockIQ2S) == 82);
static_assert(sizeof(BlockIQ3XXS) == 98 && sizeof(BlockIQ3S) == 110 && sizeof(BlockTQ1_0) == 54);
static_assert(sizeof(BlockTQ2_0) == 66 && sizeof(BlockMXFP4) == 17 && sizeof(BlockNVFP4) == 36);
static_assert(sizeof(BlockQ1_0) == 18 && sizeof(BlockQ2_0) == 18);

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
