#include "filter.hpp"

#include "winograd.hpp"

#include <array>
#include <cstddef>

namespace tenon::cpu::winograd {
namespace {

constexpr std::size_t lanes = 16;  // outputs of a panel
using Lanes = std::array<double, lanes>;

/// G g along one axis.
void evaluate(const Lanes& g0, const Lanes& g1, const Lanes& g2, std::array<Lanes, side>& u) {
  constexpr double a = point_a, b = point_b, a2 = a * a, b2 = b * b;
  constexpr double of_zero = 1 / (a2 * b2);
  const auto both = [&](double p, double scale, Lanes& plus, Lanes& minus) {
    const double even_0 = 1 / scale, even_2 = p * p / scale, odd_1 = p / scale;
    for (std::size_t l = 0; l < lanes; ++l) {
      const double even = even_0 * g0[l] + even_2 * g2[l], odd = odd_1 * g1[l];
      plus[l] = even + odd;
      minus[l] = even - odd;
    }
  };
  for (std::size_t l = 0; l < lanes; ++l) u[0][l] = of_zero * g0[l];
  both(a, 2 * a2 * (a2 - b2), u[1], u[2]);
  both(b, 2 * b2 * (b2 - a2), u[3], u[4]);
  u[5] = g2;
}

}  // namespace

void transform_filters(const FilterTaps& taps, std::int64_t count, float* to,
                       std::int64_t step) noexcept {
  std::array<std::array<Lanes, side>, 3> rows;
  for (std::size_t r = 0; r < 3; ++r) {
    std::array<Lanes, 3> g{};
    for (std::size_t s = 0; s < 3; ++s) {
      const std::byte* from = taps.first + static_cast<std::int64_t>(r) * taps.row +
                              static_cast<std::int64_t>(s) * taps.column;
      for (std::int64_t o = 0; o < count; ++o, from += taps.output) {
        g[s][static_cast<std::size_t>(o)] = *reinterpret_cast<const float*>(from);
      }
    }
    evaluate(g[0], g[1], g[2], rows[r]);
  }
  for (std::size_t j = 0; j < side; ++j) {
    std::array<Lanes, side> u;
    evaluate(rows[0][j], rows[1][j], rows[2][j], u);
    for (std::size_t i = 0; i < side; ++i) {
      float* const number = to + static_cast<std::int64_t>(i * side + j) * step;
      for (std::size_t l = 0; l < lanes; ++l) number[l] = static_cast<float>(u[i][l]);
    }
  }
}

}  // namespace tenon::cpu::winograd
