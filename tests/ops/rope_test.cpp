#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/rope.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace tenon::testing {
namespace {

// cos and sin of 1 and of 0.01: the angles at position 1 of the two pairs of 4 dims.
constexpr double c0 = 0.5403023058681398, s0 = 0.8414709848078965;
constexpr double c1 = 0.9999500004166653, s1 = 0.009999833334166664;

TEST_CASE("rope: rotates the pairs (i, i + n/2)") {
  const HostBuffer x = floats({1, 2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  expect_near(apply(Rope{}, {x, ints({2}, {0, 1})}),
              {1, 2, 3, 4, c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1});
}

TEST_CASE("rope: rotates the pairs (2i, 2i + 1) when interleaved") {
  const HostBuffer x = floats({1, 1, 1, 4}, {1, 2, 3, 4});
  expect_near(apply(Rope{.interleaved = true}, {x, ints({1}, {1})}),
              {c0 - 2 * s0, 2 * c0 + s0, 3 * c1 - 4 * s1, 4 * c1 + 3 * s1});
}

TEST_CASE("rope: elements beyond dims pass through") {
  const HostBuffer x = floats({1, 1, 1, 5}, {1, 2, 3, 4, 5});
  expect_near(apply(Rope{.dims = 2}, {x, ints({1}, {1})}), {c0 - 2 * s0, 2 * c0 + s0, 3, 4, 5});
}

TEST_CASE("rope: positions of each sequence of a batch, every head alike") {
  const HostBuffer x = floats({2, 1, 2, 2}, {1, 0, 0, 1, 1, 0, 0, 1});
  expect_near(apply(Rope{}, {x, ints({2, 1}, {0, 1})}), {1, 0, 0, 1, c0, s0, -s0, c0});
  expect_near(apply(Rope{}, {floats({1, 1, 1, 2}, {1, 0}), ints({1}, {-1})}), {c0, -s0});
}

TEST_CASE("rope: freq_factors divide the frequencies") {
  const HostBuffer x = floats({1, 1, 1, 4}, {1, 2, 3, 4});
  const HostBuffer y = apply(Rope{.theta = 100, .has_freq_factors = true},
                             {x, ints({1}, {1}), floats({2}, {1, 10})});  // f = 1, 0.1 / 10
  expect_near(y, {c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1});
}

TEST_CASE("rope: attention_factor scales what is turned") {
  const HostBuffer x = floats({1, 1, 1, 3}, {1, 0, 5});
  expect_near(apply(Rope{.dims = 2, .attention_factor = 2}, {x, ints({1}, {1})}),
              {2 * c0, 2 * s0, 5});
}

void expect_frequencies(const Rope& op, std::int64_t dims, std::initializer_list<double> want) {
  const std::vector<double> got = op.frequencies(dims);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(want.begin()[i]).epsilon(1e-12));
}

TEST_CASE("rope: frequencies without and with linear scaling") {
  expect_frequencies(Rope{.theta = 16}, 4, {1, 0.25});
  expect_frequencies(Rope{.theta = 16, .scaling = "none", .factor = 2}, 4, {1, 0.25});
  expect_frequencies(Rope{.theta = 16, .scaling = "linear", .factor = 2}, 4, {0.5, 0.125});
}

TEST_CASE("rope: llama3 keeps short wavelengths, scales long ones, interpolates between") {
  // Context of 4 turns at f = 1: f = 1, 1/2, 1/4, 1/8 makes 4, 2, 1, 1/2 turns.
  const Rope op{.theta = 16,
                .scaling = "llama3",
                .factor = 8,
                .low_freq_factor = 1,
                .high_freq_factor = 3,
                .original_context = 25};  // 8 pi = 25.13: all slightly below those counts
  const double c = 25;
  const auto blend = [&](double f) {
    const double share = (c * f / (2 * std::numbers::pi) - 1) / 2;
    return (1 - share) * f / 8 + share * f;
  };
  expect_frequencies(op, 8, {1, blend(0.5), 0.25 / 8, 0.125 / 8});
}

TEST_CASE("rope: yarn interpolates from the pair that turns beta_fast times on") {
  // turn(b) = 8 ln(c / (2 pi b)) / (2 ln 16): 1.4 for b = 4, 4.3 for b = 1/2 with this c.
  const Rope op{.theta = 16,
                .scaling = "yarn",
                .factor = 4,
                .original_context = 64,
                .beta_fast = 4,
                .beta_slow = 0.5};
  const double low = 1, high = 5;
  const auto blend = [&](double i, double f) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    return ramp * f / 4 + (1 - ramp) * f;
  };
  expect_frequencies(op, 8, {1, 0.5, blend(2, 0.25), blend(3, 0.125)});
  CHECK(op.magnitude() == Approx(0.1 * std::log(4.0) + 1));
  CHECK(Rope{.scaling = "yarn", .factor = 0.5}.magnitude() == 1);
  CHECK(Rope{.scaling = "yarn", .factor = 4, .attention_factor = 1.5}.magnitude() == 1.5);
  CHECK(Rope{}.magnitude() == 1);
}

TEST_CASE("rope: half types, sizes of zero") {
  const HostBuffer x = floats({1, 1, 1, 2}, {1, 0});
  for (const DType dtype : {f16, bf16, f64}) {
    const HostBuffer y = apply(Rope{}, {x.to(dtype), ints({1}, {1})});
    CHECK(y.shape().dtype() == dtype);
    expect_near(y, {c0, s0}, 4e-3);
  }
  expect_type(apply(Rope{}, {floats({1, 0, 2, 4}, {}), ints({0}, {})}).shape(), "f32[1, 0, 2, 4]");
  expect_type(apply(Rope{}, {floats({1, 1, 2, 0}, {}), ints({1}, {3})}).shape(), "f32[1, 1, 2, 0]");
}

const Shape x_type({{"b", 2}, {"s", 3}, {"h", 4}, {"d", 8}}, f32);
const Shape positions_type({3}, i32);

TEST_CASE("rope: the type of x; symbols may stand for steps") {
  expect_type(infer(Rope{}, {x_type, positions_type}), "f32[b=2, s=3, h=4, d=8]");
  expect_type(infer(Rope{}, {x_type.with_dim(1, symbol("S")), Shape({symbol("S")}, i32)}),
              "f32[b=2, s=S, h=4, d=8]");
}

TEST_CASE("rope: C1 number of inputs") {
  const Shape factors({4}, f32);
  expect_error(Errc::bad_argument, [&] { infer(Rope{}, {x_type, positions_type, factors}); });
  expect_error(Errc::bad_argument,
               [] { infer(Rope{.has_freq_factors = true}, {x_type, positions_type}); });
}

TEST_CASE("rope: C2 ranks") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Rope{}, {Shape({3, 4, 8}, f32), positions_type}); });
  expect_error(Errc::shape_mismatch, [] { infer(Rope{}, {x_type, Shape({}, i32)}); });
  expect_error(Errc::shape_mismatch, [] {
    infer(Rope{.has_freq_factors = true}, {x_type, positions_type, Shape({1, 4}, f32)});
  });
}

