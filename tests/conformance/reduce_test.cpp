// Sums of so many elements that threads share them, in every layout, and the same bits whoever computed what.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/reduce.hpp>

#include <cmath>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

void check_reduction(const OpInstance& op, const HostBuffer& x) {
  check_on_threads(op, {x}, [](const HostBuffer& got, const HostBuffer& want) {
    const HostBuffer a = got.to(f64), b = want.to(f64);
    const double rounding = got.shape().dtype() == f16 ? 1e-3 : 1e-6;
    for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
      const double value = b.values<double>()[i];
      if (std::isnan(value)) {
        CHECK(std::isnan(a.values<double>()[i]));
      } else {
        CHECK(a.values<double>()[i] == Approx(value).epsilon(rounding).margin(1e-4));
      }
    }
  });
}

TEST_CASE("reductions: long sums are shared by threads and have the same bits") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const auto values = [&](const Shape& shape, DType dtype) {
    HostBuffer x = random.uniform(shape);
    for (float& v : x.mutable_values<float>()) v = dtype == i32 ? 1000 * v : 1 + v / 1000;
    return x.to(dtype);
  };
  EveryThird third;
  for (const DType dtype : {f32, f16, i32}) {
    if (third.skips()) continue;
    const HostBuffer whole = values(Shape({70001}, f32), dtype);
    const HostBuffer rows = values(Shape({3, 33000}, f32), dtype);
    const HostBuffer columns = values(Shape({33000, 3}, f32), dtype);
    const HostBuffer inner = values(Shape({5, 40000, 2}, f32), dtype);
    check_reduction(OpInstance(Sum{{{0}}}), whole);
    check_reduction(OpInstance(Max{{{1}}}), rows);
    check_reduction(OpInstance(Sum{{{0}}}), columns);
    check_reduction(OpInstance(Min{{{0, 1}}}), inner);
    if (dtype != f16) check_reduction(OpInstance(Prod{{{1}}}), rows);
    if (dtype == f32) check_reduction(OpInstance(Mean{{{1}}}), inner);
  }
  // Planes that lie apart, whose rows are longer or shorter than what is summed at once.
  for (const std::int64_t run : {1, 4, 5, 48, 64}) {
    if (third.skips()) continue;
    check_reduction(OpInstance(Sum{{{0, 2}}}), values(Shape({38400 / run, 3, run}, f32), f32));
  }
  // Rows that are folded several at once: of every rest behind whole vectors, and fewer rows than a group.
  for (const std::int64_t columns :
       {1, 5, 15, 16, 17, 31, 33, 48, 49, 64, 79, 100, 128, 255, 1030}) {
    if (third.skips()) continue;
    for (const std::int64_t count : {1, 7, 16, 33, 150}) {
      HostBuffer some = values(Shape({count, columns}, f32), f32);
      check_reduction(OpInstance(Sum{{{1}}}), some);
      check_reduction(OpInstance(Mean{{{1}}}), some);
      check_reduction(OpInstance(Max{{{1}}}), some);
      check_reduction(OpInstance(Min{{{1}}}), some);
      // A NaN, and infinities of both signs, in every place of a vector over the rows.
      float* const element = some.mutable_values<float>().data();
      for (std::int64_t row = 0; row < count; ++row) {
        const float special[] = {std::nanf(""), HUGE_VALF, -HUGE_VALF};
        element[row * columns + 7 * row % columns] = special[row % 3];
      }
      check_reduction(OpInstance(Sum{{{1}}}), some);
      check_reduction(OpInstance(Max{{{1}}}), some);
      check_reduction(OpInstance(Min{{{1}}}), some);
    }
  }
  check_reduction(OpInstance(Max{{{2}}}), values(Shape({3, 5, 70}, f32), f32));
  check_reduction(OpInstance(Sum{{{1}}}), values(Shape({80, 70, 3}, f32), f32));
  HostBuffer x = values(Shape({40000, 2}, f32), f32);
  x.mutable_values<float>()[79999] = std::nanf("");
  check_reduction(OpInstance(Max{{{0}}}), x);
  check_reduction(OpInstance(Min{{{0}}}), x);
}

TEST_CASE("reductions: many short rows are folded side by side") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  EveryThird third;
  for (const DType dtype : {f32, f16, f64, i64, i8}) {
    for (const std::int64_t length : {2, 3, 10, 17, 48, 49}) {
      if (third.skips()) continue;
      HostBuffer x = random.uniform(Shape({515, length}, f32));
      x.mutable_values<float>()[static_cast<std::size_t>(length)] =
          dtype == f32 ? std::nanf("") : 0;
      x = x.to(dtype);
      check_reduction(OpInstance(Sum{{{1}}}), x);
      check_reduction(OpInstance(Max{{{1}}}), x);
      if (is_floating(dtype)) check_reduction(OpInstance(Mean{{{1}}}), x);
    }
  }
  // Rows of whose axes the last is long or short, and rows that are two axes.
  check_reduction(OpInstance(Prod{{{2}}}), random.uniform(Shape({3, 70, 5}, f32)));
  check_reduction(OpInstance(Min{{{1}}}), random.uniform(Shape({66, 5, 2}, f32)));
  check_reduction(OpInstance(Sum{{{1, 2}}}), random.uniform(Shape({130, 3, 4}, f32)));
  check_reduction(OpInstance(Sum{{{1}}}), HostBuffer::zeros(Shape({70, 0}, f32)));
  // Columns whose rows follow each other: whole blocks of them, and some more.
  for (const std::int64_t columns : {1, 10, 256, 257}) {
    if (third.skips()) continue;
    const HostBuffer x = random.uniform(Shape({2113, columns}, f32));
    check_reduction(OpInstance(Sum{{{0}}}), x);
    check_reduction(OpInstance(Max{{{0}}}), x.to(i64));
    check_reduction(OpInstance(Prod{{{0}}}),
                    random.uniform(Shape({500, columns}, f32), 0.98, 1.02));
  }
  // Sums of f64 that are no sums of f32 show an order of their own for any number of threads.
  const auto fractions = [&](const Shape& shape) {
    HostBuffer x = random.uniform(shape).to(f64);
    for (double& v : x.mutable_values<double>()) v /= 3;
    return x;
  };
  check_reduction(OpInstance(Sum{{{0}}}), fractions(Shape({2113, 33}, f32)));
  check_reduction(OpInstance(Sum{{{0}}}), fractions(Shape({33001, 20}, f32)));
  check_reduction(OpInstance(Sum{{{1}}}), fractions(Shape({7, 33001, 5}, f32)));
}

}  // namespace
}  // namespace tenon::testing
