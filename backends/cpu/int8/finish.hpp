#pragma once

// The epilogue: from sums of integer products to stored results. Included after int8_simd.hpp.
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// sum * factor + offset, for a vector of outputs.
struct Scaling {
  Float factor, offset;
};

/// `with_zero`: the sum is of codes as they are.
template <bool with_zero>
TENON_INLINE Scaling scaling_of(const Int8Finish& finish, std::int64_t channel,
                                std::int64_t count) {
  const Float factor =
      Simd::mul(Simd::load_float(finish.weight_scale + channel), Simd::broadcast(&finish.ratio));
  Float offset = Simd::broadcast(&finish.base);
  if (finish.bias != nullptr) {
    offset = Simd::fma(load_channels(finish.bias + channel, count),
                       Simd::broadcast(&finish.inverse), offset);
  }
  if (with_zero) {
    const Float shift = Simd::mul(Simd::load_float(finish.weight_sum + channel), factor);
    offset = Simd::sub(offset, Simd::mul(shift, Simd::broadcast(&finish.zero)));
  }
  return {factor, offset};
}

/// One output, where `store_sum` cannot store a vector of adjacent ones.
inline void store_alone(const Int8Finish& finish, std::int64_t row, std::int64_t column,
                        std::int64_t channel, float value) {
  const auto place = [&](const auto& image) {
    return row * image.row + column * image.column + channel * image.channel;
  };
  if (finish.residual_codes.at != nullptr) {
    const float code = finish.residual_codes.at[place(finish.residual_codes)];
    value += code * finish.residual_factor;
  }
  if (finish.residual_values.at != nullptr) {
    value += finish.residual_values.at[place(finish.residual_values)] * finish.residual_factor;
  }
  if (finish.codes.at != nullptr) {
    value = value > finish.low ? value : finish.low;
    value = value < finish.high ? value : finish.high;
    Float v = Simd::broadcast(&value);
    Int8Simd::store_codes(finish.codes.at + place(finish.codes), v, 1);
    return;
  }
  value = value < finish.low ? finish.low : value;
  finish.values.at[place(finish.values)] = value > finish.high ? finish.high : value;
}

/// A vector of outputs from `channel` on, of which `count` exist.
TENON_INLINE void store_sum(const Int8Finish& finish, std::int64_t row, std::int64_t column,
                            std::int64_t channel, Float sum, std::int64_t count) {
  const auto place = [&](const auto& image) {
    return row * image.row + column * image.column + channel;
  };
  const auto is_dense = [](const auto& image) { return image.at == nullptr || image.channel == 1; };
  if (is_dense(finish.residual_codes) && is_dense(finish.residual_values) &&
      is_dense(finish.codes) && is_dense(finish.values)) {
    const Float factor = Simd::broadcast(&finish.residual_factor);
    if (finish.residual_codes.at != nullptr) {
      const auto* residual = finish.residual_codes.at + place(finish.residual_codes);
      sum = Simd::fma(Int8Simd::load_codes(residual, count), factor, sum);
    }
    if (finish.residual_values.at != nullptr) {
      const auto* residual = finish.residual_values.at + place(finish.residual_values);
      sum = Simd::fma(load_channels(residual, count), factor, sum);
    }
    const Float low = Simd::broadcast(&finish.low), high = Simd::broadcast(&finish.high);
    if (finish.codes.at != nullptr) {
      Int8Simd::store_codes(finish.codes.at + place(finish.codes),
                            Simd::min(Simd::max(sum, low), high), count);
    } else {
      store_channels(finish.values.at + place(finish.values), limited(sum, low, high), count);
    }
    return;
  }
  float values[Simd::lanes];
  Simd::store_float(values, sum);
  for (std::int64_t c = 0; c < Simd::lanes && c < count; ++c) {
    store_alone(finish, row, column, channel + c, values[c]);
  }
}

