// Gradients at values where a part of their formula overflows, vanishes or is infinite.
#include "grad/run_session.hpp"
#include "support/op_testing.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace tenon::testing {
namespace {

using LossOf = std::function<Tensor(const Tensor&)>;
using Values = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The gradient of a loss at values that are rounded to a type.
Values gradient_at(std::initializer_list<Axis> sizes, DType dtype, const Values& values,
                   const LossOf& loss) {
  register_cpu_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape(sizes, f64));
  const Tensor at = cast(x, dtype);
  const Tensor slope = cast(grad(loss(at), at), f64);
  Session session(graph.program({&slope, 1}), {.backends = default_backends()});
  HostBuffer array = HostBuffer::uninitialized(x.shape());
  std::ranges::copy(values, array.mutable_values<double>().begin());
  return elements(run_session(session, {array})[0]);
}

Values repeated(std::size_t count, double value) { return Values(count, value); }

/// That of halves is that of f64, rounded.
void check_halves(std::initializer_list<Axis> sizes, const Values& values, const LossOf& loss) {
  const Values want = gradient_at(sizes, f64, values, loss);
  for (const DType dtype : {f16, bf16}) {
    INFO(name(dtype));
    const Values got = gradient_at(sizes, dtype, values, loss);
    REQUIRE(got.size() == want.size());
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::fabs(want[i]));
      worst = std::max(worst, std::fabs(got[i] - want[i]));
      if (!std::isfinite(got[i])) worst = infinity;
    }
    CHECK(largest > 0);
    CHECK(worst <= largest * (dtype == f16 ? 2e-3 : 1e-2));
  }
}

}  // namespace

TEST_CASE("grad: attention of a query from which finite masks hide every key") {
  // Only -inf hides a key for good: with the same large number everywhere, the result is the values' mean.
  constexpr double lowest = std::numeric_limits<float>::lowest();
  for (const DType dtype : {f32, f64}) {
    for (const double hidden : {-1e8, -1e30, -2e38, lowest}) {
      INFO(name(dtype) << " " << hidden);
      const auto by = [&](int operand, const Values& mask) {
        return gradient_at({1, 2, 1, 1}, dtype, {2, 3}, [&](const Tensor& x) {
          const Tensor one = full_like(x, 1), query = slice(one, 1, 0, 1);
          Tensor masks = full(0, Shape({0}, f32));
          for (const double number : mask)
            masks = concat({masks, full(number, Shape({1}, f32))}, 0);
          return sum(attention(query, operand == 1 ? x : one, operand == 2 ? x : one, {}, {},
                               unsqueeze(masks, 0)));
        });
      };
      CHECK(by(2, {hidden, hidden}) == Values{0.5, 0.5});
      CHECK(by(2, {hidden, -infinity}) == Values{1, 0});
      CHECK(by(2, {-infinity, -infinity}) == Values{0, 0});
      CHECK(by(2, {0, hidden}) == Values{1, 0});
      for (const double slope : by(1, {hidden, -infinity})) CHECK(slope == 0);
    }
  }
}

TEST_CASE("grad: norms of halves whose squares overflow") {
  // Multiples of 4 up to 512 are numbers of bf16, too.
  const Values values{300, -400, 500, 4, -260, 320, 8, 440};
  const LossOf weighted = [](const Tensor& y) {
    return sum(cast(y, f32) * cast(y, f32) * 0.25F + cast(y, f32));
  };
  check_halves({2, 4}, values, [&](const Tensor& x) { return weighted(rms_norm(x, 1e-5)); });
  check_halves({2, 4}, values,
               [&](const Tensor& x) { return weighted(slice(layer_norm(x, 1e-5), 1, 1, 3)); });
  check_halves({1, 4, 2}, values, [&](const Tensor& x) {
    return weighted(slice(group_norm(x, 2, {}, {}, 1e-5), 2, 0, 1));
  });
  check_halves({2, 2, 2}, values, [&](const Tensor& x) {
    const Tensor zero = scalar_like(x, 0) * slice(x, 2, 0, 1);
    const Tensor row = reshape(slice(zero, 0, 0, 1), {2});
    return weighted(batch_norm(x, row, row + 40000.0, {}, {}, 1e-5));
  });
}

