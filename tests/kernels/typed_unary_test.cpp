// Functions of whole numbers and of f64, and conversions, on every instruction set, against the C library and plain C++.
#include "backends/cpu/elementwise/typed_unary.hpp"

#include "backends/cpu/elementwise/conversion_kernels.hpp"
#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::cpu;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Body>
void on_each_level(Body body) {
  const Isa before = active_isa();
  for (const Isa isa : test::supported_isas()) {
    INFO("on " << name(isa));
    set_active_isa(isa);
    body();
  }
  set_active_isa(before);
}

struct FunctionOfF64 {
  Unary op;
  const char* name;
  long double (*exact)(long double);
  double low, high;  ///< of the arguments
  double ulps;
};

/// The inverse of erf by Newton's method, with erfc in the tail.
long double inverse_error(long double x) {
  const long double a = std::fabs(x);
  if (!(a < 1))
    return a == 1 ? std::copysign(static_cast<long double>(infinity), x) : std::nanl("");
  long double y = a;
  if (a > 0.9L) y = std::sqrt(-std::log((1 - a) * 1.7724538509055160273L));
  for (int i = 0; i < 30; ++i) {
    const long double f = y < 0.5L ? std::erf(y) - a : (1 - a) - std::erfc(y);
    y -= f / (1.1283791670955125739L * std::exp(-y * y));
  }
  return std::copysign(y, x);
}

constexpr long double root_2 = 1.41421356237309504880168872420969808L;
const FunctionOfF64 functions[] = {
    {Unary::exp, "exp", [](long double x) { return std::exp(x); }, -700, 709, 1},
    {Unary::exp2, "exp2", [](long double x) { return std::exp2(x); }, -1000, 1020, 1.1},
    {Unary::expm1, "expm1", [](long double x) { return std::expm1(x); }, -60, 709, 2},
    {Unary::log, "log", [](long double x) { return std::log(x); }, 1e-9, 3, 1},
    {Unary::log2, "log2", [](long double x) { return std::log2(x); }, 1e-9, 3, 2},
    {Unary::log1p, "log1p", [](long double x) { return std::log1p(x); }, -0.9999, 9, 1.5},
    {Unary::sin, "sin", [](long double x) { return std::sin(x); }, -1.1e6, 1.1e6, 2},
    {Unary::cos, "cos", [](long double x) { return std::cos(x); }, -1.1e6, 1.1e6, 2.5},
    {Unary::tan, "tan", [](long double x) { return std::tan(x); }, -1.1e6, 1.1e6, 4},
    {Unary::erfinv, "erfinv", inverse_error, -0.9999, 0.9999999, 5},
    {Unary::tanh, "tanh", [](long double x) { return std::tanh(x); }, -25, 25, 3},
    {Unary::erf, "erf", [](long double x) { return std::erf(x); }, -7, 7, 2},
    {Unary::erfc, "erfc", [](long double x) { return std::erfc(x); }, -7, 26, 6},
    {Unary::sinh, "sinh", [](long double x) { return std::sinh(x); }, -710, 710, 3},
    {Unary::cosh, "cosh", [](long double x) { return std::cosh(x); }, -710, 710, 3},
    {Unary::atanh, "atanh", [](long double x) { return std::atanh(x); }, -0.9999, 0.9999, 3},
    {Unary::atan, "atan", [](long double x) { return std::atan(x); }, -900, 900, 1},
    {Unary::asin, "asin", [](long double x) { return std::asin(x); }, -1, 1, 3},
    {Unary::acos, "acos", [](long double x) { return std::acos(x); }, -1, 1, 3},
    {Unary::sigmoid, "sigmoid", [](long double x) { return 1 / (1 + std::exp(-x)); }, -700, 50, 2},
    {Unary::silu, "silu", [](long double x) { return x / (1 + std::exp(-x)); }, -700, 50, 3},
    {Unary::softplus, "softplus", [](long double x) { return std::log1p(std::exp(x)); }, -700, 50,
     2},
    {Unary::mish, "mish", [](long double x) { return x * std::tanh(std::log1p(std::exp(x))); },
     -300, 50, 4},
    {Unary::gelu, "gelu",
     [](long double x) {  // of the argument as f64 has it
       const auto u = static_cast<double>(-x) / static_cast<double>(root_2);
       return 0.5L * x * std::erfc(static_cast<long double>(u));
     },
     -37, 9, 7},
    {Unary::sqrt, "sqrt", [](long double x) { return std::sqrt(x); }, 0, 9, 0.51},
    {Unary::round, "round", [](long double x) { return std::nearbyint(x); }, -9, 9, 0},
    {Unary::floor, "floor", [](long double x) { return std::floor(x); }, -9, 9, 0},
    {Unary::ceil, "ceil", [](long double x) { return std::ceil(x); }, -9, 9, 0},
    {Unary::trunc, "trunc", [](long double x) { return std::trunc(x); }, -9, 9, 0},
};