/// Dense codes, most of what is stored: no more than this per vector.
template <bool has_residual>
TENON_INLINE void store_codes_of(const Int8Finish& finish, const Scaling& scaling,
                                 const std::int32_t* sums, std::int64_t pixels, std::int64_t width,
                                 std::uint8_t* y, const std::uint8_t* residual,
                                 std::int64_t count) {
  const Float low = Simd::broadcast(&finish.low), high = Simd::broadcast(&finish.high);
  const Float factor = Simd::broadcast(&finish.residual_factor);
  for (std::int64_t p = 0; p < pixels; ++p) {
    Float v = Simd::fma(Int8Simd::to_float(Int8Simd::load_sum(sums + p * width)), scaling.factor,
                        scaling.offset);
    if constexpr (has_residual) {
      v = Simd::fma(Int8Simd::load_codes(residual + p * finish.residual_codes.column, count),
                    factor, v);
    }
    Int8Simd::store_codes(y + p * finish.codes.column, Simd::min(Simd::max(v, low), high), count);
  }
}

}  // namespace
}  // namespace tenon::cpu

#if defined(__AVX512F__)
#include "finish_avx512.hpp"
#endif

namespace tenon::cpu {
namespace {

/// Whether results and what is added to them, if anything is, are codes with their channels last.
inline bool stores_dense_codes(const Int8Finish& finish) {
  return finish.codes.at != nullptr && finish.codes.channel == 1 &&
         finish.residual_values.at == nullptr &&
         (finish.residual_codes.at == nullptr || finish.residual_codes.channel == 1);
}

/// Sums [pixels][width] of neighbouring pixels and outputs from `channel` on, of which `count`
/// exist. Not inlined into the tiles, whose sums are in registers: there are many instances, and
/// this is long.
[[gnu::noinline]] void store_sums(const Int8Finish& finish, std::int64_t row, std::int64_t column,
                                  std::int64_t channel, const std::int32_t* sums,
                                  std::int64_t pixels, std::int64_t width, std::int64_t count) {
  if (finish.sums.at != nullptr) {
    const Image<std::int32_t>& to = finish.sums;
    const auto bytes = static_cast<std::size_t>(4 * (width < count ? width : count));
    for (std::int64_t p = 0; p < pixels; ++p) {
      __builtin_memcpy(to.at + row * to.row + (column + p) * to.column + channel, sums + p * width,
                       bytes);
    }
    return;
  }
  const bool is_plain = stores_dense_codes(finish);
  const Image<const std::uint8_t>& residual = finish.residual_codes;
  const auto place = [&](const auto& image) {
    return image.at + row * image.row + column * image.column + channel;
  };
#if defined(__AVX512F__)
  if (is_plain && width == 32 && count >= 32) {
    const PairFinish pairs(finish, channel);
    if (residual.at == nullptr) {
      return store_pairs_of<false>(pairs, sums, pixels, place(finish.codes), finish.codes.column,
                                   nullptr, 0);
    }
    return store_pairs_of<true>(pairs, sums, pixels, place(finish.codes), finish.codes.column,
                                place(residual), residual.column);
  }
#endif
  for (std::int64_t c = 0; c < width && c < count; c += Simd::lanes) {
    const Scaling scaling = scaling_of<true>(finish, channel + c, count - c);
    if (is_plain) {
      if (residual.at == nullptr) {
        store_codes_of<false>(finish, scaling, sums + c, pixels, width, place(finish.codes) + c,
                              nullptr, count - c);
      } else {
        store_codes_of<true>(finish, scaling, sums + c, pixels, width, place(finish.codes) + c,
                             place(residual) + c, count - c);
      }
      continue;
    }
    for (std::int64_t p = 0; p < pixels; ++p) {
      const Float sum = Int8Simd::to_float(Int8Simd::load_sum(sums + p * width + c));
      store_sum(finish, row, column + p, channel + c,
                Simd::fma(sum, scaling.factor, scaling.offset), count - c);
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
