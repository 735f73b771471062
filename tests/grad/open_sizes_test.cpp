// Gradients of a program whose sizes are open are right for whatever sizes it is bound to: builders
// of several ops, and what happens where an open size turns out to broadcast. `every_op_test.cpp` has
// the ops.
#include "grad/run_session.hpp"
#include "support/op_testing.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

using Loss = std::function<Tensor(const Tensor& x, const Tensor& y, const Tensor& labels)>;

struct OpenCase {
  std::string name;
  Loss loss;
};

const std::vector<OpenCase>& cases() {
  static const std::vector<OpenCase> all{
      {"sum", [](auto x, auto, auto) { return sum(x * x); }},
      {"sum of a product of sums",
       [](auto x, auto y, auto) { return sum(sum(x, 1) * sum(y, 1, false)); }},
      {"mean", [](auto x, auto, auto) { return mean(x * x); }},
      {"mean along an open axis", [](auto x, auto y, auto) { return sum(mean(x, 1, true) * y); }},
      {"mean along known and open axes",
       [](auto x, auto, auto) { return sum(square(mean(x, {1, 2}))); }},
      {"max and min", [](auto x, auto, auto) { return sum(max(x, 1) - min(x, 1)); }},
      {"logsumexp", [](auto x, auto, auto) { return sum(logsumexp(x, 1)); }},
      {"norm", [](auto x, auto, auto) { return sum(norm(x, 3, 1)); }},
      {"l2_normalize", [](auto x, auto y, auto) { return sum(l2_normalize(x, 1) * y); }},
      {"softmax along an open axis", [](auto x, auto y, auto) { return sum(softmax(x, 1) * y); }},
      {"log_softmax", [](auto x, auto y, auto) { return sum(log_softmax(x, 1) * y); }},
      {"layer_norm", [](auto x, auto y, auto) { return sum(layer_norm(x, 1e-3) * y); }},
      {"rms_norm along an open axis",
       [](auto x, auto y, auto) {
         return sum(rms_norm(transpose(x, 1, 2), 1e-3) * transpose(y, 1, 2));
       }},
      {"group_norm",
       [](auto x, auto y, auto) {
         return sum(group_norm(transpose(x, 1, 2), 2) * transpose(y, 1, 2));
       }},
      {"batch_norm_training",
       [](auto x, auto y, auto) {
         return sum(batch_norm_training(transpose(x, 1, 2)).y * transpose(y, 1, 2));
       }},
      {"broadcasting", [](auto x, auto y, auto) { return sum(x * mean(y, {0, 1}, true) + 2.0); }},
      {"where", [](auto x, auto y, auto) { return sum(where(gt(x, y), x * y, y)); }},
      {"flip, slice and pad",
       [](auto x, auto y, auto) { return sum(pad(slice(flip(x, 1), 1, 1), 1, 0, 1) * y); }},
      {"concat", [](auto x, auto y, auto) { return sum(square(cumsum(concat({x, y, x}, 1), 1))); }},
      {"merged axes",
       [](auto x, auto y, auto) { return sum(merge_axes(x, 0, 1) * merge_axes(y, 0, 1)); }},
      {"flatten", [](auto x, auto y, auto) { return sum(square(flatten(x) + flatten(y))); }},
      {"matmul", [](auto x, auto y, auto) { return sum(square(matmul(x, transpose(y, 1, 2)))); }},
      {"swiglu", [](auto x, auto, auto) { return sum(swiglu(x)); }},
      {"tril", [](auto x, auto y, auto) { return sum(tril(matmul(x, transpose(y, 1, 2)))); }},
      {"cross_entropy", [](auto x, auto, auto labels) { return cross_entropy(x, labels); }},
      {"mse_loss", [](auto x, auto y, auto) { return mse_loss(x, y); }},
      {"l1_loss", [](auto x, auto y, auto) { return l1_loss(x, y); }},
      {"huber_loss", [](auto x, auto y, auto) { return huber_loss(x, y); }},
      {"binary_cross_entropy",
       [](auto x, auto y, auto) { return binary_cross_entropy(x, sigmoid(y)); }},
      {"kl_divergence",
       [](auto x, auto y, auto) { return kl_divergence(log_softmax(x, 2), softmax(y, 2)); }},
      {"cross_entropy of probabilities",
       [](auto x, auto y, auto) {
         return cross_entropy(x, softmax(y, 2), {.label_smoothing = 0.1});
       }},
      {"nll_loss of weighted classes",
       [](auto x, auto y, auto labels) {
         return nll_loss(log_softmax(x, 2), labels, {.weight = sigmoid(mean(y, {0, 1}))});
       }},
      {"smooth_l1_loss", [](auto x, auto y, auto) { return smooth_l1_loss(x, y, 0.5); }},
      {"log_cosh_loss", [](auto x, auto y, auto) { return log_cosh_loss(x, y); }},
      {"focal_loss", [](auto x, auto y, auto) { return focal_loss(x, sigmoid(y)); }},
      {"gaussian_nll_loss",
       [](auto x, auto y, auto) { return gaussian_nll_loss(x, y, exp(y), true); }},
      {"poisson_nll_loss",
       [](auto x, auto y, auto) { return poisson_nll_loss(x, exp(y), true, true); }},
      {"multi_margin_loss",
       [](auto x, auto, auto labels) { return multi_margin_loss(x, labels, {.p = 2}); }},
      {"triplet_margin_loss",
       [](auto x, auto y, auto) { return triplet_margin_loss(x, y, flip(y, 2), {.swap = true}); }},
      {"quantile and median",
       [](auto x, auto y, auto) { return quantile(x, 0.3) + sum(square(median(x * y, {1, 2}))); }},
      {"trapezoid and cdist",
       [](auto x, auto y, auto) { return sum(trapezoid(x, {}, 0.5, 1)) + sum(cdist(x, y)); }},
      {"correlations", [](auto x, auto, auto) { return sum(corrcoef(merge_axes(x, 0, 1)) * 0.5); }},
  };
  return all;
}

