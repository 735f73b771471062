// Blocks of weights: decode(block, e, out) gives elements e to e + 7; e is a multiple of 8.
#pragma once

#include "kernels/values.hpp"
#include "quant/blocks.hpp"

#include <cstdint>

namespace tenon::cuda {

TENON_CONSTANT std::int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

/// Nibble codes as q4_0 places them, at e.
TENON_DEVICE unsigned nibble(const std::uint8_t* nibbles, unsigned e, unsigned i) {
  const unsigned byte = nibbles[e % 16 + i];
  return e < 16 ? byte & 15u : byte >> 4;
}
TENON_DEVICE unsigned high_bits(const std::uint8_t (&high)[4], unsigned e) { return high[e / 8]; }

TENON_DEVICE void decode(const quant::BlockQ4_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(static_cast<int>(nibble(block.nibbles, e, i)) - 8);
  }
}
TENON_DEVICE void decode(const quant::BlockQ4_1& block, unsigned e, float* out) {
  const float d = widen_half(block.d), m = widen_half(block.m);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(nibble(block.nibbles, e, i)) + m;
  }
}
TENON_DEVICE void decode(const quant::BlockQ5_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  const unsigned high = high_bits(block.high, e);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = nibble(block.nibbles, e, i) | (high >> i & 1u) << 4;
    out[i] = d * static_cast<float>(static_cast<int>(code) - 16);
  }
}
TENON_DEVICE void decode(const quant::BlockQ5_1& block, unsigned e, float* out) {
  const float d = widen_half(block.d), m = widen_half(block.m);
  const unsigned high = high_bits(block.high, e);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = nibble(block.nibbles, e, i) | (high >> i & 1u) << 4;
    out[i] = d * static_cast<float>(code) + m;
  }
}
TENON_DEVICE void decode(const quant::BlockQ8_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) out[i] = d * static_cast<float>(block.q[e + i]);
}

/// Two-bit codes as q2_k places them, at e.
TENON_DEVICE unsigned crumb(const std::uint8_t (&crumbs)[64], unsigned e) {
  return crumbs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3u;
}

TENON_DEVICE void decode(const quant::BlockQ2K& block, unsigned e, float* out) {
  const unsigned scales = block.scales[e / 16];
  const float scale = widen_half(block.d) * static_cast<float>(scales & 15u);
  const float min = widen_half(block.dmin) * static_cast<float>(scales >> 4);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = scale * static_cast<float>(crumb(block.crumbs, e + i)) - min;
  }
}
TENON_DEVICE void decode(const quant::BlockQ3K& block, unsigned e, float* out) {
  const unsigned b = e / 16;
  const int low = block.scales[b % 8] >> (b / 8 * 4) & 15;
  const int high = block.scales[8 + b % 4] >> (b / 4 * 2) & 3;
  const float scale = widen_half(block.d) * static_cast<float>((low | high << 4) - 32);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned bit = block.high[(e + i) % 32] >> (e / 32) & 1u;
    const unsigned code = crumb(block.crumbs, e + i) | bit << 2;
    out[i] = scale * static_cast<float>(static_cast<int>(code) - 4);
  }
}

/// Scale and min of sub-block b of q4_k and q5_k.
struct ScaleAndMin {
  float scale, min;
};
template <class Block>
TENON_DEVICE ScaleAndMin scale_and_min(const Block& block, unsigned b) {
  unsigned scale, min;
  if (b < 4) {
    scale = block.scales[b] & 63u;
    min = block.scales[4 + b] & 63u;
  } else {
    const unsigned rest = block.scales[4 + b];
    const unsigned high_scale = block.scales[b - 4] >> 6, high_min = block.scales[b] >> 6;
    scale = (rest & 15u) | high_scale << 4;
    min = rest >> 4 | high_min << 4;
  }
  return {widen_half(block.d) * static_cast<float>(scale),
          widen_half(block.dmin) * static_cast<float>(min)};
}
/// Nibble codes as q4_k places them, at e.
TENON_DEVICE unsigned paired_nibble(const std::uint8_t (&nibbles)[128], unsigned e) {
  const unsigned byte = nibbles[e / 64 * 32 + e % 32];
  return e / 32 % 2 == 0 ? byte & 15u : byte >> 4;
}

