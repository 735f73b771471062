// Eight neighbouring elements of a row, kept as they lie in memory: 16 bytes are read at a time where
// the row allows it. `is_aligned`: the row begins at a multiple of 16 bytes. Elements behind the end of
// the row are zeros, and are not read.
#pragma once

#include "kernels/weights.hpp"

#include <cstdint>

namespace tenon::cuda {

struct alignas(16) FourFloats {
  float of[4];
};
TENON_DEVICE FourFloats floats_of(const Words4& words) {
  return {bits_to_float(words.at[0]), bits_to_float(words.at[1]), bits_to_float(words.at[2]),
          bits_to_float(words.at[3])};
}

/// `read` takes all eight at once, of rows at multiples of 16 bytes if it needs that; `read_part` one by one those that the row has.
template <class Type>
struct Eight;

struct EightOf16Bits {
  static constexpr bool needs_alignment = true;
  Words4 words{};

  TENON_DEVICE void read(Address row, std::uint32_t d) { words = load_words(row + 2 * d); }
  TENON_DEVICE void read_part(Address row, std::uint32_t d, std::uint32_t depth) {
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (d + i >= depth) continue;
      const std::uint32_t half = *global<const std::uint16_t>(row + 2 * (d + i));
      words.at[i / 2] |= half << (i % 2 * 16);
    }
  }
};

template <>
struct Eight<PlainF16> : EightOf16Bits {
  TENON_DEVICE void widen(float* out) const {
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      out[i] = widen_half(static_cast<std::uint16_t>(words.at[i / 2] >> (i % 2 * 16)));
    }
  }
};
template <>
struct Eight<PlainBf16> : EightOf16Bits {
  TENON_DEVICE void widen(float* out) const {
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 4; ++i) {
      out[2 * i] = bits_to_float(words.at[i] << 16);
      out[2 * i + 1] = bits_to_float(words.at[i] & 0xFFFF0000u);
    }
  }
};
template <>
struct Eight<PlainF32> {
  static constexpr bool needs_alignment = true;
  FourFloats fours[2]{};

  TENON_DEVICE void read(Address row, std::uint32_t d) {
    fours[0] = floats_of(load_words(row + 4 * d));
    fours[1] = floats_of(load_words(row + 4 * d + 16));
  }
  TENON_DEVICE void read_part(Address row, std::uint32_t d, std::uint32_t depth) {
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (d + i < depth) fours[i / 4].of[i % 4] = *global<const float>(row + 4 * (d + i));
    }
  }
  TENON_DEVICE void widen(float* out) const {
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) out[i] = fours[i / 4].of[i % 4];
  }
};
/// Blocks lie at multiples of 2 bytes, and rows end with one.
template <>
struct Eight<quant::BlockQ8_0> {
  static constexpr bool needs_alignment = false;
  std::uint32_t codes[2]{};
  std::uint16_t scale = 0;

  TENON_DEVICE void read(Address row, std::uint32_t d) {
    const Address block = row + d / 32 * sizeof(quant::BlockQ8_0);
    scale = *global<const std::uint16_t>(block);
    const auto* const twos = global<const std::uint16_t>(block + 2 + d % 32);
    codes[0] = twos[0] | static_cast<std::uint32_t>(twos[1]) << 16;
    codes[1] = twos[2] | static_cast<std::uint32_t>(twos[3]) << 16;
  }
  TENON_DEVICE void read_part(Address row, std::uint32_t d, std::uint32_t /*depth*/) {
    read(row, d);
  }
  TENON_DEVICE void widen(float* out) const {
    const float factor = widen_half(scale);
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      const auto code = static_cast<std::int8_t>(codes[i / 4] >> (i % 4 * 8));
      out[i] = factor * static_cast<float>(code);
    }
  }
};

/// How a thread reads its eight elements from d on of rows of `depth`.
struct EightReading {
  std::uint32_t d, depth;
  bool at_once, in_part;  ///< neither behind the end
};
TENON_DEVICE EightReading reading_of(std::uint32_t d, std::uint32_t depth, bool is_aligned) {
  const bool at_once = is_aligned && d + 8 <= depth;
  return {d, depth, at_once, !at_once && d < depth};
}

/// Apart, since it is rare and would take registers from the rest.
template <class Type>
TENON_CALLED Eight<Type> eight_in_part(Address row, std::uint32_t d, std::uint32_t depth) {
  Eight<Type> eight;
  eight.read_part(row, d, depth);
  return eight;
}
/// Leaves `eight` as it is where the row has none of its elements.
template <class Type>
TENON_DEVICE void read_eight(Eight<Type>& eight, Address row, const EightReading& reading) {
  if (reading.at_once) eight.read(row, reading.d);
  if (reading.in_part) eight = eight_in_part<Type>(row, reading.d, reading.depth);
}

template <class Type>
TENON_DEVICE void load_eight_as(Address row, std::uint32_t d, std::uint32_t depth, bool is_aligned,
                                float* out) {
  Eight<Type> eight;
  read_eight(eight, row, reading_of(d, depth, is_aligned));
  eight.widen(out);
}
TENON_DEVICE std::uint32_t bytes_of_real(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

/// Of a row of f32, f16 or bf16.
TENON_DEVICE void load_eight(DType dtype, Address row, std::uint32_t d, std::uint32_t depth,
                             bool is_aligned, float* out) {
  switch (dtype) {
    case DType::f32:
      return load_eight_as<PlainF32>(row, d, depth, is_aligned, out);
    case DType::f16:
      return load_eight_as<PlainF16>(row, d, depth, is_aligned, out);
    default:
      return load_eight_as<PlainBf16>(row, d, depth, is_aligned, out);
  }
}

/// Of eight values those that the row has room for.
TENON_DEVICE void store_eight(DType dtype, Address row, std::uint32_t d, std::uint32_t depth,
                              bool is_aligned, const float* values) {
  if (!is_aligned || d + 8 > depth) {
    const std::uint32_t bytes = bytes_of_real(dtype);
    TENON_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (d + i < depth) store_real(dtype, row + (d + i) * bytes, values[i]);
    }
    return;
  }
  if (dtype == DType::f32) {
    auto* const fours = global<FourFloats>(row + 4 * d);
    fours[0] = {values[0], values[1], values[2], values[3]};
    fours[1] = {values[4], values[5], values[6], values[7]};
    return;
  }
  const bool is_half = dtype == DType::f16;
  Words4 words;
  TENON_UNROLL
  for (std::uint32_t i = 0; i < 4; ++i) {
    const float low = values[2 * i], high = values[2 * i + 1];
    const std::uint32_t low_bits = is_half ? narrow_half(low) : narrow_bfloat16(low);
    const std::uint32_t high_bits = is_half ? narrow_half(high) : narrow_bfloat16(high);
    words.at[i] = low_bits | high_bits << 16;
  }
  *global<Words4>(row + 2 * d) = words;
}

}  // namespace tenon::cuda
