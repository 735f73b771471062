// Factorisations and equations by the kernels of each instruction set, of sizes around those of their tiles and blocks,
// against the reference, which is Eigen's; in every layout, and with the same bits whatever the number of threads.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/linear_algebra.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

HostBuffer run_factor(const OpInstance& op, const std::vector<HostBuffer>& inputs, int threads) {
  OpCase op_case;
  op_case.op = op;
  op_case.inputs = inputs;
  return run_case(op_case, {make_backend("cpu", {.threads = threads})}, Order::dense);
}

void check_factor(const OpInstance& op, const std::vector<HostBuffer>& inputs) {
  check_on_threads(op, inputs, [](const HostBuffer& got, const HostBuffer& want) {
    CHECK(relative_difference(got, want) <= (got.shape().dtype() == f32 ? 3e-7 : 1e-9));
  });
}

/// a a^T + n.
HostBuffer definite(const HostBuffer& a) {
  const std::int64_t n = a.shape()[1];
  HostBuffer y = HostBuffer::zeros(a.shape());
  for (std::int64_t b = 0; b < a.shape()[0]; ++b) {
    const double* x = a.values<double>().data() + b * n * n;
    double* to = y.mutable_values<double>().data() + b * n * n;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = i == j ? static_cast<double>(n) : 0;
        for (std::int64_t k = 0; k < n; ++k) sum += x[i * n + k] * x[j * n + k];
        to[i * n + j] = sum;
      }
    }
  }
  return y;
}

TEST_CASE("factorisations: sizes around tiles and blocks") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  EveryThird third;
  for (const std::int64_t n : {1, 2, 7, 8, 9, 16, 23, 24, 25, 33, 64, 65, 97, 128, 131, 258}) {
    if ((round_stride > 1 && n > 70) || third.skips()) continue;
    const std::int64_t batch = n < 40 ? 5 : 1;
    const HostBuffer a = random.uniform(Shape({batch, n, n}, f64));
    const HostBuffer positive = definite(a);
    for (const DType dtype : {f64, f32}) {
      const auto of = [&](const HostBuffer& x) { return x.to(dtype); };
      check_factor(OpInstance(Cholesky{}), {of(positive)});
      check_factor(OpInstance(Lu{}), {of(a)});
      check_factor(OpInstance(Slogdet{}), {of(a)});
      if (n < 30) check_factor(OpInstance(Det{}), {of(a)});
      for (const std::int64_t k : {1, 26}) {
        const HostBuffer b = random.uniform(Shape({batch, n, k}, f64));
        check_factor(OpInstance(Solve{}), {of(positive), of(b)});
        for (const bool lower : {true, false}) {
          // The other triangle is there, and is not read.
          check_factor(OpInstance(TriangularSolve{.lower = lower}), {of(positive), of(b)});
          check_factor(OpInstance(TriangularSolve{.lower = lower, .transposed = true}),
                       {of(positive), of(b)});
        }
      }
      check_factor(OpInstance(Qr{}), {of(a)});
      const HostBuffer tall = random.uniform(Shape({batch, n + 70, n}, f64));
      check_factor(OpInstance(Qr{}), {of(tall)});
      check_factor(OpInstance(Qr{}), {of(random.uniform(Shape({batch, n, n + 5}, f64)))});
    }
  }
  // Unit triangles grow quickly unless they are near the identity.
  HostBuffer near = random.uniform(Shape({2, 90, 90}, f64));
  for (double& v : near.mutable_values<double>()) v /= 90;
  const HostBuffer b = random.uniform(Shape({2, 90, 3}, f64));
  for (const bool lower : {true, false}) {
    check_factor(OpInstance(TriangularSolve{.lower = lower, .unit = true}), {near, b});
    check_factor(OpInstance(TriangularSolve{.lower = lower, .transposed = true, .unit = true}),
                 {near, b});
  }
}

TEST_CASE("factorisations: q r is the matrix at scales whose squares overflow or vanish") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  for (const auto& [m, n] : {std::pair{4, 3}, {40, 33}, {2, 2}}) {
    const HostBuffer at_one = random.uniform(Shape({1, m, n}, f64));
    for (const double scale : {1.0, 1e-300, 1e-160, 1e160, 1e300}) {
      INFO(m << " by " << n << " at " << scale);
      HostBuffer a = at_one.to(f64);
      for (double& x : a.mutable_values<double>()) x *= scale;
      check_factor(OpInstance(Qr{}), {a});
      const HostBuffer factors = run_factor(OpInstance(Qr{}), {a}, 1);
      const auto packed = factors.values<double>();  // rows of q transposed and r
      double worst = 0;
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double product = 0;
          for (int k = 0; k < std::min(m, n); ++k) {
            const std::size_t row = static_cast<std::size_t>(k) * static_cast<std::size_t>(m + n);
            product += packed[row + static_cast<std::size_t>(i)] *
                       (packed[row + static_cast<std::size_t>(m + j)] / scale);
          }
          const double want = at_one.values<double>()[static_cast<std::size_t>(i * n + j)];
          worst = std::max(worst, std::fabs(product - want));
        }
      }
      CHECK(worst < 1e-13);
    }
  }
}

TEST_CASE("factorisations: matrices that have none, or lack rank") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  constexpr std::int64_t n = 40;
  const HostBuffer a = random.uniform(Shape({1, n, n}, f64));
  const HostBuffer positive = definite(a);
  const auto at = [](HostBuffer& x, std::int64_t i, std::int64_t j) -> double& {
    return x.mutable_values<double>()[static_cast<std::size_t>(i * n + j)];
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {-1.0, 0.0, infinity, -infinity, std::nan("")}) {
    for (const std::int64_t place : {std::int64_t{0}, std::int64_t{21}, n - 1}) {
      INFO(value << " at " << place);
      HostBuffer x = positive.to(f64);
      at(x, place, place) = value;
      const HostBuffer y = run_factor(OpInstance(Cholesky{}), {x}, 1);
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          const double element = y.values<double>()[static_cast<std::size_t>(i * n + j)];
          CHECK((j > i ? element == 0 : std::isnan(element)));
        }
      }
    }
  }
  // Two equal rows: a zero, or what rounding leaves of it, on the diagonal of u and of r.
  HostBuffer x = a.to(f64);
  for (std::int64_t j = 0; j < n; ++j) at(x, 17, j) = at(x, 3, j);
  const HostBuffer packed = run_factor(OpInstance(Lu{}), {x}, 1);
  const HostBuffer both = run_factor(OpInstance(Qr{}), {x}, 1);
  const double *u = packed.values<double>().data() + n, *q = both.values<double>().data();
  double least = 1, apart = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto source =
        static_cast<std::int64_t>(packed.values<double>()[static_cast<std::size_t>(i)]);
    least = std::min(least, std::fabs(u[i * n + i]));
    CHECK(q[i * 2 * n + n + i] >= 0);
    for (std::int64_t j = 0; j < n; ++j) {
      double product = 0, sum = 0, dot = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        if (k <= std::min(i, j)) product += (k == i ? 1 : u[i * n + k]) * u[k * n + j];
        sum += q[k * 2 * n + i] * q[k * 2 * n + n + j];
        dot += q[i * 2 * n + k] * q[j * 2 * n + k];
      }
      apart = std::max({apart, std::fabs(product - at(x, source, j)), std::fabs(sum - at(x, i, j)),
                        std::fabs(dot - (i == j ? 1 : 0))});
    }
  }
  CHECK(least < 1e-7);  // rounding, times the condition of the other rows
  CHECK(apart < 1e-11);
}

}  // namespace
}  // namespace tenon::testing
