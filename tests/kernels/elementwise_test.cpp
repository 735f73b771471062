// Every function of elementwise.hpp on every instruction set, against the exact function in f64.
#include "backends/cpu/elementwise/elementwise.hpp"

#include "backends/cpu/elementwise/typed.hpp"
#include "support.hpp"
#include "support/rounds.hpp"

#include <tenon/dtype.hpp>
#include <tenon/host_view.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::cpu;
using tenon::test::infinity;

namespace {

/// Sets a level for the length of a scope.
class Level {
 public:
  explicit Level(Isa isa) : before_(active_isa()) { set_active_isa(isa); }
  ~Level() { set_active_isa(before_); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Isa before_;
};

template <class Body>
void on_every_level(Body body) {
  for (const Isa isa : test::supported_isas()) {
    INFO("on " << name(isa));
    const Level level(isa);
    body();
  }
}

struct MathFunction {
  Unary op;
  const char* name;
  double (*exact)(double);
  double ulps;
  float floor = 0x1p-126f;  // below it, errors are in ulp of this number
};

double gelu_tanh_exact(double x) {
  const double u = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

double gelu_derivative_exact(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
         x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
}
double mish_exact(double x) {
  return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
}
double hard_sigmoid_exact(double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; }

/// By bisection of erf, and of erfc in the tails.
double erfinv_exact(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(static_cast<double>(infinity), x) : std::nan("");
  if (a < 1e-9) return x * 0.88622692545275801;  // sqrt(pi) / 2; the next term is 1e-18 of it
  double low = 0, high = 8;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    const bool below = a < 0.5 ? std::erf(middle) < a : std::erfc(middle) > 1 - a;
    (below ? low : high) = middle;
  }
  return std::copysign(low, x);
}

// The bounds that math_body.hpp states; half an ulp for what IEEE 754 rounds correctly.
const MathFunction functions[] = {
    {Unary::neg, "neg", [](double x) { return -x; }, 0},
    {Unary::abs, "abs", [](double x) { return std::fabs(x); }, 0},
    {Unary::square, "square", [](double x) { return x * x; }, 0.5},
    {Unary::sqrt, "sqrt", [](double x) { return std::sqrt(x); }, 0.5},
    {Unary::rsqrt, "rsqrt", [](double x) { return 1 / std::sqrt(x); }, 1.5},
    {Unary::reciprocal, "reciprocal", [](double x) { return 1 / x; }, 0.5},
    {Unary::exp, "exp", [](double x) { return std::exp(x); }, 2},
    {Unary::log, "log", [](double x) { return std::log(x); }, 2},
    {Unary::tanh, "tanh", [](double x) { return std::tanh(x); }, 2},
    {Unary::erf, "erf", [](double x) { return std::erf(x); }, 3},
    {Unary::sigmoid, "sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, 3},
    {Unary::relu, "relu", [](double x) { return x > 0 ? x : 0; }, 0},
    {Unary::silu, "silu", [](double x) { return x / (1 + std::exp(-x)); }, 4, 0x1p-119f},
    {Unary::gelu, "gelu", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, 7,
     0x1p-119f},
    {Unary::gelu_tanh, "gelu_tanh", gelu_tanh_exact, 4, 0x1p-119f},
    {Unary::sign, "sign", [](double x) { return x > 0   ? 1.0
                                                : x < 0 ? -1.0
                                                        : x; }, 0},
    {Unary::floor, "floor", [](double x) { return std::floor(x); }, 0},
    {Unary::ceil, "ceil", [](double x) { return std::ceil(x); }, 0},
    {Unary::trunc, "trunc", [](double x) { return std::trunc(x); }, 0},
    {Unary::round, "round", [](double x) { return std::nearbyint(x); }, 0},
    {Unary::exp2, "exp2", [](double x) { return std::exp2(x); }, 2},
    {Unary::expm1, "expm1", [](double x) { return std::expm1(x); }, 3},
    {Unary::log2, "log2", [](double x) { return std::log2(x); }, 3},
    {Unary::log1p, "log1p", [](double x) { return std::log1p(x); }, 4},
    {Unary::sin, "sin", [](double x) { return std::sin(x); }, 3},
    {Unary::cos, "cos", [](double x) { return std::cos(x); }, 3},
    {Unary::tan, "tan", [](double x) { return std::tan(x); }, 4},
    {Unary::asin, "asin", [](double x) { return std::asin(x); }, 3},
    {Unary::acos, "acos", [](double x) { return std::acos(x); }, 4},
    {Unary::atan, "atan", [](double x) { return std::atan(x); }, 3},
    {Unary::sinh, "sinh", [](double x) { return std::sinh(x); }, 3},
    {Unary::cosh, "cosh", [](double x) { return std::cosh(x); }, 3},
    {Unary::asinh, "asinh", [](double x) { return std::asinh(x); }, 6},
    {Unary::acosh, "acosh", [](double x) { return std::acosh(x); }, 6},
    {Unary::atanh, "atanh", [](double x) { return std::atanh(x); }, 6},
    {Unary::erfc, "erfc", [](double x) { return std::erfc(x); }, 7},
    {Unary::erfinv, "erfinv", erfinv_exact, 4},
    {Unary::relu6, "relu6", [](double x) { return x < 0   ? 0
                                                  : x > 6 ? 6
                                                          : x; }, 0},
    {Unary::softplus, "softplus",
     [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }, 4},
    {Unary::mish, "mish", mish_exact, 8, 0x1p-119f},
    {Unary::gelu_derivative, "gelu_derivative", gelu_derivative_exact, 8, 0x1p-2f},
    {Unary::hardsigmoid, "hardsigmoid", hard_sigmoid_exact, 1, 1.0f},
    {Unary::hardswish, "hardswish", [](double x) { return x * hard_sigmoid_exact(x); }, 2, 1.0f},
};

/// Distance in units of the last place of the f32 nearest to `exact`.
double ulps_off(float got, double exact, float floor) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e30;
  const auto nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || std::isinf(got)) {
    // An overflow may come half an ulp early or late.
    if (got == nearest) return 0;
    const float largest = std::numeric_limits<float>::max();
    return std::fabs(got) >= largest && std::fabs(nearest) >= largest ? 1 : 1e30;
  }
  const double size = std::max(std::fabs(exact), static_cast<double>(floor));
  const double ulp = std::ldexp(1.0, std::ilogb(size) - 23);
  return std::fabs(static_cast<double>(got) - exact) / ulp;
}

/// Numbers of every magnitude, subnormal ones included, and of every sign.
std::vector<float> samples() {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 30011) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  for (int i = -110'000; i <= 110'000; ++i) x.push_back(static_cast<float>(i) * 1.0003e-3f);
  for (int i = 2; i < 60; ++i) {  // towards 1
    const float near = 1 - std::ldexp(i % 2 == 0 ? 1.0f : 0.7f, -(i / 2));
    x.push_back(near), x.push_back(-near);
  }
  for (const float special :
       {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep127f,
        -0x1.fffffep127f, 0.625f, 88.72283f, 88.72284f, -103.97f}) {
    x.push_back(special);
  }
  return x;
}

}  // namespace

