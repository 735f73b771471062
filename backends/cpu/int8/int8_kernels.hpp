#pragma once

#include "../convolution/convolution_kernels.hpp"

#include <cstddef>
#include <cstdint>

/// Convolutions and pools of images of codes (u8) as the files compiled for one instruction set
/// provide them: plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

/// The epilogue of a sum of products of codes and weights:
///   f = (sum - zero * weight_sum) * weight_scale * ratio + bias * inverse + residual * factor +
///   base
/// limited to [low, high] and stored, as a code (rounded to even; a NaN is the lowest) or as f32.
/// All in units of the output: its codes' scale, or 1.
struct Int8Finish {
  const float* weight_scale;  ///< per output, up to a multiple of 16
  const float* weight_sum;
  const float* bias;  ///< per output, or null
  float zero, ratio, inverse, base;
  Image<const std::uint8_t> residual_codes;  ///< `at` may be null
  Image<const float> residual_values;        ///< likewise
  float residual_factor;
  float low, high;
  Image<std::uint8_t> codes;  ///< the output; one of the two is null
  Image<float> values;
  /// Where it is not null, the output instead of those two: sums of products as they are.
  Image<std::int32_t> sums;
};

/// One image and group of a convolution.
struct Int8ProductJob {
  Image<const std::uint8_t> x;  ///< channels last
  /// Panels of 16 outputs: [tap row][run][quad][16][4]. A run is the contiguous part of a tap row:
  /// the channels of one tap, or of all.
  const std::int8_t* filter;
  std::int64_t panel;  ///< bytes from one panel to the next
  std::int64_t runs, quads;
  const std::uint8_t* outside;  ///< codes of 0 for padding, as many as a run reads
  std::int64_t outputs;
  WindowAxis rows, columns;
  Int8Finish finish;
  std::uint8_t* band;  ///< int8_band_bytes of this thread
};

/// Memory for the input of some of an image's outputs.
inline constexpr std::int64_t int8_band_bytes = 1 << 19;

/// One image of a depthwise convolution. The filter is of integers.
struct Int8DepthwiseJob {
  Image<const std::uint8_t> x;  ///< channels last
  const float* filter;          ///< panels of 16 channels: [tap row][tap column][16]
  /// Of 3 by 3 taps, else null: the same as [64 channels][tap column][4][4 channels of 16 each][4
  /// tap rows], the fourth row zeros.
  const std::int8_t* quads;
  const std::uint8_t* outside;  ///< 64 codes of 0
  std::int64_t channels;
  WindowAxis rows, columns;
  Int8Finish finish;
};

/// The largest code under a sliding window, of one image.
struct Int8PoolJob {
  Image<const std::uint8_t> x;
  Image<std::uint8_t> y;
  std::int64_t channels;
  WindowAxis rows, columns;
};

/// An image as codes [rows][before + columns + after][channels], `zero` on both sides.
struct Int8PaddedCopy {
  Image<const float> values;  ///< one of the two is null
  Image<const std::uint8_t> codes;
  std::int64_t columns, channels;
  std::int64_t before, width;  ///< `width`: of a row of the copy
  float inverse;               ///< codes per unit of the values
  std::uint8_t zero;
  std::uint8_t* to;
  std::uint8_t flipped = 0;  ///< bits of the codes that change: 0x80 turns i8 into u8, 128 more
};

/// Sums of products on their way to a result, neighbouring pixels at once: in this order
///   i = sum + offset                    modulo 2^32; as i32 the result where `factor` is null
///   f = i * factor, then each stage     as f32 the result where `scale` is null
///   q = round(f / scale) + zero         within [low, high]; an i8 or u8
/// Each arithmetic step rounds to f32. Numbers of outputs are dense, with room for 16 at the end.
struct SumsJob {
  /// f + numbers, or, where those are null, f limited to [low, high].
  struct Stage {
    const float* numbers;
    float low, high;
  };
  static constexpr int max_stages = 4;

  const std::int32_t* sums;  ///< [pixels][count]; 64 more bytes may be read
  std::int64_t pixels, count;
  const std::int32_t* offset;
  const float* factor;
  Stage stages[max_stages];
  int stage_count;
  const float* scale;
  bool divides;             ///< not all scales are 1
  bool is_signed;           ///< i8, as a code that is 128 more and whose first bit then flips
  const float *low, *high;  ///< of codes less the zero
  const float* zero;        ///< 128 more where `is_signed`
  std::byte* to;            ///< results of a pixel are dense
  std::int64_t step;        ///< bytes from one pixel's to the next
};

struct Int8Kernels {
  /// The magnitude that weights may have: pairs of their products with codes must fit where the
  /// instructions add them first, in 16 bits.
  int weight_limit;
  /// Requires columns for which `reaches_out_at_ends_only` holds. Reads up to 3 bytes behind a run.
  void (*product)(const Int8ProductJob&, const Part&) noexcept;
  void (*depthwise)(const Int8DepthwiseJob&, const Part&) noexcept;
  /// Output rows [first, last).
  void (*max_pool)(const Int8PoolJob&, std::int64_t first, std::int64_t last) noexcept;
  /// Rows [first, last).
  void (*copy_padded)(const Int8PaddedCopy&, std::int64_t first, std::int64_t last) noexcept;
  /// `product` with weights of any magnitude.
  void (*wide_product)(const Int8ProductJob&, const Part&) noexcept;
  void (*finish_sums)(const SumsJob&) noexcept;
};

/// Bytes that the kernel may read behind an image.
inline constexpr std::int64_t int8_overread = 64;
/// Taps of a depthwise convolution whose sums f32 holds exactly.
inline constexpr std::int64_t max_int8_taps = 512;

/// Those of the active instruction set.
Int8Kernels int8_kernels() noexcept;

namespace portable {
extern const Int8Kernels int8;
}
namespace avx2 {
extern const Int8Kernels int8;
}
namespace avx_vnni {
extern const Int8Kernels int8;
}
namespace avx512 {
extern const Int8Kernels int8;
}
namespace avx512_vnni {
extern const Int8Kernels int8;
}
namespace amx {
void int8_product(const Int8ProductJob& job, const Part& part) noexcept;
}

}  // namespace tenon::cpu
