// Rows of weights of every type, eight elements at a time: `load_eight<Type>(row, k, depth, out)`
// reads elements k to k + 7 of a row of `depth`, zeros behind its end. `element<Type>(row, k)` is one.
#pragma once

#include "kernels/decode_lattice.hpp"

#include <cstdint>

namespace tenon::cuda {

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