TEST_CASE("unary functions are accurate over the whole range of f32", "[elementwise][one_thread]") {
  const std::vector<float> x = samples();
  std::vector<float> y(x.size());
  on_every_level([&] {
    testing::EveryThird third;
    for (const MathFunction& f : functions) {
      if (third.skips()) continue;
      unary(f.op, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      double worst = 0;
      float at = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double off = ulps_off(y[i], f.exact(static_cast<double>(x[i])), f.floor);
        if (!(off <= worst)) {
          worst = off;
          at = x[i];
        }
      }
      INFO(f.name << " is " << worst << " ulp off at " << at);
      CHECK(worst <= f.ulps);
    }
  });
}

TEST_CASE("fast_gelu keeps to its absolute error", "[elementwise]") {
  std::vector<float> x, y;
  for (int i = -90000; i <= 90000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);
  for (const float wide : {-1e30f, -60.0f, 60.0f, 1e30f}) x.push_back(wide);
  on_every_level([&] {
    y.resize(x.size());
    unary(Unary::fast_gelu, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto v = static_cast<double>(x[i]);
      const double exact = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      const double off = std::fabs(static_cast<double>(y[i]) - exact);
      worst = std::max(worst, off / std::max(1.0, std::fabs(v)));
    }
    CHECK(worst < 0x1p-22);
    const float nan[] = {std::numeric_limits<float>::quiet_NaN()};
    unary(Unary::fast_gelu, nan, y.data(), 1);
    CHECK(std::isnan(y[0]));
  });
}

