#pragma once

#include <tenon/host_view.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// The arithmetic of int8 networks on the host: scales, multipliers, weights. Bit-identical to the
// device.
namespace tenon::npu {

/// The quantisation step that maps `threshold` to 127; 1 for a threshold of 0.
double int8_step(double threshold) noexcept;

/// round(x / step), ties to even, saturated to [-128, 127]; NaN gives 0.
std::int8_t quantize(float x, float inverse_step) noexcept;

/// The multipliers that a device supports.
enum class Profile : std::uint8_t {
  m15,  ///< m in [1, 32767], s in [1, 47]
  m8,   ///< m in [1, 255], s in [8, 21]
};

/// A fixed-point factor m * 2^-s.
struct Multiplier {
  std::uint16_t m = 1;
  std::uint8_t s = 1;

  double value() const noexcept;
  friend bool operator==(const Multiplier& a, const Multiplier& b) noexcept = default;
};

/// The profile's multiplier that is nearest to `factor` (finite, above 0), with the largest
/// possible m. The relative error is at most 2^-15 (m15) or 2^-8 (m8) unless s is at its limit. A
/// factor below half the smallest multiplier gives the smallest one. Errc::out_of_range, naming
/// `what`, for a factor above the largest multiplier.
Multiplier encode_multiplier(double factor, Profile profile, std::string_view what);

/// ((acc + bias) * m + 2^(s-1)) >> s in 64 bits: round half up. `acc + bias` must fit 32 bits.
constexpr std::int64_t scale_accumulator(std::int64_t acc, std::int64_t bias,
                                         Multiplier by) noexcept {
  return ((acc + bias) * by.m + (std::int64_t{1} << (by.s - 1))) >> by.s;
}

constexpr std::int8_t saturate_int8(std::int64_t value) noexcept {
  return static_cast<std::int8_t>(value < -128 ? -128 : value > 127 ? 127 : value);
}

/// The maximal number of products that are summed in one int32 accumulator without overflow:
/// 131072 * 128 * 127 + bias_limit = 2^31 - 1.
inline constexpr std::int64_t accumulation_limit = 131072;
inline constexpr std::int64_t bias_limit = (std::int64_t{1} << 24) - 1;

/// Weights as int8, with a quantisation step per output channel (axis 0), or one for all.
struct QuantizedWeights {
  std::vector<std::int8_t> values;  ///< row-major as the weights, in [-127, 127]
  std::vector<double> steps;        ///< one per output channel
};

/// Quantises weights: f32 [O, ...], of any strides. `input_steps` has the quantisation step of each
/// input channel (axis 1), or one for all: the weights are multiplied by it first, so that
/// sum real_w * real_x = steps[o] * sum q_w * q_x. Errors, in which `what` names the weights:
/// bad_input for a NaN or an infinity; unsupported_dtype unless f32; shape_mismatch for a wrong
/// number of steps.
QuantizedWeights quantize_weights(const HostView& weights, std::span<const double> input_steps,
                                  bool per_channel, std::string_view what);

}  // namespace tenon::npu
