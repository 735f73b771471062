#pragma once

#include "../convolution/convolution_kernels.hpp"
#include "../cpu_features.hpp"

#include <cstdint>

/// Rows of images of f32 as the files compiled for one instruction set provide them. Those files
/// see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

/// What each element of a row is mixed from: y[i] = sum over k < taps of
/// weights[k * count + i] * x[inputs[k * count + i]].
struct RowMix {
  const std::int32_t* inputs;
  const float* weights;  ///< null where there is one tap, and its weight is 1
  std::int64_t taps, count;
};

/// Rows of windows whose elements add up in one row of a result: element j of tap s of row k, at
/// rows[k][s * tap_step + j], belongs at j * stride + s * dilation - before, where that is inside.
struct FoldedRows {
  static constexpr std::int64_t most = 16;
  const float* rows[most];
  std::int64_t count, tap_step;
};

struct VisionKernels {
  /// A row of across.inputs elements: `start`, plus what arrives there.
  void (*fold_rows)(const FoldedRows& from, const WindowAxis& across, float start,
                    float* to) noexcept;
  /// Adds what arrives there from one row, to a row that has a value.
  void (*fold_row)(const float* from, std::int64_t tap_step, const WindowAxis& across,
                   float* to) noexcept;
  /// Where x[j * step] exceeds peak[j] or is NaN, peak[j] and places[j] become x[j * step] and
  /// place + j * step.
  void (*take_greater)(const float* x, std::int64_t step, std::int32_t place, std::int64_t count,
                       float* peak, std::int32_t* places) noexcept;
  void (*mix_row)(const float* x, const RowMix& mix, float* y) noexcept;
  /// The other way round: x[inputs[..]] += weights[..] * y[i].
  void (*unmix_row)(const float* y, const RowMix& mix, float* x) noexcept;
  /// y = the sum of weights[k] * rows[k], k < taps (1 to 16).
  void (*mix_rows)(const float* const* rows, const float* weights, std::int64_t taps, float* y,
                   std::int64_t count) noexcept;
  /// y += factor * x.
  void (*add_scaled)(const float* x, float factor, float* y, std::int64_t count) noexcept;
  /// y = (x - centre) * factor + shift; y may be x.
  void (*scale_row)(const float* x, float centre, float factor, float shift, float* y,
                    std::int64_t count) noexcept;
  /// sums[0] += the sum of x - centre, sums[1] += that of (x - centre)^2.
  void (*add_moments)(const float* x, float centre, std::int64_t count, double* sums) noexcept;
};

/// Those of the active instruction set.
const VisionKernels& vision_kernels() noexcept;

namespace portable {
extern const VisionKernels vision;
}
namespace avx2 {
extern const VisionKernels vision;
}
namespace avx512 {
extern const VisionKernels vision;
}

}  // namespace tenon::cpu
