// Every f16 number through each function of half_unary.hpp, on every instruction set.
#include "backends/cpu/elementwise/half_unary.hpp"

#include "support.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::cpu;

namespace {

struct HalfFunction {
  Unary op;
  const char* name;
  double (*exact)(double);
};

const HalfFunction half_functions[] = {
    {Unary::exp, "exp", [](double x) { return std::exp(x); }},
    {Unary::tanh, "tanh", [](double x) { return std::tanh(x); }},
    {Unary::sigmoid, "sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {Unary::silu, "silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {Unary::gelu, "gelu", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {Unary::gelu_tanh, "gelu_tanh",
     [](double x) {
       return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
};

/// Distance in units of the last place of f16 at `exact`; 0 where both are past its range.
double ulps_off(std::uint16_t got, double exact) {
  const auto value = static_cast<double>(to_float(half{got}));
  const double size = std::fabs(exact);
  if (std::isinf(value)) return size >= 65503 && (value > 0) == (exact > 0) ? 0 : 1e9;
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  return std::fabs(value - exact) / std::ldexp(1.0, exponent - 10);
}

}  // namespace

TEST_CASE("half_functions of f16 are within 0.75 ulp for every number", "[elementwise][avx2]") {
  std::vector<std::uint16_t> x(65536), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  const Isa before = active_isa();
  int levels = 0;
  for (const Isa isa : test::supported_isas()) {
    set_active_isa(isa);
    for (const HalfFunction& f : half_functions) {
      const HalfUnaryKernel kernel = half_unary_kernel(f.op);
      if (kernel == nullptr) continue;
      ++levels;
      CAPTURE(name(isa), f.name);
      kernel(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      double worst = 0;
      float at = 0;
      int wrong_nan = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float value = to_float(half{x[i]});
        const double exact = f.exact(static_cast<double>(value));
        if (std::isnan(exact) || std::isnan(to_float(half{y[i]}))) {
          wrong_nan += std::isnan(exact) != std::isnan(to_float(half{y[i]}));
          continue;
        }
        const double off = ulps_off(y[i], exact);
        if (off > worst) at = value;
        worst = std::max(worst, off);
      }
      CAPTURE(at);
      CHECK(worst <= 0.75);
      CHECK(wrong_nan == 0);
      // The rest of an array, and in place.
      for (const std::size_t count : {0u, 1u, 7u, 17u, 31u}) {
        std::vector<std::uint16_t> some(x.begin() + 16000, x.begin() + 16033);
        kernel(some.data(), some.data(), static_cast<std::int64_t>(count));
        CHECK(std::equal(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count),
                         y.begin() + 16000));
        CHECK(std::equal(some.begin() + static_cast<std::ptrdiff_t>(count), some.end(),
                         x.begin() + 16000 + static_cast<std::ptrdiff_t>(count)));
      }
    }
  }
  set_active_isa(before);
  if (levels == 0) WARN("SKIPPED: no level of this machine has half_functions of f16");
}
