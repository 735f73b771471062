#pragma once

// Images rounded to codes, with their channels last. Included after int8_simd.hpp.
#include "array/transpose.hpp"
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Values side by side; a NaN becomes the lowest code.
TENON_INLINE void round_values(const Int8PaddedCopy& job, const float* x, std::int64_t count,
                               std::uint8_t* to) {
  const float zero = job.zero, most = 255;
  const Float factor = Simd::broadcast(&job.inverse), offset = Simd::broadcast(&zero);
  for (std::int64_t i = 0; i < count; i += Simd::lanes) {
    const Float v = Simd::fma(load_channels(x + i, count - i), factor, offset);
    const Float inside = Simd::min(Simd::max(v, Simd::zero_float()), Simd::broadcast(&most));
    Int8Simd::store_codes(to + i, inside, count - i);
  }
}

/// Three lines of codes as pixels of three channels.
inline void interleave_three(const std::uint8_t* const (&lines)[3], std::int64_t count,
                             std::uint8_t* to) {
  using Codes = std::uint8_t __attribute__((vector_size(16)));
  const auto load = [](const std::uint8_t* from) {
    Codes codes;
    __builtin_memcpy(&codes, from, sizeof codes);
    return codes;
  };
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16, to += 48) {
    const Codes a = load(lines[0] + i), b = load(lines[1] + i), c = load(lines[2] + i);
    // Of each third first what a and b give, then c in between.
    const Codes thirds[] = {
        __builtin_shufflevector(
            __builtin_shufflevector(a, b, 0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5), c,
            0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15),
        __builtin_shufflevector(
            __builtin_shufflevector(a, b, 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26), c,
            0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15),
        __builtin_shufflevector(
            __builtin_shufflevector(a, b, 0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31, 0),
            c, 26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31)};
    __builtin_memcpy(to, thirds, sizeof thirds);
  }
  for (; i < count; ++i, to += 3) {
    for (std::int64_t c = 0; c < 3; ++c) to[c] = lines[c][i];
  }
}

/// Columns of one row, which lie at `x` and go to `to`.
TENON_INLINE void copy_value_row(const Int8PaddedCopy& job, const float* x, std::int64_t columns,
                                 std::uint8_t* to) {
  const Image<const float>& from = job.values;
  if (from.channel == 1 && from.column == job.channels) {
    return round_values(job, x, columns * job.channels, to);
  }
  constexpr std::int64_t block = 256;
  std::uint8_t codes[block];
  if (from.channel == 1) {
    for (std::int64_t j = 0; j < columns; ++j) {
      round_values(job, x + j * from.column, job.channels, to + j * job.channels);
    }
    return;
  }
  if (job.channels == 3 && from.column == 1) {
    std::uint8_t lines[3][block];
    for (std::int64_t j = 0; j < columns; j += block) {
      const std::int64_t count = columns - j < block ? columns - j : block;
      for (std::int64_t c = 0; c < 3; ++c) {
        round_values(job, x + c * from.channel + j, count, lines[c]);
      }
      interleave_three({lines[0], lines[1], lines[2]}, count, to + j * 3);
    }
    return;
  }
  float gathered[block];
  for (std::int64_t c = 0; c < job.channels; ++c) {
    for (std::int64_t j = 0; j < columns; j += block) {
      const std::int64_t count = columns - j < block ? columns - j : block;
      const float* line = x + c * from.channel + j * from.column;
      if (from.column != 1) {
        for (std::int64_t i = 0; i < count; ++i) gathered[i] = line[i * from.column];
        line = gathered;
      }
      round_values(job, line, count, codes);
      for (std::int64_t i = 0; i < count; ++i) to[(j + i) * job.channels + c] = codes[i];
    }
  }
}

/// Codes as they are.
TENON_INLINE void copy_code_row(const Int8PaddedCopy& job, const std::uint8_t* x,
                                std::int64_t columns, std::uint8_t* to) {
  const Image<const std::uint8_t>& from = job.codes;
  if (from.column == 1 && job.channels == 3) {
    return interleave_three({x, x + from.channel, x + 2 * from.channel}, columns, to);
  }
  if (from.column == 1 && from.channel != 1) {
    return transpose(reinterpret_cast<const std::byte*>(x), from.channel,
                     reinterpret_cast<std::byte*>(to), job.channels, columns, job.channels, 1);
  }
  for (std::int64_t j = 0; j < columns; ++j, to += job.channels) {
    const std::uint8_t* pixel = x + j * from.column;
    if (from.channel == 1) {
      __builtin_memcpy(to, pixel, static_cast<std::size_t>(job.channels));
    } else {
      for (std::int64_t c = 0; c < job.channels; ++c) to[c] = pixel[c * from.channel];
    }
  }
}

void run_int8_padded_copy(const Int8PaddedCopy& job, std::int64_t first,
                          std::int64_t last) noexcept {
  const std::int64_t space = job.width - job.before;
  const std::int64_t inner = job.columns < space ? job.columns : space;
  const std::int64_t after = space - inner;
  for (std::int64_t row = first; row < last; ++row) {
    std::uint8_t* to = job.to + row * job.width * job.channels;
    __builtin_memset(to, job.zero, static_cast<std::size_t>(job.before * job.channels));
    to += job.before * job.channels;
    if (job.values.at != nullptr) {
      copy_value_row(job, job.values.at + row * job.values.row, inner, to);
    } else {
      copy_code_row(job, job.codes.at + row * job.codes.row, inner, to);
      const std::int64_t bytes = job.flipped != 0 ? inner * job.channels : 0;
      for (std::int64_t i = 0; i < bytes; ++i) to[i] ^= job.flipped;
    }
    to += inner * job.channels;
    __builtin_memset(to, job.zero, static_cast<std::size_t>(after * job.channels));
  }
}

}  // namespace
}  // namespace tenon::cpu