TEST_CASE("exponentials of f64 are accurate over their whole range", "[elementwise]") {
  std::vector<double> x;
  for (double at = -750; at < 715; at += 0.0173) x.push_back(at);
  const double special[] = {infinity, -infinity, std::nan(""), 0,      -0.0,      1e300, -1e300,
                            709.7,    709.8,     -745.1,       -745.2, 0x1p-1074, 1};
  x.insert(x.end(), std::begin(special), std::end(special));
  std::vector<double> y(x.size() + 1, -7);
  on_every_level([&] {
    for (const double shift : {0.0, 2.5}) {
      for (std::size_t count = 0; count < 20; ++count) {  // ends of vectors
        std::ranges::fill(y, -7);
        exp_f64(x.data() + 43000, shift, y.data(), static_cast<std::int64_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
          CHECK(y[i] == Approx(std::exp(x[43000 + i] - shift)).epsilon(1e-15));
        }
        CHECK(y[count] == -7);
      }
      exp_f64(x.data(), shift, y.data(), static_cast<std::int64_t>(x.size()));
      double worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double want = std::exp(x[i] - shift);
        if (!std::isfinite(want)) {
          CHECK((std::isnan(want) ? std::isnan(y[i]) : y[i] == want));
          continue;
        }
        const double ulp = std::nextafter(want, infinity) - want;
        worst = std::max(worst, std::fabs(y[i] - want) / ulp);
      }
      CHECK(worst <= 1);  // of the C library's, which is half an ulp off itself
    }
  });
}

TEST_CASE("a function of rows is that of each row", "[elementwise]") {
  test::Random random;
  const auto x = random.normals(7 * 40);
  on_every_level([&] {
    for (const std::int64_t columns : {0, 1, 16, 33}) {
      std::vector<float> rows = x, expected = x;
      unary_rows_kernel()(Unary::tanh, rows.data() + 3, 40, 6, columns, {});
      for (std::size_t r = 0; r < 6; ++r) {
        float* row = expected.data() + 3 + 40 * r;
        unary(Unary::tanh, row, row, columns);
      }
      CHECK(rows == expected);
    }
  });
}

