#include "arrays.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testkit {

bool same_bytes(const HostBuffer& a, const HostBuffer& b) {
  return a.shape() == b.shape() &&
         (a.shape().bytes() == 0 ||
          std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.shape().bytes())) == 0);
}

HostBuffer copy_of(const HostBuffer& array) {
  HostBuffer copy = HostBuffer::uninitialized(array.shape());
  copy_elements(array.view(), copy.view());
  return copy;
}

HostBuffer random_array(const Shape& shape, std::mt19937_64& engine, double low, double high) {
  HostBuffer array = HostBuffer::uninitialized(shape);
  std::uniform_real_distribution<double> value(low, high);
  const std::size_t size = static_cast<std::size_t>(block_bytes(shape.dtype()));
  std::byte* at = array.view().data;
  for (std::int64_t i = 0; i < shape.elements(); ++i, at += size) {
    const double drawn = value(engine);
    store_double(shape.dtype(), at, is_floating(shape.dtype()) ? drawn : std::floor(drawn));
  }
  return array;
}

std::optional<std::string> difference(const HostBuffer& got, const HostBuffer& want,
                                      double tolerance) {
  if (!(got.shape() == want.shape())) {
    return fmt::format("{} instead of {}", to_string(got.shape()), to_string(want.shape()));
  }
  std::optional<std::string> worst;
  double worst_error = 0;
  std::int64_t wrong = 0;
  for_each_index(want.shape(), [&](std::span<const std::int64_t> index) {
    const double g = load_as_double(got.shape().dtype(), got.view().at(index));
    const double w = load_as_double(want.shape().dtype(), want.view().at(index));
    if (g == w || (std::isnan(g) && std::isnan(w))) return;
    const double error = std::abs(g - w) / std::max(1.0, std::abs(w));
    if (error <= tolerance) return;
    ++wrong;
    if (worst && !(error > worst_error)) return;
    worst_error = error;
    worst = fmt::format("[{}] is {}, reference() says {}", fmt::join(index, ", "), g, w);
  });
  if (!worst) return std::nullopt;
  return fmt::format("{} of {} elements are wrong, the worst: {}", wrong, want.shape().elements(),
                     *worst);
}

}  // namespace tenon::testkit