constexpr std::int64_t width = 6;

/// Loss and gradients of x and, where the loss depends on it, of y, all f64 but the labels.
Program program_of(const Loss& loss, std::int64_t rows, std::int64_t steps) {
  Graph graph;
  const Graph::Recording recording(graph);
  const Shape sizes({rows, steps, width}, f64);
  const Tensor x = graph.input("x", sizes), y = graph.input("y", sizes);
  const Tensor labels = graph.input("labels", Shape({rows, steps}, i32));
  const Tensor value = loss(x, y, labels) + sum(y) * 1e-3;
  const Tensor both[] = {x, y};
  std::vector<Tensor> results = grad(value, both);
  results.insert(results.begin(), value);
  return graph.program(results);
}

TEST_CASE("grad: one program for every batch and length") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const std::vector<BackendPtr> cpu{make_backend("cpu", {.threads = 2}), make_backend("reference")};
  const std::vector<BackendPtr> reference{cpu[1]};
  for (const auto& [name, loss] : cases()) {
    INFO(name);
    Session open(program_of(loss, symbol("B"), symbol("S")), {.backends = cpu});
    for (const auto& [rows, steps] : {std::pair{1, 1}, {3, 5}, {2, 17}}) {
      INFO(rows << " x " << steps);
      const Shape sizes({rows, steps, width}, f64);
      const HostBuffer labels = random.uniform(Shape({rows, steps}, i32), 0, width);
      const std::vector<HostBuffer> arrays{random.uniform(sizes), random.uniform(sizes), labels};
      Session closed(program_of(loss, rows, steps), {.backends = reference});
      const std::vector<HostBuffer> want = run_session(closed, arrays),
                                    got = run_session(open, arrays);
      for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], 1e-9, 1e-9);
    }
  }
}

TEST_CASE("grad: an open size that turns out to broadcast is refused when it is bound") {
  register_reference_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({symbol("S"), 2}, f64));
  const Tensor y = graph.input("y", Shape({symbol("T"), 2}, f64));
  const Tensor result = grad(sum(x * y), x);
  Session session(graph.program({&result, 1}), {.backends = {make_backend("reference")}});
  const auto array = [](std::int64_t rows) {
    HostBuffer made = HostBuffer::uninitialized(Shape({rows, 2}, f64));
    std::ranges::fill(made.mutable_values<double>(), 3.0);
    return made;
  };
  expect_equal(run_session(session, {array(2), array(2)}).at(0), {3, 3, 3, 3});
  expect_error(Errc::shape_mismatch, [&] { run_session(session, {array(1), array(2)}); });
}

TEST_CASE("grad: what needs a size says so at the op's line") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({1, 1, 5, 4}, f32));
  const Tensor w = graph.input("w", Shape({1, 1, symbol("K"), 2}, f32));
  const Tensor y = conv2d(x, w);
  const std::string text = expect_error(Errc::unsupported, [&] { grad(sum(y), x); });
  CHECK(text.find("open_sizes_test.cpp") != std::string::npos);
  CHECK(text.find("conv2d: its gradient needs sizes that are not known") != std::string::npos);
}

}  // namespace
}  // namespace tenon::testing