TEST_CASE("unary functions at infinity, NaN and zero", "[elementwise]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {infinity, -infinity, nan, 0.0f, -0.0f};
  struct Row {
    Unary op;
    float y[5];
  };
  const Row rows[] = {
      {Unary::exp, {infinity, 0, nan, 1, 1}},
      {Unary::log, {infinity, nan, nan, -infinity, -infinity}},
      {Unary::tanh, {1, -1, nan, 0.0f, -0.0f}},
      {Unary::erf, {1, -1, nan, 0.0f, -0.0f}},
      {Unary::sigmoid, {1, 0, nan, 0.5f, 0.5f}},
      {Unary::relu, {infinity, 0, nan, 0, 0}},
      // -infinity * 0, as in the formulas that define them.
      {Unary::silu, {infinity, nan, nan, 0.0f, -0.0f}},
      {Unary::gelu, {infinity, nan, nan, 0.0f, -0.0f}},
      {Unary::gelu_tanh, {infinity, nan, nan, 0.0f, -0.0f}},
      {Unary::sqrt, {infinity, nan, nan, 0.0f, -0.0f}},
      {Unary::rsqrt, {0, nan, nan, infinity, -infinity}},
      {Unary::reciprocal, {0.0f, -0.0f, nan, infinity, -infinity}},
      {Unary::abs, {infinity, infinity, nan, 0.0f, 0.0f}},
      {Unary::neg, {-infinity, infinity, nan, -0.0f, 0.0f}},
      {Unary::square, {infinity, infinity, nan, 0.0f, 0.0f}},
  };
  on_every_level([&] {
    for (const Row& row : rows) {
      float y[5];
      unary(row.op, x, y, 5);
      for (int i = 0; i < 5; ++i) {
        INFO("op " << static_cast<int>(row.op) << " of " << x[i] << " is " << y[i]);
        if (std::isnan(row.y[i])) {
          CHECK(std::isnan(y[i]));
        } else {
          CHECK(y[i] == row.y[i]);
          if (row.op != Unary::relu) CHECK(std::signbit(y[i]) == std::signbit(row.y[i]));
        }
      }
    }
  });
}

TEST_CASE("an element's bits do not depend on its place, the length or aliasing", "[elementwise]") {
  test::Random random;
  const auto x = random.normals(97, 3.0f), up = random.normals(97);
  on_every_level([&] {
    for (const MathFunction& f : functions) {
      std::vector<float> whole(97), gate(97);
      unary(f.op, x.data(), whole.data(), 97);
      gated(f.op, x.data(), up.data(), gate.data(), 97);
      for (int begin = 0; begin < 97; begin += 5) {
        for (int count : {0, 1, 3, 7, 16, 31}) {
          if (begin + count > 97) continue;
          std::vector<float> part(x.begin() + begin, x.begin() + begin + count + 0);
          part.push_back(42.0f);
          unary(f.op, part.data(), part.data(), count);
          INFO(f.name << " from " << begin << ", " << count << " long");
          const auto size = static_cast<std::size_t>(count) * sizeof(float);
          CHECK(std::memcmp(part.data(), whole.data() + begin, size) == 0);
          CHECK(part[static_cast<std::size_t>(count)] == 42.0f);
          part.assign(up.begin() + begin, up.begin() + begin + count);
          part.push_back(42.0f);
          gated(f.op, x.data() + begin, part.data(), part.data(), count);
          CHECK(std::memcmp(part.data(), gate.data() + begin, size) == 0);
          CHECK(part[static_cast<std::size_t>(count)] == 42.0f);
        }
      }
      for (std::size_t i = 0; i < 97; ++i) {
        // A NaN (of a negative number's root) has no one spelling.
        if (!std::isnan(whole[i])) CHECK(gate[i] == whole[i] * up[i]);
      }
    }
  });
}

TEST_CASE("binary functions, broadcasting and in place", "[elementwise]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  test::Random random;
  auto a = random.normals(45), b = random.normals(45);
  a[3] = b[5] = nan;
  a[7] = infinity;
  b[9] = -infinity;
  struct Case {
    Binary op;
    float (*exact)(float, float);
  };
  const Case cases[] = {
      {Binary::add, [](float p, float q) { return p + q; }},
      {Binary::sub, [](float p, float q) { return p - q; }},
      {Binary::mul, [](float p, float q) { return p * q; }},
      {Binary::div, [](float p, float q) { return p / q; }},
      {Binary::minimum, [](float p, float q) { return p != p || q != q ? p + q : std::min(p, q); }},
      {Binary::maximum, [](float p, float q) { return p != p || q != q ? p + q : std::max(p, q); }},
  };
  on_every_level([&] {
    for (const Case& c : cases) {
      for (int steps = 0; steps < 4; ++steps) {
        const int a_step = steps & 1, b_step = steps >> 1;
        for (int count : {1, 4, 15, 45}) {
          std::vector<float> y = a_step != 0 ? a : b;  // in place where an operand is as long as y
          const float* first = a_step != 0 ? y.data() : a.data();
          const float* second = a_step == 0 && b_step != 0 ? y.data() : b.data();
          binary(c.op, first, a_step, second, b_step, y.data(), count);
          for (int i = 0; i < count; ++i) {
            const float want = c.exact(a[static_cast<std::size_t>(i * a_step)],
                                       b[static_cast<std::size_t>(i * b_step)]);
            const float got = y[static_cast<std::size_t>(i)];
            INFO("op " << static_cast<int>(c.op) << ", element " << i << " of " << count);
            CHECK((std::isnan(want) ? std::isnan(got) : got == want));
          }
        }
      }
    }
  });
}

