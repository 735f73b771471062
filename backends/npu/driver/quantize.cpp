#include <tenon/error.hpp>
#include <tenon/npu/quantize.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

struct MultiplierLimits {
  int m_max;
  int s_min;
  int s_max;
};

constexpr MultiplierLimits multiplier_limits(Profile profile) noexcept {
  return profile == Profile::m15 ? MultiplierLimits{32767, 1, 47} : MultiplierLimits{255, 8, 21};
}

}  // namespace

double int8_step(double threshold) noexcept {
  constexpr double smallest = 0x1p-127;  // whose reciprocal f32 still holds
  return threshold > 0 ? std::max(threshold / 127, smallest) : 1.0;
}

std::int8_t quantize(float x, float inverse_step) noexcept {
  const float scaled = x * inverse_step;
  if (std::isnan(scaled)) return 0;
  return static_cast<std::int8_t>(std::nearbyint(std::clamp(scaled, -128.0F, 127.0F)));
}

double Multiplier::value() const noexcept {
  return std::ldexp(static_cast<double>(m), -static_cast<int>(s));
}

Multiplier encode_multiplier(double factor, Profile profile, std::string_view what) {
  const MultiplierLimits limits = multiplier_limits(profile);
  if (!(factor > 0) || !std::isfinite(factor) ||
      factor >= std::ldexp(limits.m_max + 0.5, -limits.s_min)) {
    throw Error(Errc::out_of_range, std::string(what),
                fmt::format("factor {} has no multiplier m 2^-s with m <= {} and {} <= s <= {}",
                            factor, limits.m_max, limits.s_min, limits.s_max));
  }
  for (int s = limits.s_max; s >= limits.s_min; --s) {
    const double m = std::nearbyint(std::ldexp(factor, s));
    if (m > limits.m_max) continue;
    return {static_cast<std::uint16_t>(std::max(m, 1.0)), static_cast<std::uint8_t>(s)};
  }
  throw Error(Errc::internal, "npu::encode_multiplier", "no shift fits");
}

QuantizedWeights quantize_weights(const HostView& weights, std::span<const double> input_steps,
                                  bool per_channel, std::string_view what) {
  const Shape& shape = weights.shape;
  if (shape.dtype() != DType::f32) {
    throw Error(Errc::unsupported_dtype, std::string(what),
                fmt::format("{} is not f32", to_string(shape)));
  }
  if (shape.rank() < 2 ||
      (input_steps.size() != 1 && static_cast<std::int64_t>(input_steps.size()) != shape[1])) {
    throw Error(
        Errc::shape_mismatch, std::string(what),
        fmt::format("{} steps for the input channels of {}", input_steps.size(), to_string(shape)));
  }
  const auto outputs = static_cast<std::size_t>(shape[0]);
  std::vector<double> folded;
  folded.reserve(static_cast<std::size_t>(shape.elements()));
  std::vector<double> largest(outputs, 0.0);
  for_each_index(shape, [&](std::span<const std::int64_t> index) {
    const float real = *reinterpret_cast<const float*>(weights.at(index));
    if (!std::isfinite(real)) {
      throw Error(Errc::bad_input, std::string(what), fmt::format("holds {}", real));
    }
    const double step =
        input_steps.size() == 1 ? input_steps[0] : input_steps[static_cast<std::size_t>(index[1])];
    folded.push_back(real * step);
    double& most = largest[static_cast<std::size_t>(index[0])];
    most = std::max(most, std::abs(folded.back()));
  });
  if (!per_channel && outputs > 0) {
    largest.assign(outputs, *std::max_element(largest.begin(), largest.end()));
  }
  QuantizedWeights result;
  result.steps.reserve(outputs);
  for (const double most : largest) result.steps.push_back(int8_step(most));
  result.values.reserve(folded.size());
  const std::size_t row = outputs == 0 ? 0 : folded.size() / outputs;
  for (std::size_t i = 0; i < folded.size(); ++i) {
    const double q = std::nearbyint(folded[i] / result.steps[i / row]);
    result.values.push_back(static_cast<std::int8_t>(std::clamp(q, -127.0, 127.0)));
  }
  return result;
}

}  // namespace tenon::npu
