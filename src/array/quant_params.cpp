#include <tenon/error.hpp>
#include <tenon/quant_params.hpp>

#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace tenon {
namespace {

void check_factors(std::string_view name, const std::vector<float>& factors, char axis,
                   std::int64_t channels) {
  const auto count = static_cast<std::int64_t>(factors.size());
  if (count != 1 && count != channels) {
    throw Error(
        Errc::bad_argument, "QuantParams",
        fmt::format("{} factors in {} for {} channels of axis {}", count, name, channels, axis));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float factor = factors[static_cast<std::size_t>(i)];
    if (!std::isfinite(factor) || factor <= 0) {
      throw Error(
          Errc::bad_argument, "QuantParams",
          fmt::format("{} of channel {} is {}, expected a positive number", name, i, factor));
    }
  }
}

std::string text_of(std::string_view name, const std::vector<float>& factors, char axis) {
  if (factors.size() == 1) return fmt::format("{} {}", name, factors[0]);
  return fmt::format("{} of {} channels {}", name, factors.size(), axis);
}

}  // namespace

void QuantParams::check(std::int64_t channels) const {
  check_factors("scale", scale, axis, channels);
  check_factors("normratio", normratio, axis, channels);
}

std::string to_string(const QuantParams& params) {
  std::string text = text_of("scale", params.scale, params.axis);
  if (params.normratio.size() > 1 || params.normratio[0] != 1) {
    text += ", " + text_of("normratio", params.normratio, params.axis);
  }
  return text;
}

}  // namespace tenon