namespace {

/// Pairs of every kind: special numbers with each other, random bits, quotients near whole numbers,
/// small whole numbers, and powers that stay in range.
void make_pairs(std::uint64_t seed, std::vector<float>& a, std::vector<float>& b) {
  const float some[] = {0.0f,
                        -0.0f,
                        1.0f,
                        -1.0f,
                        2.0f,
                        3.0f,
                        -3.0f,
                        0.5f,
                        -0.5f,
                        infinity,
                        -infinity,
                        7.0f,
                        0x1p-149f,
                        -0x1p-149f,
                        0x1p-126f,
                        0x1p23f,
                        0x1.fffffep127f,
                        -0x1.8p0f,
                        0x1p24f,
                        -8388609.f,
                        0.1f,
                        -1e-30f,
                        3e38f,
                        std::numeric_limits<float>::quiet_NaN()};
  for (const float p : some) {
    for (const float q : some) a.push_back(p), b.push_back(q);
  }
  const auto next = [&seed] {  // SplitMix64
    std::uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  };
  const auto between = [&next](float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f;
  };
  for (int i = 0; i < 60000; ++i) {
    float p = between(-4, 4), q = between(-4, 4);
    if (i % 5 == 0) {
      const std::uint64_t bits = next();
      p = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      q = std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32));
    } else if (i % 5 == 1) {
      p = std::nextafter(std::round(between(-6e6f, 6e6f)) * q, i % 2 == 0 ? 0.0f : infinity);
    } else if (i % 5 == 2) {
      p = std::round(between(-50, 50)), q = std::round(between(-4, 4));
    } else if (i % 5 == 3) {
      p = std::exp(between(-20, 20));
    }
    a.push_back(p), b.push_back(q);
  }
}

double floored_exact(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

TEST_CASE("functions of two operands are accurate, and moduli exact", "[elementwise][one_thread]") {
  struct Case {
    Binary op;
    const char* name;
    double (*exact)(double, double);
    double ulps;  ///< those that pair_body.hpp states; 0: the same bits
  };
  const Case cases[] = {
      {Binary::fmod, "fmod", [](double p, double q) { return std::fmod(p, q); }, 0},
      {Binary::remainder, "remainder", floored_exact, 0},
      {Binary::hypot, "hypot", [](double p, double q) { return std::hypot(p, q); }, 0.501},
      {Binary::atan2, "atan2", [](double p, double q) { return std::atan2(p, q); }, 3},
      {Binary::pow, "pow", [](double p, double q) { return std::pow(p, q); }, 0.51},
  };
  constexpr std::uint64_t seed = 20261127;
  std::vector<float> a, b;
  make_pairs(seed, a, b);
  const auto size = static_cast<std::int64_t>(a.size());
  std::vector<float> y(a.size()), one(1);
  on_every_level([&] {
    for (const Case& c : cases) {
      INFO(c.name << ", seed " << seed);
      binary(c.op, a.data(), 1, b.data(), 1, y.data(), size);
      double worst = 0;
      std::size_t at = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double want = c.exact(static_cast<double>(a[i]), static_cast<double>(b[i]));
        const auto nearest = static_cast<float>(want);
        const bool same =
            std::bit_cast<std::uint32_t>(y[i]) == std::bit_cast<std::uint32_t>(nearest);
        double off = std::isnan(want) || c.ulps > 0 ? ulps_off(y[i], want, 0x1p-126f)
                     : same                         ? 0
                                                    : 1e30;
        if (nearest == 0 && y[i] == 0 && !same) off = 1e30;  // the sign of a zero
        if (!(off <= worst)) worst = off, at = i;
      }
      INFO(worst << " ulp off at " << a[at] << ", " << b[at]);
      CHECK(worst <= c.ulps);
      // A lane depends on no other, and a number for all lanes gives what each of them does.
      for (std::size_t i = 0; i < a.size(); i += i < 600 ? 1 : 97) {
        for (const int step : {0, 1}) {
          binary(c.op, &a[i], 1 - step, &b[i], step, one.data(), 1);
          const bool same =
              std::bit_cast<std::uint32_t>(one[0]) == std::bit_cast<std::uint32_t>(y[i]);
          if (!same && !(std::isnan(one[0]) && std::isnan(y[i]))) {
            FAIL_CHECK("alone at " << a[i] << ", " << b[i] << ": " << one[0] << ", not " << y[i]);
          }
        }
      }
    }
  });
}