TEST_CASE("grad: means and extremes of more elements than f16 counts") {
  const Values zeros = repeated(100000, 0);
  check_halves({100000}, zeros, [](const Tensor& x) { return mean(x) * 100.0; });
  check_halves({100000}, zeros, [](const Tensor& x) { return max(x) * 100.0; });
  check_halves({100000}, zeros, [](const Tensor& x) { return min(x) * 100.0; });
}

TEST_CASE("grad: activations far from 0") {
  for (const DType dtype : {f16, f32}) {
    const Values got = gradient_at({3}, dtype, {-300, 300, 500},
                                   [](const Tensor& x) { return sum(gelu_tanh(x)); });
    CHECK(got == Values{0, 1, 1});
  }
  CHECK(gradient_at({2}, f32, {-1e30, 1e30}, [](const Tensor& x) { return sum(gelu_tanh(x)); }) ==
        Values{0, 1});
  CHECK(gradient_at({4}, f32, {-infinity, infinity, -4, 0},
                    [](const Tensor& x) { return sum(hardswish(x)); }) == Values{0, 1, 0, 0.5});
}

TEST_CASE("grad: an infinite gradient does not pass where an activation is flat") {
  const auto root_of = [](const Values& values, auto of) {  // PyTorch's
    return gradient_at({static_cast<std::int64_t>(values.size())}, f64, values,
                       [&](const Tensor& x) { return sum(sqrt(of(x))); });
  };
  CHECK(root_of({-1, 0, 4}, [](auto x) { return relu(x); }) == Values{0, 0, 0.25});
  CHECK(root_of({-1, 4, 7}, [](auto x) { return relu6(x); }) == Values{0, 0.25, 0});
  CHECK(root_of({2, 7}, [](auto x) { return 6 - relu6(x); }) == Values{-0.25, 0});
  CHECK(root_of({-4}, [](auto x) { return hardsigmoid(x); }) == Values{0});
  CHECK(root_of({4}, [](auto x) { return 1 - hardsigmoid(x); }) == Values{0});
  CHECK(root_of({-4}, [](auto x) { return hardswish(x); }) == Values{0});
  CHECK(root_of({-1, 4}, [](auto x) { return maximum(x, scalar_like(x, 0)); }) == Values{0, 0.25});
  CHECK(root_of({-4, 1}, [](auto x) { return -minimum(x, scalar_like(x, 0)); }) ==
        Values{-0.25, 0});
  CHECK(root_of({-1, 4}, [](auto x) {
          const Tensor zero = scalar_like(x, 0);
          return square(where(gt(x, zero), sqrt(relu(x)), zero));
        }) == Values{0, 0.25});
}

TEST_CASE("grad: at the bounds of softshrink and prelu") {
  CHECK(gradient_at({6}, f64, {-0.5, 0.5, 0.25, 1, -1, infinity}, [](const Tensor& x) {
          return sum(softshrink(x, 0.5));
        }) == Values{0, 0, 0, 1, 1, 1});
  CHECK(gradient_at({3}, f64, {-1, 0, 1}, [](const Tensor& x) {
          return sum(prelu(x, scalar_like(x, 0.25)));
        }) == Values{0.25, 0.25, 1});
}

TEST_CASE("grad: a power of 0 by its exponent") {
  CHECK(gradient_at({3}, f64, {-1, 0, 2}, [](const Tensor& b) {
          return sum(pow(full_like(b, 0), b));
        }) == Values{-infinity, 0, 0});
}

TEST_CASE("grad: a slice whose step is longer than its axis") {
  for (const std::int64_t step : {std::int64_t{1} << 61, -(std::int64_t{1} << 61)}) {
    const std::int64_t first = step > 0 ? 1 : 2;
    const Values want = step > 0 ? Values{0, 1, 0} : Values{0, 0, 1};
    CHECK(gradient_at({3}, f64, {1, 2, 3}, [&](const Tensor& x) {
            return sum(slice(x, 0, first, to_end, step));
          }) == want);
  }
}

