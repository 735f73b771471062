#include "elementwise.hpp"

#include "../built_kernels.hpp"
#include "elementwise_kernels.hpp"
#include "gamma.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <iterator>

namespace tenon::cpu {
namespace {

/// In the order of Unary, but for fast_gelu, which no op is called.
constexpr std::string_view unary_names[]{
#define CPU_UNARY(id, Struct) #id,
#include "unary.def"
#undef CPU_UNARY
};

/// In the order of Isa: dot products of integers and tiles gain nothing here.
constexpr const ElementwiseKernels* elementwise_by_isa[isa_count] = {
    &portable::elementwise,      &avx2::elementwise,          &avx2::elementwise,
    &built::avx512::elementwise, &built::avx512::elementwise, &built::avx512::elementwise};

}  // namespace

const ElementwiseKernels& elementwise_kernels() noexcept {
  return *elementwise_by_isa[static_cast<int>(active_isa())];
}

std::optional<Unary> find_unary(std::string_view op) noexcept {
  const auto found = std::ranges::find(unary_names, op);
  if (found == std::end(unary_names)) return std::nullopt;
  return static_cast<Unary>(found - std::begin(unary_names));
}

void unary(Unary op, const float* x, float* y, std::int64_t count,
           UnaryParameters parameters) noexcept {
  elementwise_kernels().unary(op, x, y, count, parameters);
}

void log_gamma(const float* x, float* y, std::int64_t count) noexcept {
  elementwise_kernels().log_gamma(x, y, count);
}

void digamma(const float* x, float* y, std::int64_t count) noexcept {
  elementwise_kernels().digamma(x, y, count);
}

UnaryRowsKernel unary_rows_kernel() noexcept { return elementwise_kernels().unary_rows; }

void binary(Binary op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
            float* y, std::int64_t count) noexcept {
  elementwise_kernels().binary(op, a, a_step, b, b_step, y, count);
}

void gated(Unary activation, const float* gate, const float* up, float* y,
           std::int64_t count) noexcept {
  elementwise_kernels().gated(activation, gate, up, y, count);
}

void rms_norm_row(const float* x, const float* weight, float eps, float* y,
                  std::int64_t count) noexcept {
  elementwise_kernels().rms_norm_row(x, weight, eps, y, count);
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y,
                    std::int64_t count) noexcept {
  elementwise_kernels().layer_norm_row(x, weight, bias, eps, y, count);
}

void softmax_row(const float* x, float* y, std::int64_t count) noexcept {
  elementwise_kernels().softmax_row(x, y, count);
}

void softmax_columns(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept {
  elementwise_kernels().softmax_columns(x, y, y_step, powers);
}

void log_softmax_columns(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept {
  elementwise_kernels().log_softmax_columns(x, y, y_step, powers);
}

void log_softmax_row(const float* x, float* y, std::int64_t count) noexcept {
  elementwise_kernels().log_softmax_row(x, y, count);
}

double sum_row(const float* x, std::int64_t count) noexcept {
  return elementwise_kernels().sum_row(x, count);
}

float max_row(const float* x, std::int64_t count) noexcept {
  return elementwise_kernels().max_row(x, count);
}

float min_row(const float* x, std::int64_t count) noexcept {
  return elementwise_kernels().min_row(x, count);
}

void rotate_row(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
                bool interleaved, float* y, std::int64_t size) noexcept {
  elementwise_kernels().rotate_row(x, cosines, sines, pairs, interleaved, y, size);
}

void f16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  if (const auto convert = elementwise_kernels().f16_to_f32) return convert(x, y, count);
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_float(half{x[i]});
}

void f32_to_f16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  if (const auto convert = elementwise_kernels().f32_to_f16) return convert(x, y, count);
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_half(x[i]).bits;
}

void bf16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  elementwise_kernels().bf16_to_f32(x, y, count);
}

void f32_to_bf16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  elementwise_kernels().f32_to_bf16(x, y, count);
}

void exp_f64(const double* x, double shift, double* y, std::int64_t count) noexcept {
  elementwise_kernels().exp_f64(x, shift, y, count);
}

}  // namespace tenon::cpu