TEST_CASE("norms and softmax of rows of any length", "[elementwise]") {
  test::Random random;
  on_every_level([&] {
    for (int n : {1, 2, 15, 16, 17, 64, 100, 577}) {
      const auto size = static_cast<std::size_t>(n);
      auto x = random.normals(n, 2.0f);
      for (float& v : x) v += 1.0f;
      const auto weight = random.normals(n), bias = random.normals(n);
      double sum = 0, squares = 0, peak = -1e30;
      for (float v : x) {
        sum += static_cast<double>(v);
        squares += static_cast<double>(v) * static_cast<double>(v);
        peak = std::max(peak, static_cast<double>(v));
      }
      const double mean = sum / n;
      double variance = 0, exps = 0;
      for (float v : x) {
        variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / n;
        exps += std::exp(static_cast<double>(v) - peak);
      }
      for (int given = 0; given < 4; ++given) {
        const float* w = given & 1 ? weight.data() : nullptr;
        const float* b = given & 2 ? bias.data() : nullptr;
        // The mean is rounded, and a row of near-equal values divides that by little.
        const double largest = std::ranges::max(x, {}, [](float v) { return std::fabs(v); });
        const double rounding = 2e-7 * std::fabs(largest) / std::sqrt(variance + 1e-5);
        std::vector<float> rms = x, layer = x, soft = x;  // in place
        rms_norm_row(rms.data(), w, 1e-5f, rms.data(), n);
        layer_norm_row(layer.data(), w, b, 1e-5f, layer.data(), n);
        softmax_row(soft.data(), soft.data(), n);
        for (std::size_t i = 0; i < size; ++i) {
          const double v = static_cast<double>(x[i]), g = w ? static_cast<double>(w[i]) : 1;
          INFO("element " << i << " of " << n);
          CHECK(static_cast<double>(rms[i]) ==
                Approx(v / std::sqrt(squares / n + 1e-5) * g).epsilon(5e-7).margin(1e-12));
          CHECK(static_cast<double>(layer[i]) ==
                Approx((v - mean) / std::sqrt(variance + 1e-5) * g +
                       (b ? static_cast<double>(b[i]) : 0))
                    .epsilon(1e-6)
                    .margin(1e-6 + rounding * std::fabs(g)));
          CHECK(static_cast<double>(soft[i]) == Approx(std::exp(v - peak) / exps).epsilon(1e-6));
        }
      }
      CHECK(sum_row(x.data(), n) == Approx(sum).epsilon(1e-13).margin(1e-12));
      CHECK(max_row(x.data(), n) == *std::max_element(x.begin(), x.end()));
      CHECK(min_row(x.data(), n) == *std::min_element(x.begin(), x.end()));
      for (std::size_t i = 0; i < size; i += 13) {
        auto with_nan = x;
        with_nan[i] = std::numeric_limits<float>::quiet_NaN();
        CHECK(std::isnan(max_row(with_nan.data(), n)));
        CHECK(std::isnan(min_row(with_nan.data(), n)));
      }
    }
  });
}