TENON_DEVICE void decode(const quant::BlockQ4K& block, unsigned e, float* out) {
  const ScaleAndMin pair = scale_and_min(block, e / 32);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = pair.scale * static_cast<float>(paired_nibble(block.nibbles, e + i)) - pair.min;
  }
}
TENON_DEVICE void decode(const quant::BlockQ5K& block, unsigned e, float* out) {
  const ScaleAndMin pair = scale_and_min(block, e / 32);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned bit = block.high[(e + i) % 32] >> (e / 32) & 1u;
    const unsigned code = paired_nibble(block.nibbles, e + i) | bit << 4;
    out[i] = pair.scale * static_cast<float>(code) - pair.min;
  }
}
TENON_DEVICE void decode(const quant::BlockQ6K& block, unsigned e, float* out) {
  const float scale = widen_half(block.d) * static_cast<float>(block.scales[e / 16]);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned byte = block.nibbles[e / 128 * 64 + (e + i) % 64];
    const unsigned low = e / 64 % 2 == 0 ? byte & 15u : byte >> 4;
    const unsigned code = low | crumb(block.crumbs, e + i) << 4;
    out[i] = scale * static_cast<float>(static_cast<int>(code) - 32);
  }
}
TENON_DEVICE void decode(const quant::BlockIQ4NL& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(iq4_levels[nibble(block.nibbles, e, i)]);
  }
}
TENON_DEVICE void decode(const quant::BlockIQ4XS& block, unsigned e, float* out) {
  const unsigned b = e / 32;
  const int low = block.scales_low[b / 2] >> (b % 2 * 4) & 15;
  const int high = block.scales_high >> (2 * b) & 3;
  const float scale = widen_half(block.d) * static_cast<float>((low | high << 4) - 32);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = nibble(block.nibbles + 16 * b, e % 32, i);
    out[i] = scale * static_cast<float>(iq4_levels[code]);
  }
}

/// Two-bit codes, one above their values.
TENON_DEVICE void decode(const quant::BlockTQ2_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(static_cast<int>(crumb(block.crumbs, e + i)) - 1);
  }
}

/// The code of element e: a digit to the base 3, of the fraction byte / 256.
TENON_DEVICE unsigned ternary_digit(const quant::BlockTQ1_0& block, unsigned e) {
  const unsigned in_part = e < 160 ? e : e < 240 ? e - 160 : e - 240;
  const unsigned width = e < 160 ? 32 : e < 240 ? 16 : 4;
  const unsigned at = in_part % width;
  const unsigned byte = e < 160   ? block.digits[at]
                        : e < 240 ? block.digits[32 + at]
                                  : block.last[at];
  unsigned power = 1;
  for (unsigned digit = in_part / width; digit > 0; --digit) power *= 3;
  return ((byte * power) & 255u) * 3 >> 8;
}
TENON_DEVICE void decode(const quant::BlockTQ1_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(static_cast<int>(ternary_digit(block, e + i)) - 1);
  }
}

TENON_CONSTANT std::int8_t mxfp4_levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};
/// 2^(exponent - 128).
TENON_DEVICE float mxfp4_scale(unsigned exponent) {
  return bits_to_float(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
}
TENON_DEVICE void decode(const quant::BlockMXFP4& block, unsigned e, float* out) {
  const float d = mxfp4_scale(block.exponent);
  for (unsigned i = 0; i < 8; ++i) {
    out[i] = d * static_cast<float>(mxfp4_levels[nibble(block.nibbles, e, i)]);
  }
}

/// m 2^-10, or (1 + m / 8) 2^(e - 8); 0x7F is zero.
TENON_DEVICE float nvfp4_scale(unsigned byte) {
  if (byte == 0x7Fu) return 0.0f;
  const unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
  if (exponent == 0) return static_cast<float>(mantissa) * 0.0009765625f;
  return bits_to_float((exponent + 119u) << 23 | mantissa << 20);
}
TENON_DEVICE void decode(const quant::BlockNVFP4& block, unsigned e, float* out) {
  const float d = nvfp4_scale(block.scales[e / 16]);
  const std::uint8_t* const bytes = block.nibbles + e / 16 * 8;
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = e % 16 == 0 ? bytes[i] & 15u : static_cast<unsigned>(bytes[i]) >> 4;
    out[i] = d * static_cast<float>(mxfp4_levels[code]);
  }
}

TENON_DEVICE void decode(const quant::BlockQ1_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  const unsigned bits = block.bits[e / 8];
  for (unsigned i = 0; i < 8; ++i) out[i] = (bits >> i & 1u) != 0 ? d : -d;
}
TENON_DEVICE void decode(const quant::BlockQ2_0& block, unsigned e, float* out) {
  const float d = widen_half(block.d);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned code = block.crumbs[(e + i) / 4] >> (i % 4 * 2) & 3u;
    out[i] = d * static_cast<float>(static_cast<int>(code) - 1);
  }
}

}  // namespace tenon::cuda