std::vector<double> arguments(const FunctionOfF64& function) {
  std::vector<double> x;
  const auto add = [&](double low, double high) {
    low = std::max(low, function.low);
    high = std::min(high, function.high);
    for (int i = 0; i < 4000; ++i) x.push_back(low + (high - low) * (i + 0.37) / 4000);
  };
  add(function.low, function.high);
  add(-3, 3);
  add(-1e-3, 1e-3);
  for (double at = 1e-300; at < 1; at *= 7.3) {
    x.push_back(at);
    if (function.low < 0) x.push_back(-at);
  }
  for (double half = 0.5; half < std::min(8.0, function.high); ++half) x.push_back(half);
  return x;
}

TEST_CASE("functions of f64 are accurate", "[elementwise]") {
  on_each_level([] {
    for (const FunctionOfF64& function : functions) {
      INFO(function.name);
      const TypedUnary run = typed_unary_kernel(Compute::f64, function.op);
      REQUIRE(run != nullptr);
      const std::vector<double> x = arguments(function);
      std::vector<double> y(x.size());
      run(x.data(), y.data(), static_cast<std::int64_t>(x.size()), {});
      long double worst = 0;
      double worst_at = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long double want = function.exact(static_cast<long double>(x[i]));
        const auto nearest = std::fabs(static_cast<double>(want));
        if (nearest < 0x1p-1000) continue;  // subnormal ones are rounded twice
        const double ulp = std::nextafter(nearest, infinity) - nearest;
        const long double error =
            std::fabs(static_cast<long double>(y[i]) - want) / static_cast<long double>(ulp);
        if (!(error <= worst)) {
          worst = error;
          worst_at = x[i];
        }
      }
      INFO("at " << worst_at);
      CHECK(static_cast<double>(worst) <= function.ulps);
    }
  });
}

TEST_CASE("functions of f64 at their ends, and of arrays of any length, in place",
          "[elementwise]") {
  const double values[] = {0.0,    -0.0,    infinity, -infinity, std::nan(""), 1,   -1,
                           5e-324, -5e-324, 1e-310,   1e300,     -1e300,       710, -746,
                           0x1p20, 0x1p21,  -1e22,    0.25,      2.5};
  constexpr std::size_t count = std::size(values);
  on_each_level([&] {
    for (const FunctionOfF64& function : functions) {
      INFO(function.name);
      const TypedUnary run = typed_unary_kernel(Compute::f64, function.op);
      std::vector<double> y(values, values + count);
      run(y.data(), y.data(), static_cast<std::int64_t>(count), {});
      for (std::size_t i = 0; i < count; ++i) {
        INFO(values[i]);
        double one[] = {values[i], -7};
        run(one, one, 1, {});
        CHECK((std::isnan(y[i]) ? std::isnan(one[0]) : std::memcmp(one, &y[i], sizeof *one) == 0));
        CHECK(one[1] == -7);
        const auto want = static_cast<double>(function.exact(static_cast<long double>(values[i])));
        const bool is_product = function.op == Unary::silu || function.op == Unary::mish ||
                                function.op == Unary::softplus;  // inf / inf in the formula here
        if (std::isnan(want)) {
          CHECK((is_product || std::isnan(y[i])));
        } else if (std::fabs(want) < infinity) {
          CHECK(std::fabs(y[i] - want) <= std::max(std::fabs(want) * 2e-15, 1e-307));
          if (want == 0 && values[i] == 0) CHECK(std::signbit(y[i]) == std::signbit(want));
        } else if (!is_product) {
          CHECK(y[i] == want);
        }
      }
    }
  });
}

struct PairFunction {
  Binary op;
  const char* name;
  long double (*exact)(long double, long double);
  double ulps;
  bool everywhere;  ///< on every instruction set
};
const PairFunction pair_functions[] = {
    {Binary::hypot, "hypot", [](long double a, long double b) { return std::hypot(a, b); }, 1.5,
     true},
    {Binary::atan2, "atan2", [](long double a, long double b) { return std::atan2(a, b); }, 2,
     true},
    {Binary::fmod, "fmod", [](long double a, long double b) { return std::fmod(a, b); }, 0, false},
    {Binary::remainder, "remainder",
     [](long double a, long double b) {
       const long double rest = std::fmod(a, b);
       return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
     },
     0.51, false},
    {Binary::pow, "pow", [](long double a, long double b) { return std::pow(a, b); }, 1.5, false},
};

