// lgamma and digamma near their zeros and poles, on both sides of where their kernels take another way, against the ops' own
// definitions, one number at a time: the C library's and a recurrence.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/ops/special.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Ends of f32 and poles, 40 numbers on either side of each of `places`, and 20000 from -20 to 40.
std::vector<float> arguments(std::initializer_list<float> places) {
  std::vector<float> x = {0.0f,       -0.0f,       1.0f,         2.0f,   -1.0f,  -5.0f,
                          infinity,   -infinity,   3e38f,        -3e38f, 1e-45f, -1e-45f,
                          8388607.5f, -8388607.5f, -4194303.5f,  1e-38f, 0.5f,   7.999999f,
                          8.0f,       16777217.0f, std::nanf("")};
  for (const float at : places) {
    float below = at, above = at;
    for (int i = 0; i < 40; ++i) {
      below = std::nextafter(below, -infinity);
      above = std::nextafter(above, infinity);
      x.push_back(below);
      x.push_back(above);
    }
  }
  Random random;
  const HostBuffer more = random.uniform(Shape({20000}, f32));
  for (const float v : more.values<float>()) x.push_back(30 * v + 10);
  return x;
}

/// Every result within 2 ulp of Op::of, all but 250 the nearest number.
template <class Op>
void check(const std::vector<float>& x) {
  register_cpu_backend();
  HostBuffer input = HostBuffer::zeros(Shape({static_cast<std::int64_t>(x.size())}, f32));
  std::copy(x.begin(), x.end(), input.mutable_values<float>().begin());
  OpCase op_case;
  op_case.op = OpInstance(Op{});
  op_case.inputs = {input};
  const HostBuffer y = run_case(op_case, {make_backend("cpu", {.threads = 2})}, Order::dense);
  int rounded_otherwise = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = Op::of(static_cast<double>(x[i]));
    const auto want = static_cast<float>(exact), got = y.values<float>()[i];
    INFO(Op::name << "(" << x[i] << ") is " << exact << ", got " << got);
    if (std::isnan(want)) {
      CHECK(std::isnan(got));
    } else if (std::isinf(want) || want == 0) {
      CHECK(got == want);
    } else {
      const float last = std::nextafter(std::fabs(want), infinity) - std::fabs(want);
      CHECK(std::fabs(static_cast<double>(got) - exact) <= 2.0 * static_cast<double>(last));
      rounded_otherwise += got != want;
    }
  }
  CHECK(rounded_otherwise < 250);
}

TEST_CASE("lgamma: zeros, poles, and the ends of f32") {
  check<Lgamma>(
      arguments({0.5f, 1.0f, 2.0f, 8.0f, -1.0f, -2.4570248f, -2.7476826f, -3.1435809f, -7.0f}));
}

TEST_CASE("digamma: zeros, poles, and the ends of f32") {
  check<Digamma>(arguments({1.4616321f, 8.0f, -0.5f, -0.50408304f, -1.0f, -1.5734985f, -2.6107209f,
                            -7.0f, -9.7026725f}));
}

}  // namespace
}  // namespace tenon::testing