TEST_CASE("softmax of columns has the bits of softmax of rows", "[elementwise]") {
  test::Random random;
  on_every_level([&] {
    for (const int rows : {1, 3, 16, 130, 300}) {
      for (const int columns : {1, 7, 32, 64}) {
        const int step = columns + 3, other = columns + 1;
        auto x = random.normals(rows * step, 4.0f);
        x[static_cast<std::size_t>(rows / 2 * step)] = std::numeric_limits<float>::infinity();
        if (columns > 2) x[2] = std::numeric_limits<float>::quiet_NaN();
        for (const bool is_log : {false, true}) {
          std::vector<float> y(static_cast<std::size_t>(rows * other), -7.0f);
          constexpr std::int64_t bytes = sizeof(float);
          (is_log ? log_softmax_columns : softmax_columns)(
              {DType::f32, x.data(), step * bytes, rows, columns}, y.data(), other * bytes,
              nullptr);
          for (int c = 0; c < columns; ++c) {
            std::vector<float> row, want(static_cast<std::size_t>(rows));
            for (int i = 0; i < rows; ++i) {
              row.push_back(x[static_cast<std::size_t>(i * step + c)]);
            }
            (is_log ? log_softmax_row : softmax_row)(row.data(), want.data(), rows);
            for (int i = 0; i < rows; ++i) {
              const float got = y[static_cast<std::size_t>(i * other + c)];
              const float right = want[static_cast<std::size_t>(i)];
              INFO(rows << " rows, column " << c << " of " << columns << ", row " << i);
              CHECK((got == right || (std::isnan(got) && std::isnan(right))));
            }
          }
          for (int i = 0; i < rows; ++i) {  // nothing after the last column is written
            CHECK(y[static_cast<std::size_t>(i * other + columns)] == -7.0f);
          }
        }
      }
    }
  });
}

TEST_CASE("sums have the same bits on every instruction set", "[elementwise]") {
  test::Random random;
  const auto x = random.normals(1003);
  const auto all = [&] {
    std::vector<float> y(1003);
    rms_norm_row(x.data(), nullptr, 1e-6f, y.data(), 1003);
    return std::pair(sum_row(x.data(), 1003), y);
  };
  std::pair<double, std::vector<float>> portable;
  {
    const Level level(Isa::portable);
    portable = all();
  }
  on_every_level([&] { CHECK(all() == portable); });
}

TEST_CASE("rotation of both layouts, in place, with elements that pass through", "[elementwise]") {
  test::Random random;
  on_every_level([&] {
    for (int pairs : {1, 3, 8, 16, 19, 32, 128}) {
      const int size = 2 * pairs + 5;
      const auto x = random.normals(size), c = random.normals(pairs), s = random.normals(pairs);
      for (const bool interleaved : {false, true}) {
        std::vector<float> y(x.size(), -1), same = x;
        rotate_row(x.data(), c.data(), s.data(), pairs, interleaved, y.data(), size);
        rotate_row(same.data(), c.data(), s.data(), pairs, interleaved, same.data(), size);
        CHECK(same == y);
        for (int i = 0; i < pairs; ++i) {
          const auto first = static_cast<std::size_t>(interleaved ? 2 * i : i);
          const auto second = static_cast<std::size_t>(interleaved ? 2 * i + 1 : i + pairs);
          const auto p = static_cast<std::size_t>(i);
          INFO("pair " << i << " of " << pairs);
          CHECK(y[first] == Approx(x[first] * c[p] - x[second] * s[p]).margin(1e-6));
          CHECK(y[second] == Approx(x[second] * c[p] + x[first] * s[p]).margin(1e-6));
        }
        for (auto i = static_cast<std::size_t>(2 * pairs); i < x.size(); ++i) CHECK(y[i] == x[i]);
      }
    }
  });
}