void check_pair(const PairFunction& function, double a, double b, double y) {
  const long double exact =
      function.exact(static_cast<long double>(a), static_cast<long double>(b));
  const auto want = static_cast<double>(exact);
  INFO(function.name << " of " << a << " and " << b << ": " << y << ", not " << want);
  if (std::isnan(want)) {
    CHECK(std::isnan(y));
    return;
  }
  if (want == 0 || std::isinf(want)) {
    CHECK(y == want);
    if (want == 0) CHECK(std::signbit(y) == std::signbit(want));
    return;
  }
  const double ulp = std::nextafter(std::fabs(want), infinity) - std::fabs(want);
  const double allowed = std::fabs(want) < 0x1p-1000 ? 3 : function.ulps;  // rounded twice
  CHECK(static_cast<double>(std::fabs(static_cast<long double>(y) - exact)) <= allowed * ulp);
}

TEST_CASE("functions of two f64 are accurate, and exact where C's are", "[elementwise]") {
  std::vector<double> numbers{0.0,    -0.0,   1,        -1,        2,           3,
                              0.5,    -2.5,   1e22,     7e5,       1e300,       -1e300,
                              1e-300, 3e-310, infinity, -infinity, std::nan("")};
  for (int i = 1; i <= 30; ++i) {
    numbers.push_back(std::pow(-1.31, i));
    numbers.push_back(1 + std::pow(-0.6, i));
    numbers.push_back(std::pow(0.13, i));
  }
  const std::size_t count = numbers.size();
  on_each_level([&] {
    for (const PairFunction& function : pair_functions) {
      const PairOfF64 run = f64_pair_kernel(function.op);
      if (run == nullptr) {
        CHECK((!function.everywhere && active_isa() < Isa::avx2));
        continue;
      }
      for (const double a : numbers) {
        std::vector<double> y(count), turned(count);
        run(&a, 0, numbers.data(), 1, y.data(), static_cast<std::int64_t>(count));
        for (std::size_t i = 0; i < count; ++i) check_pair(function, a, numbers[i], y[i]);
        // What an element gives depends on no other.
        turned = numbers;
        run(turned.data(), 1, &a, 0, turned.data(), static_cast<std::int64_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
          double one[] = {0, -7};
          run(&numbers[i], 1, &a, 1, one, 1);
          CHECK((std::isnan(one[0]) ? std::isnan(turned[i]) : one[0] == turned[i]));
          CHECK(one[1] == -7);
        }
      }
    }
  });
}

/// Places of extremes of columns against a plain search: of equal numbers the first, and a NaN beats all.
template <class T>
void check_places(Compute type) {
  for (const int columns : {1, 8, 45}) {
    for (const int rows : {1, 2, 300}) {
      const int apart = columns + 3;
      std::vector<T> x(static_cast<std::size_t>(rows * apart));
      unsigned state = 7;
      for (T& value : x) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<T>(static_cast<int>(state >> 24) % 20 - 10);
        if (!std::is_integral_v<T> && (state >> 8) % 400 == 0) value = static_cast<T>(NAN);
      }
      for (const bool greatest : {true, false}) {
        std::vector<std::int64_t> places(static_cast<std::size_t>(columns), -1);
        find_places(type, greatest, x.data(), columns, rows,
                    apart * static_cast<std::int64_t>(sizeof(T)), places.data());
        for (int c = 0; c < columns; ++c) {
          int want = 0;
          for (int r = 1; r < rows; ++r) {
            const T value = x[static_cast<std::size_t>(r * apart + c)];
            const T best = x[static_cast<std::size_t>(want * apart + c)];
            if (best != best) break;
            if (value != value || (greatest ? value > best : value < best)) want = r;
          }
          CHECK(places[static_cast<std::size_t>(c)] == want);
        }
      }
    }
  }
}
TEST_CASE("places of extremes of columns", "[elementwise]") {
  on_each_level([] {
    check_places<std::int32_t>(Compute::i32);
    check_places<std::int64_t>(Compute::i64);
    check_places<float>(Compute::f32);
    check_places<double>(Compute::f64);
  });
}

