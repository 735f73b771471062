#include "filter.hpp"

#include "winograd.hpp"

#include <array>

namespace tenon::cpu::winograd {
namespace {

using Taps = std::array<double, 3>;
using Numbers = std::array<double, side>;

/// G g along one axis.
constexpr Numbers evaluate(const Taps& g) {
  constexpr double a = point_a, b = point_b, a2 = a * a, b2 = b * b;
  const auto both = [&](double p, double scale, double& plus, double& minus) {
    const double even = (g[0] + p * p * g[2]) / scale, odd = p * g[1] / scale;
    plus = even + odd;
    minus = even - odd;
  };
  Numbers u{};
  u[0] = g[0] / (a2 * b2);
  both(a, 2 * a2 * (a2 - b2), u[1], u[2]);
  both(b, 2 * b2 * (b2 - a2), u[3], u[4]);
  u[5] = g[2];
  return u;
}

}  // namespace

void transform_filter(const FilterTaps& taps, float* to, std::int64_t step) noexcept {
  std::array<Numbers, 3> rows;
  for (std::size_t r = 0; r < 3; ++r) {
    Taps g;
    for (std::size_t s = 0; s < 3; ++s) {
      const auto at =
          static_cast<std::int64_t>(r) * taps.row + static_cast<std::int64_t>(s) * taps.column;
      g[s] = *reinterpret_cast<const float*>(taps.first + at);
    }
    rows[r] = evaluate(g);
  }
  for (std::size_t j = 0; j < side; ++j) {
    const Numbers u = evaluate({rows[0][j], rows[1][j], rows[2][j]});
    for (std::size_t i = 0; i < side; ++i) {
      to[static_cast<std::int64_t>(i * side + j) * step] = static_cast<float>(u[i]);
    }
  }
}

}  // namespace tenon::cpu::winograd
