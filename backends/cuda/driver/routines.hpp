// What NVIDIA's libraries compute for a plan: plain structs, filled in as kernels' arguments are.
#pragma once

#include "kernels/address.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cuda {

enum class Routine : std::uint8_t { none, gemm, convolution };
inline constexpr std::size_t routine_count = 3;

/// What every address of a call is a multiple of.
inline constexpr Address routine_alignment = 16;

/// y[r, c] = sum_k x[r, k] * w[c, k] (+ bias[c]) (+ residual[r, c]), of dense rows, but that those of
/// y and residual are `y_step` elements apart; with
/// `w_is_turned`, w is [depth, columns]. `batch` such products lie one behind the other, with one w
/// where `w_repeats`. Sums are in f32.
struct GemmCall {
  Address x, w, y, bias, residual;  ///< bias, residual: 0 is none
  Address workspace;
  std::uint64_t workspace_bytes;
  std::int64_t rows, columns, depth, batch, y_step;
  DType dtype;    ///< of x and w: f32, f16 or bf16
  DType y_dtype;  ///< of y, bias and residual: dtype or f32
  bool w_is_turned, w_repeats, has_bias, has_residual;
  bool allows_tf32;  ///< f32 may be rounded to 10 bits of mantissa
};

/// What a call applies to its sums before it stores them.
enum class Activation : std::uint8_t { none, relu, sigmoid, tanh, silu, gelu, gelu_tanh };

/// As Conv2d, of dense images.
struct ConvolutionCall {
  Address x, w, y, bias;  ///< bias: 0 is none
  Address workspace;
  std::uint64_t workspace_bytes;
  std::int64_t x_sizes[4], w_sizes[4], y_sizes[4];
  std::int64_t stride[2], before[2], after[2], dilation[2];
  std::int64_t groups;
  DType dtype;  ///< f32, f16 or bf16
  Activation activation;
  bool has_bias;
  bool allows_tf32;
};

std::size_t args_bytes(Routine routine) noexcept;
const char* name_of(Routine routine) noexcept;

}  // namespace tenon::cuda