template <class T, class F>
void check_whole(Compute type, Unary op, const cpu::Limits& limits, F want) {
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  std::vector<T> x{least, least + 1, -100000, -7, -1, 0, 1, 2, 46341, 100000, most - 1, most};
  for (T i = 0; i < 40; ++i) x.push_back(static_cast<T>(37 * (i - 20)));
  for (std::size_t count = 0; count <= x.size(); ++count) {
    std::vector<T> y(x);
    typed_unary_kernel(type, op)(y.data(), y.data(), static_cast<std::int64_t>(count), limits);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto wrapped = static_cast<T>(want(static_cast<std::uint64_t>(x[i]), x[i]));
      REQUIRE(y[i] == (i < count ? wrapped : x[i]));
    }
  }
}

TEST_CASE("functions of whole numbers wrap", "[elementwise]") {
  const auto check = [](auto zero, Compute type) {
    using T = decltype(zero);
    check_whole<T>(type, Unary::neg, {}, [](std::uint64_t v, T) { return 0 - v; });
    check_whole<T>(type, Unary::abs, {}, [](std::uint64_t v, T x) { return x < 0 ? 0 - v : v; });
    check_whole<T>(type, Unary::square, {}, [](std::uint64_t v, T) { return v * v; });
    check_whole<T>(type, Unary::sign, {}, [](std::uint64_t, T x) { return (x > 0) - (x < 0); });
    check_whole<T>(type, Unary::relu, {}, [](std::uint64_t, T x) { return x < 0 ? T{0} : x; });
    check_whole<T>(type, Unary::clamp, {0, 0, -8, 50000},
                   [](std::uint64_t, T x) { return std::clamp<T>(x, -8, 50000); });
    check_whole<T>(
        type, Unary::clamp, {0, 0, std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 31},
        [](std::uint64_t, T x) { return std::min<std::int64_t>(x, std::int64_t{1} << 31); });
  };
  on_each_level([&] {
    check(std::int32_t{0}, Compute::i32);
    check(std::int64_t{0}, Compute::i64);
  });
}

/// By cast's contract, with comparisons in long double, which holds all these numbers.
template <class To, class From>
To cast_of(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else {
    const auto value = static_cast<long double>(x);
    if (value != value) return 0;
    if (value >= static_cast<long double>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    if (value <= static_cast<long double>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    return static_cast<To>(x);
  }
}

template <class From, class To>
void check_cast(Compute from, DType to) {
  std::vector<From> x;
  for (int bits = 0; bits < 66; ++bits) {
    for (const double off : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
      const double value = std::ldexp(1.0, bits) + off;
      for (const double v : {value, -value, std::nextafter(value, 0.0)}) {
        if constexpr (std::is_floating_point_v<From>) {
          x.push_back(static_cast<From>(v));
        } else {
          x.push_back(cast_of<From>(v));
        }
      }
    }
  }
  if constexpr (std::is_floating_point_v<From>) {
    const auto last = std::nextafter(static_cast<From>(2147483648.0), From{0});
    for (const From v :
         {std::numeric_limits<From>::infinity(), std::numeric_limits<From>::quiet_NaN(),
          std::numeric_limits<From>::lowest(), static_cast<From>(-0.0), last}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  std::vector<To> y(x.size());
  conversion_kernels().saturation(from, to)(x.data(), y.data(),
                                            static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    INFO("of " << x[i]);
    const To want = cast_of<To>(x[i]);
    REQUIRE((y[i] == want || (y[i] != y[i] && want != want)));
  }
}

template <class From>
void check_casts(Compute from) {
  check_cast<From, std::int8_t>(from, i8);
  check_cast<From, std::int16_t>(from, i16);
  check_cast<From, std::int32_t>(from, i32);
  check_cast<From, std::int64_t>(from, i64);
  check_cast<From, std::uint8_t>(from, u8);
  check_cast<From, std::uint16_t>(from, u16);
  check_cast<From, std::uint32_t>(from, u32);
  check_cast<From, std::uint64_t>(from, u64);
  check_cast<From, float>(from, f32);
  check_cast<From, double>(from, f64);
}

TEST_CASE("casts truncate and saturate at the ends of every type", "[elementwise]") {
  on_each_level([] {
    check_casts<std::int32_t>(Compute::i32);
    check_casts<std::int64_t>(Compute::i64);
    check_casts<float>(Compute::f32);
    check_casts<double>(Compute::f64);
  });
}

}  // namespace
