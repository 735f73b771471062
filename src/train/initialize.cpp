#include <tenon/train/initialize.hpp>

#include <cmath>
#include <numbers>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::train {
namespace {

/// Uniform in [0, 1), of 53 bits: the same on every machine, which std's distributions are not.
double unit(std::mt19937_64& engine) { return static_cast<double>(engine() >> 11) * 0x1.0p-53; }

}  // namespace

Initial he_uniform(std::string_view path, const Shape& shape) {
  const std::string_view last = path.substr(path.rfind('.') + 1);
  const bool is_bias = last.starts_with("bias") || last.ends_with("_bias");
  if (is_bias || last == "running_mean") return {Initial::Kind::constant, 0};
  if (shape.rank() < 2) return {Initial::Kind::constant, 1};
  double inputs = 1;
  for (int i = 1; i < shape.rank(); ++i) inputs *= static_cast<double>(shape[i]);
  return {Initial::Kind::uniform, std::sqrt(6 / inputs)};
}

HostBuffer initial_values(std::string_view path, const Shape& shape, const Initial& initial,
                          std::uint64_t seed) {
  HostBuffer array = HostBuffer::uninitialized(shape.with_dtype(f32));
  std::mt19937_64 engine(XXH3_64bits_withSeed(path.data(), path.size(), seed));
  for (float& element : array.mutable_values<float>()) {
    double value = initial.value;
    if (initial.kind == Initial::Kind::uniform) {
      value *= 2 * unit(engine) - 1;
    } else if (initial.kind == Initial::Kind::normal) {  // Box and Muller (1958)
      const double radius = std::sqrt(-2 * std::log(1 - unit(engine)));
      value *= radius * std::cos(2 * std::numbers::pi * unit(engine));
    }
    element = static_cast<float>(value);
  }
  return array.to(shape.dtype());
}

}  // namespace tenon::train