TEST_CASE("rope: C3 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Rope{}, {x_type.with_dtype(i32), positions_type}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Rope{}, {x_type, Shape({3}, i64)}); });
  expect_error(Errc::unsupported_dtype, [] {
    infer(Rope{.has_freq_factors = true}, {x_type, positions_type, Shape({4}, f16)});
  });
}

TEST_CASE("rope: C4 positions and factors that do not match") {
  expect_error(Errc::shape_mismatch, [] { infer(Rope{}, {x_type, Shape({4}, i32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Rope{}, {x_type, Shape({1, 3}, i32)}); });
  expect_error(Errc::shape_mismatch, [] {
    infer(Rope{.has_freq_factors = true}, {x_type, positions_type, Shape({8}, f32)});
  });
  expect_error(Errc::shape_mismatch, [] {
    infer(Rope{.dims = 4, .has_freq_factors = true}, {x_type, positions_type, Shape({4}, f32)});
  });
}

TEST_CASE("rope: sections take their angles from positions of their own") {
  // Pairs (i, i + 4) of (1, 0) turn to (cos, sin); theta 1 makes all frequencies 1.
  const HostBuffer x = floats({1, 1, 1, 8}, {1, 1, 1, 1, 0, 0, 0, 0});
  const HostBuffer positions = ints({3, 1}, {0, 1, 2});
  const auto sine = [](int p) { return std::sin(static_cast<double>(p)); };
  const auto sines_of = [&](const Rope& op) {
    const HostBuffer y = apply(op, {x, positions});
    const auto values = y.values<float>();
    return std::vector<float>(values.begin() + 4, values.end());
  };
  const auto check = [&](const Rope& op, std::initializer_list<int> turned) {
    std::size_t i = 0;
    const std::vector<float> sines = sines_of(op);
    for (const int p : turned) CHECK(static_cast<double>(sines[i++]) == Approx(sine(p)));
  };
  check({.theta = 1, .sections = {2, 1, 1}}, {0, 0, 1, 2});
  check({.theta = 1, .sections = {1, 0, 3}}, {0, 2, 2, 2});
  check({.theta = 1, .sections = {2, 1, 1}, .sections_interleaved = true}, {0, 1, 2, 0});
  check({.theta = 1, .sections = {3, 1, 0}, .sections_interleaved = true}, {0, 1, 0, 0});
}

TEST_CASE("rope: C2, C4 and C6 of sections") {
  const Rope op{.sections = {2, 1, 1}};
  expect_type(infer(op, {x_type, Shape({3, x_type[1]}, i32)}), to_string(x_type));
  expect_type(infer(op, {x_type, Shape({x_type[0], 3, x_type[1]}, i32)}), to_string(x_type));
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x_type, Shape({x_type[1]}, i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x_type, Shape({2, x_type[1]}, i32)}); });
  for (const IntList& sections : {IntList{2, 1, 2}, IntList{2, 1, 0}, IntList{5, -1, 0}}) {
    expect_error(Errc::bad_attribute,
                 [&] { infer(Rope{.sections = sections}, {x_type, Shape({3, x_type[1]}, i32)}); });
  }
}

TEST_CASE("rope: C5 dims") {
  for (const std::int64_t dims : {std::int64_t{-2}, std::int64_t{3}, std::int64_t{10}}) {
    expect_error(Errc::bad_attribute, [=] { infer(Rope{.dims = dims}, {x_type, positions_type}); });
  }
  expect_error(Errc::bad_attribute, [] { infer(Rope{}, {x_type.with_dim(3, 7), positions_type}); });
}

TEST_CASE("rope: C6 scaling") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Rope& op : {
           Rope{.scaling = "ntk"},
           Rope{.theta = 0},
           Rope{.theta = nan},
           Rope{.theta = infinity},
           Rope{.attention_factor = -1},
           Rope{.scaling = "linear", .factor = 0},
           Rope{.scaling = "llama3", .factor = 8},
           Rope{.scaling = "llama3", .factor = 8, .low_freq_factor = 4, .original_context = 8192},
           Rope{.scaling = "yarn", .factor = 8},
           Rope{.scaling = "yarn", .factor = 8, .original_context = 64, .beta_slow = 0},
           Rope{.theta = 1, .scaling = "yarn", .factor = 8, .original_context = 64},
       }) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {x_type, positions_type}); });
  }
}

}  // namespace
}  // namespace tenon::testing
