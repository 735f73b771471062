// The portable kernels: plain loops, in the order that the faster ones keep.
#include "elementwise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <tenon/dtype.hpp>

namespace tenon::cpu {
namespace {

constexpr std::array<std::string_view, 15> unary_names{"neg",  "abs",  "square", "sqrt",    "rsqrt",
                                                       "reciprocal", "exp", "log", "tanh", "erf",
                                                       "sigmoid", "relu", "silu", "gelu", "gelu_tanh"};
constexpr std::array<std::string_view, 6> binary_names{"add", "sub", "mul", "div", "minimum", "maximum"};

float apply(Unary op, float x) noexcept {
  switch (op) {
    case Unary::neg: return -x;
    case Unary::abs: return std::fabs(x);
    case Unary::square: return x * x;
    case Unary::sqrt: return std::sqrt(x);
    case Unary::rsqrt: return 1.0f / std::sqrt(x);
    case Unary::reciprocal: return 1.0f / x;
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::tanh: return std::tanh(x);
    case Unary::erf: return std::erf(x);
    case Unary::sigmoid: return 1.0f / (1.0f + std::exp(-x));
    case Unary::relu: return x > 0 ? x : (x == x ? 0.0f : x);
    case Unary::silu: return x / (1.0f + std::exp(-x));
    case Unary::gelu: return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case Unary::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  }
  return x;
}

float apply(Binary op, float a, float b) noexcept {
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::div: return a / b;
    case Binary::minimum: return a < b || a != a ? a : b;
    case Binary::maximum: return a > b || a != a ? a : b;
  }
  return a;
}

}  // namespace

std::optional<Unary> find_unary(std::string_view op) noexcept {
  const auto found = std::ranges::find(unary_names, op);
  if (found == unary_names.end()) return std::nullopt;
  return static_cast<Unary>(found - unary_names.begin());
}

std::optional<Binary> find_binary(std::string_view op) noexcept {
  const auto found = std::ranges::find(binary_names, op);
  if (found == binary_names.end()) return std::nullopt;
  return static_cast<Binary>(found - binary_names.begin());
}

void unary(Unary op, const float* x, float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = apply(op, x[i]);
}

void binary(Binary op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, float* y,
            std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = apply(op, a[i * a_step], b[i * b_step]);
}

void gated(Unary activation, const float* gate, const float* up, float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = apply(activation, gate[i]) * up[i];
}

void rms_norm_row(const float* x, const float* weight, float eps, float* y, std::int64_t count) noexcept {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(count) + static_cast<double>(eps)));
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * scale * (weight != nullptr ? weight[i] : 1.0f);
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y,
                    std::int64_t count) noexcept {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  }
  const auto scale = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(count) + static_cast<double>(eps)));
  const auto centre = static_cast<float>(mean);
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = (x[i] - centre) * scale * (weight != nullptr ? weight[i] : 1.0f) + (bias != nullptr ? bias[i] : 0.0f);
  }
}

void softmax_row(const float* x, float* y, std::int64_t count) noexcept {
  const float peak = fold_row(Fold::max, x, count);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = std::exp(x[i] - peak);
    sum += y[i];
  }
  const float scale = 1.0f / sum;
  for (std::int64_t i = 0; i < count; ++i) y[i] *= scale;
}

float fold_row(Fold op, const float* x, std::int64_t count) noexcept {
  if (op == Fold::sum || op == Fold::mean) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
    return static_cast<float>(op == Fold::sum ? sum : sum / static_cast<double>(count));
  }
  const Binary pick = op == Fold::max ? Binary::maximum : Binary::minimum;
  float best = op == Fold::max ? -std::numeric_limits<float>::infinity()
                               : std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i) best = apply(pick, x[i], best);
  return best;
}

void rotate_row(const float* x, const float* cosines, const float* sines, std::int64_t pairs, bool interleaved,
                float* y, std::int64_t size) noexcept {
  const std::int64_t apart = interleaved ? 1 : pairs;
  const std::int64_t step = interleaved ? 2 : 1;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float a = x[i * step];
    const float b = x[i * step + apart];
    y[i * step] = a * cosines[i] - b * sines[i];
    y[i * step + apart] = b * cosines[i] + a * sines[i];
  }
  if (x != y) std::copy(x + 2 * pairs, x + size, y + 2 * pairs);
}

void f16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_float(half{x[i]});
}
void f32_to_f16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_half(x[i]).bits;
}
void bf16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_float(bfloat16{x[i]});
}
void f32_to_bf16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = to_bfloat16(x[i]).bits;
}

}  // namespace tenon::cpu