TEST_CASE("grad: a logarithm that is multiplied by 0") {
  const auto slope = [](double at, double b) {
    return gradient_at({1}, f64, {at},
                       [&](const Tensor& a) { return sum(xlogy(a, scalar_like(a, b))); })[0];
  };
  CHECK(slope(0, 2) == Approx(std::log(2)));
  CHECK(slope(0, 1) == 0);
  CHECK(slope(0, 0) == 0);
  CHECK(slope(0, infinity) == 0);
  CHECK(slope(3, 5) == Approx(std::log(5)));
}

TEST_CASE("grad: complex roots of real numbers, and the sign of 0") {
  // torch.sqrt of complex64, of the sum of the root's parts.
  const auto root = [](const Tensor& parts) {
    const Tensor z = sqrt(view_as_complex(parts));
    return sum(real(z) + imag(z));
  };
  const Values got = gradient_at({2, 2}, f32, {4, 0, -4, 0}, root);
  const Values want{0.25, 0.25, -0.25, 0.25};
  for (std::size_t i = 0; i < 4; ++i) CHECK(got[i] == Approx(want[i]));
  CHECK(gradient_at({1, 2}, f32, {0, 0}, [](const Tensor& parts) {
          return sum(real(sign(view_as_complex(parts))));
        }) == Values{0, 0});
}

TEST_CASE("grad: of equal eigenvalues and singular values alone") {
  const Values identity{1, 0, 0, 0, 1, 0, 0, 0, 1};
  const auto is_near = [](const Values& got, const Values& want) {
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-12));
  };
  is_near(gradient_at({3, 3}, f64, identity, [](const Tensor& x) { return sum(eigh(x).values); }),
          identity);
  is_near(gradient_at({3, 3}, f64, identity, [](const Tensor& x) { return sum(svd(x).values); }),
          identity);
  // Of rank 1, where the sum's gradient is that of the one value.
  const Values got = gradient_at({3, 2}, f64, {2, 0, 0, 0, 0, 0}, [](const Tensor& x) {
    return sum(slice(svd(x).values, -1, 0, 1));
  });
  is_near(got, {1, 0, 0, 0, 0, 0});
}

TEST_CASE("grad: in a checkpointed region, what does not run is not computed") {
  const auto root_or_line = [](const Tensor& x) {
    return cond(gt(x, scalar_like(x, 0)), [&] { return sqrt(x); }, [&] { return x * 3.0; });
  };
  for (const double at : {-1.0, 0.0}) {
    CHECK(gradient_at({}, f32, {at}, [&](const Tensor& x) {
            return checkpointed([&] { return root_or_line(x); });
          }) == Values{3});
  }
  // A loop of three steps whose limit is far beyond the rows that it reads.
  const auto products = [](const Tensor& x) {
    const Tensor zero = cast(scalar_like(x, 0), i64), one = scalar_like(select(x, zero), 1);
    const auto [count, product] = while_loop(
        std::pair(zero, one),
        [](const std::pair<Tensor, Tensor>& now) {
          return lt(now.first, scalar_like(now.first, 3));
        },
        [&](const std::pair<Tensor, Tensor>& now) {
          return std::pair(now.first + 1, now.second * select(x, now.first));
        },
        5000);
    return product;
  };
  CHECK(gradient_at({3}, f32, {2, 3, 5}, [&](const Tensor& x) {
          return checkpointed([&] { return products(x); });
        }) == Values{15, 10, 6});
}

TEST_CASE("grad: through a scan with outputs in a checkpointed region") {
  const auto loss = [](const Tensor& x) {
    const auto scanned = scan(scalar_like(x, 1), x, [](const Tensor& carry, const Tensor& now) {
      const Tensor next = carry * now;
      return std::pair(next, next);
    });
    return sum(scanned.outputs * scanned.outputs);
  };
  const Values values{1.5, -2, 0.5, 3};
  const Values want = gradient_at({4}, f64, values, loss);
  const Values got = gradient_at(
      {4}, f64, values, [&](const Tensor& x) { return checkpointed([&] { return loss(x); }); });
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]));
}

}  // namespace tenon::testing
