// An element-wise op of two dense arrays of f32 whose results are multiplied next: they become digits
// on the way (digits.hpp).
#pragma once

#include "kernels/digits.hpp"
#include "kernels/pointwise.hpp"

#include <cstdint>

namespace tenon::cuda {

TENON_DEVICE void load_eight_floats(const Array& array, std::uint32_t first, float (&out)[8]) {
  const Address from = array.data + 4 * Address{first};
  if (from % sizeof(Words4) == 0) {
    TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) {
      if (i % 4 == 0) {
        const Words4 four = *global<const Words4>(from + 4 * i);
        TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) out[i + j] = bits_to_float(four.at[j]);
      }
    }
    return;
  }
  TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) out[i] = global<const float>(from)[i];
}

/// A warp for 256 elements, of which `axes.count` is a multiple: y, and at c.data as DigitsOfStep.
TENON_DEVICE void binary_with_digits(const Thread& thread, const PointArgs& args) {
  const std::uint32_t step = thread.block() * (thread.count() / warp_size) + warp_of(thread);
  if (step >= args.axes.count / digit_step) return;
  const std::uint32_t first = step * digit_step + 8 * lane_of(thread);
  float a[8], b[8];
  load_eight_floats(args.a, first, a);
  load_eight_floats(args.b, first, b);
  TENON_UNROLL for (std::uint32_t i = 0; i < 8; ++i) a[i] = binary_of(args.op, a[i], b[i]);
  const Address y = args.y.data + 4 * Address{first};
  store_eight(DType::f32, y, 0, 8, y % sizeof(Words4) == 0, a);
  store_digits(thread, digits_of(thread, a), args.c.data, step);
}

}  // namespace tenon::cuda