TEST_CASE("conversions of every 16-bit number and of numbers between them", "[elementwise]") {
  std::vector<std::uint16_t> codes(65536 + 3), back(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  const auto count = static_cast<std::int64_t>(codes.size());
  std::vector<float> wide(codes.size());
  on_every_level([&] {
    f16_to_f32(codes.data(), wide.data(), count);
    f32_to_f16(wide.data(), back.data(), count);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float want = to_float(half{codes[i]});
      wrong += std::isnan(want) ? !std::isnan(wide[i]) : wide[i] != want || back[i] != codes[i];
    }
    CHECK(wrong == 0);
    bf16_to_f32(codes.data(), wide.data(), count);
    f32_to_bf16(wide.data(), back.data(), count);
    wrong = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float want = to_float(bfloat16{codes[i]});
      wrong += std::isnan(want) ? !std::isnan(to_float(bfloat16{back[i]}))
                                : wide[i] != want || back[i] != codes[i];
    }
    CHECK(wrong == 0);
    auto x = samples();
    x.push_back(infinity);
    x.push_back(-infinity);
    for (std::uint32_t i = 0; i < 0x7C00; i += 7) {  // halfway between two f16, and next to that
      const float middle = (to_float(half{static_cast<std::uint16_t>(i)}) +
                            to_float(half{static_cast<std::uint16_t>(i + 1)})) /
                           2;
      x.insert(x.end(),
               {middle, -middle, std::nextafter(middle, infinity), std::nextafter(middle, 0.0f)});
    }
    std::vector<std::uint16_t> y(x.size());
    f32_to_f16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i] != to_half(x[i]).bits;
    CHECK(wrong == 0);
    f32_to_bf16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i] != to_bfloat16(x[i]).bits;
    CHECK(wrong == 0);
  });
}

TEST_CASE("sums are rounded once to every type") {
  tenon::test::Random random;
  std::vector<double> x{0.0,          -0.0,      1e300,
                        -1e300,       1e-300,    5e-324,
                        infinity,     -infinity, std::numeric_limits<double>::quiet_NaN(),
                        65519.999999, 65520,     3.4028236e38,
                        1e-39,        -3e-40,    9.1835496e-41};
  while (x.size() < 5000) {
    // Near what lies between two halves, which rounding to f32 before would reach.
    const double stored = to_float(half{static_cast<std::uint16_t>(random.below(65536))});
    const double far = std::ldexp(1.0, -random.below(40)) * random.normal();
    x.push_back(stored * (1 + std::ldexp(1.0, random.below(2) == 0 ? -11 : -12)) *
                (1 + far * 1e-6));
    x.push_back(stored * (1 + std::ldexp(1.0, -9)) * (1 + far * 1e-12));
  }
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<std::int64_t> whole, small;
  for (std::int64_t i = 0; i < count; ++i) {
    whole.push_back((i - 99) << (i % 40));
    small.push_back(i * 37 % 128);
  }
  const auto check = [&](DType dtype, const auto& from, auto store) {
    INFO(tenon::name(dtype));
    const std::int64_t unit = block_bytes(dtype);
    std::vector<std::byte> got(static_cast<std::size_t>(count * unit)), want(got.size());
    narrow_sums(dtype, from.data(), got.data(), count);
    for (std::int64_t i = 0; i < count; ++i) {
      store(dtype, want.data() + i * unit, from[static_cast<std::size_t>(i)]);
    }
    int wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double a = load_as_double(dtype, got.data() + i * unit);
      const double b = load_as_double(dtype, want.data() + i * unit);
      wrong += a != b && (a == a || b == b);
    }
    CHECK(wrong == 0);
  };
  on_every_level([&] {
    for (const DType dtype : {f64, f32, f16, bf16, f8_e4m3, f8_e5m2}) {
      check(dtype, x, store_double);
    }
  });
  check(i64, whole, store_int64);
  for (const DType dtype : {i8, i16, i32, u8, u16, u32, u64, DType::boolean, f32}) {
    check(dtype, small, store_int64);
  }
}
