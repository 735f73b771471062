// Kernels on rows of f32, chosen by instruction set at run time. Results do not depend on the
// number of threads, since each row or element is computed whole by one call.
#pragma once

#include <tenon/dtype.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon::cpu {

/// Named like the ops.
enum class Unary : std::uint8_t {
#define CPU_UNARY(id, Struct) id,
#include "unary.def"
#undef CPU_UNARY
  fast_gelu,  ///< no op: gelu to an absolute error of 2^-22 max(1, |x|)
};
/// Attributes of those that have some: of leaky_relu and elu the factor below 0 (p), of clamp the
/// least and the greatest result (p, q).
struct UnaryParameters {
  float p = 0, q = 0;
};
enum class Binary : std::uint8_t {
  add,
  sub,
  mul,
  div,
  minimum,
  maximum,
  pow,
  remainder,
  fmod,
  atan2,
  hypot
};

std::optional<Unary> find_unary(std::string_view op) noexcept;

/// y[i] = f(x[i]); y may be x.
void unary(Unary op, const float* x, float* y, std::int64_t count,
           UnaryParameters parameters = {}) noexcept;

/// y[r * stride + i] = f(y[r * stride + i]) for i < columns of each row r.
using UnaryRowsKernel = void (*)(Unary op, float* y, std::int64_t stride, std::int64_t rows,
                                 std::int64_t columns, UnaryParameters parameters) noexcept;
/// The one of the active instruction set.
UnaryRowsKernel unary_rows_kernel() noexcept;

/// y[i] = f(a[i * a_step], b[i * b_step]); steps 0 or 1; y may be a or b.
void binary(Binary op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
            float* y, std::int64_t count) noexcept;

/// y[i] = f(gate[i]) * up[i]; f one of silu, gelu, gelu_tanh, relu, sigmoid; y may be either input.
void gated(Unary activation, const float* gate, const float* up, float* y,
           std::int64_t count) noexcept;

/// One row: y = x / sqrt(mean(x^2) + eps) * weight; weight may be null; y may be x.
void rms_norm_row(const float* x, const float* weight, float eps, float* y,
                  std::int64_t count) noexcept;
/// One row: y = (x - mean) / sqrt(variance + eps) * weight + bias; weight and bias may be null.
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y,
                    std::int64_t count) noexcept;
/// Adjacent columns of a matrix of f32, f16 or bf16, whose rows are `step` bytes apart; columns <= column_block.
struct Columns {
  DType dtype;
  const void* from;
  std::int64_t step;
  std::int64_t rows, columns;
};
inline constexpr std::int64_t column_block = 64;

/// Softmax, or its logarithm, of each column, with the bits of the functions of one row of f32, rounded; y, of rows y_step
/// bytes apart, may be x.from, with the same step. `powers`: room for rows * column_block numbers; not used for f32.
void softmax_columns(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept;
void log_softmax_columns(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept;

/// y[i] = e^(x[i] - shift), to 1 ulp; y may be x.
void exp_f64(const double* x, double shift, double* y, std::int64_t count) noexcept;

/// One row: softmax; y may be x.
void softmax_row(const float* x, float* y, std::int64_t count) noexcept;
/// One row: x - max - log(sum(exp(x - max))); y may be x.
void log_softmax_row(const float* x, float* y, std::int64_t count) noexcept;

/// One row to one number: the sum in f64, and the extremes, which a NaN makes NaN.
double sum_row(const float* x, std::int64_t count) noexcept;
float max_row(const float* x, std::int64_t count) noexcept;
float min_row(const float* x, std::int64_t count) noexcept;

/// One head's rotation: pairs (i, i + pairs), or (2i, 2i + 1) when interleaved, with cosines and
/// sines per pair; elements from 2 * pairs to `size` pass through. y may be x.
void rotate_row(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
                bool interleaved, float* y, std::int64_t size) noexcept;

/// Conversions round to nearest even.
void f16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept;
void f32_to_f16(const float* x, std::uint16_t* y, std::int64_t count) noexcept;
void bf16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept;
void f32_to_bf16(const float* x, std::uint16_t* y, std::int64_t count) noexcept;

}  // namespace tenon::cpu
