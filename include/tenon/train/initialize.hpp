// Parameters before the first step.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/fields.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tenon::train {

/// How initialize() fills a parameter.
struct Initial {
  enum class Kind : std::uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, half the width of the interval around 0, or the deviation
};

/// The default: biases ("bias", "bias_ih", "up_bias") and "running_mean" 0; other vectors, such as
/// weights of norms, 1; weights [out, in, ...] uniform
/// within sqrt(6 / (in * ...)) (He et al., arXiv:1502.01852).
Initial he_uniform(std::string_view path, const Shape& shape);

/// One parameter, filled; the same for the same seed and path on every machine.
HostBuffer initial_values(std::string_view path, const Shape& shape, const Initial& initial,
                          std::uint64_t seed);

/// Parameters of these shapes for a first step.
template <class Shapes>
rebind_t<Shapes, Buffer> initialize(
    const Shapes& shapes, std::uint64_t seed, const DevicePtr& device,
    const std::function<Initial(std::string_view path, const Shape& shape)>& rule = he_uniform) {
  return map_fields<Buffer>(shapes, [&](const std::string& path, const Shape& shape) {
    return initial_values(path, shape, rule(path, shape), seed).to_device(device);
  });
}

}  // namespace tenon::train
