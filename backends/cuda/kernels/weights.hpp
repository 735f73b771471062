// Rows of weights of every type, eight elements at a time: `load_eight<Type>(row, k, depth, out)`
// reads elements k to k + 7 of a row of `depth`, zeros behind its end. `element<Type>(row, k)` is one.
#pragma once

#include "kernels/values.hpp"
#include "quant/blocks.hpp"

#include <cstdint>

namespace tenon::cuda {

TENON_CONSTANT std::int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

// Plain types, named so that they select overloads as blocks do.
struct PlainF32 {};
struct PlainF16 {};
struct PlainBf16 {};

TENON_DEVICE float plain_element(PlainF32, Address row, std::uint32_t k) {
  return global<const float>(row)[k];
}
TENON_DEVICE float plain_element(PlainF16, Address row, std::uint32_t k) {
  return widen_half(global<const std::uint16_t>(row)[k]);
}
TENON_DEVICE float plain_element(PlainBf16, Address row, std::uint32_t k) {
  return widen_bfloat16(global<const std::uint16_t>(row)[k]);
}

// decode(block, e, out): elements e to e + 7 of a block; e is a multiple of 8.

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

/// How elements of a row are read.
template <class Type>
struct Row {
  static TENON_DEVICE void load_eight(Address row, std::uint32_t k, std::uint32_t /*depth*/,
                                      float* out) {
    constexpr std::uint32_t size = Type::size;
    decode(global<const Type>(row)[k / size], k % size, out);
  }
  static TENON_DEVICE float element(Address row, std::uint32_t k) {
    float eight[8];
    load_eight(row, k / 8 * 8, 0, eight);
    return eight[k % 8];
  }
};

template <class Type>
struct PlainRow {
  static TENON_DEVICE void load_eight(Address row, std::uint32_t k, std::uint32_t depth,
                                      float* out) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      out[i] = k + i < depth ? plain_element(Type(), row, k + i) : 0.0f;
    }
  }
  static TENON_DEVICE float element(Address row, std::uint32_t k) {
    return plain_element(Type(), row, k);
  }
};
template <>
struct Row<PlainF32> : PlainRow<PlainF32> {};
template <>
struct Row<PlainF16> : PlainRow<PlainF16> {};
template <>
struct Row<PlainBf16> : PlainRow<PlainBf16> {};

/// q8_0 keeps one element's code by itself.
template <>
TENON_DEVICE float Row<quant::BlockQ8_0>::element(Address row, std::uint32_t k) {
  const quant::BlockQ8_0& block = global<const quant::BlockQ8_0>(row)[k / 32];
  return widen_half(block.d) * static_cast<float>(block.q[k % 32]);
}

/// Eight elements of a row of f32, f16 or bf16.
TENON_DEVICE void load_eight(DType dtype, Address row, std::uint32_t k, std::uint32_t depth,
                             float* out) {
  const std::uint32_t bytes = dtype == DType::f32 ? 4 : 2;
  for (std::uint32_t i = 0; i < 8; ++i) {
    out[i] = k + i < depth ? load_real(dtype, row + (k + i) * bytes) : 0.0f;
  }
}

}  // namespace tenon::cuda
