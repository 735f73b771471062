#pragma once

#include "../cpu_features.hpp"
#include "elementwise.hpp"
#include "typed.hpp"

#include <cstdint>

/// The functions of elementwise.hpp and typed.hpp as the files compiled for one instruction set
/// provide them. Those files see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

struct ElementwiseKernels {
  void (*unary)(Unary, const float* x, float* y, std::int64_t count, UnaryParameters) noexcept;
  void (*binary)(Binary, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                 float* y, std::int64_t count) noexcept;
  void (*gated)(Unary, const float* gate, const float* up, float* y, std::int64_t count) noexcept;
  void (*rms_norm_row)(const float* x, const float* weight, float eps, float* y,
                       std::int64_t count) noexcept;
  void (*layer_norm_row)(const float* x, const float* weight, const float* bias, float eps,
                         float* y, std::int64_t count) noexcept;
  void (*softmax_row)(const float* x, float* y, std::int64_t count) noexcept;
  double (*sum_row)(const float* x, std::int64_t count) noexcept;
  float (*max_row)(const float* x, std::int64_t count) noexcept;
  float (*min_row)(const float* x, std::int64_t count) noexcept;
  void (*rotate_row)(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
                     bool interleaved, float* y, std::int64_t size) noexcept;
  void (*arithmetic)(Compute, Arithmetic, const void* a, std::int64_t a_step, const void* b,
                     std::int64_t b_step, void* y, std::int64_t count) noexcept;
  void (*compare)(Compute, Comparison, const void* a, std::int64_t a_step, const void* b,
                  std::int64_t b_step, std::uint8_t* y, std::int64_t count) noexcept;
  void (*choose)(std::int64_t unit, const std::uint8_t* c, std::int64_t c_step, const void* a,
                 std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
                 std::int64_t count) noexcept;
  void (*accumulate)(Compute, Gathering, const void* x, std::int64_t count, void* sums,
                     std::int64_t width) noexcept;
  void (*accumulate_rows)(Compute, Gathering, const void* x, std::int64_t count, std::int64_t rows,
                          std::int64_t step, void* sums) noexcept;
  void (*log_softmax_row)(const float* x, float* y, std::int64_t count) noexcept;
  /// Null where the instruction set has no conversion of its own.
  void (*f16_to_f32)(const std::uint16_t* x, float* y, std::int64_t count) noexcept;
  void (*f32_to_f16)(const float* x, std::uint16_t* y, std::int64_t count) noexcept;
  void (*bf16_to_f32)(const std::uint16_t* x, float* y, std::int64_t count) noexcept;
  void (*f32_to_bf16)(const float* x, std::uint16_t* y, std::int64_t count) noexcept;
  UnaryRowsKernel unary_rows;
  void (*quantize_codes)(const QuantizeCall&, std::uint8_t* y, std::int64_t count) noexcept;
  void (*dequantize_codes)(const DequantizeCall&, float* y, std::int64_t count) noexcept;
  void (*softmax_columns)(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept;
  void (*log_softmax_columns)(const Columns& x, void* y, std::int64_t y_step,
                              float* powers) noexcept;
  void (*accumulate_columns)(Compute, Gathering, const void* x, std::int64_t columns,
                             std::int64_t rows, std::int64_t step, void* sums) noexcept;
  void (*fold_rows)(Compute, Gathering, const void* x, std::int64_t step, std::int64_t rows,
                    std::int64_t count, void* sums) noexcept;
  void (*find_places)(Compute, bool greatest, const void* x, std::int64_t columns,
                      std::int64_t rows, std::int64_t step, std::int64_t* places) noexcept;
  void (*log_gamma)(const float* x, float* y, std::int64_t count) noexcept;
  void (*digamma)(const float* x, float* y, std::int64_t count) noexcept;
  void (*exp_f64)(const double* x, double shift, double* y, std::int64_t count) noexcept;
  void (*round_to_odd)(const double* x, float* y, std::int64_t count) noexcept;
};

namespace portable {
extern const ElementwiseKernels elementwise;
}
namespace avx2 {
extern const ElementwiseKernels elementwise;
}
namespace avx512 {
extern const ElementwiseKernels elementwise;
}

/// Those of the active instruction set.
const ElementwiseKernels& elementwise_kernels() noexcept;

}  // namespace tenon::cpu
