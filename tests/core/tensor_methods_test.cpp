// Tensor's methods record what the functions of their names record, at the caller's line.
#include "support/expect_error.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>

#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace tenon::testing;
using Build = std::function<std::vector<Tensor>(const Tensor& x, const Tensor& i)>;

std::string text_of(const Build& build) {
  Graph graph;
  const Tensor x = graph.input("x", Shape({{"a", 2}, {"b", 3}, {"c", 4}}, f32));
  const Tensor i = graph.input("i", Shape({}, i32));
  return print(graph.program(build(x, i)));
}

TEST_CASE("Tensor: methods record what the functions record") {
#define SAME(method, function)                                                      \
  CHECK(text_of([](const Tensor& x, const Tensor& i) -> std::vector<Tensor> {       \
          static_cast<void>(i);                                                     \
          return method;                                                            \
        }) == text_of([](const Tensor& x, const Tensor& i) -> std::vector<Tensor> { \
          static_cast<void>(i);                                                     \
          return function;                                                          \
        }))
#define LIST(...) {__VA_ARGS__}
  const std::int64_t dims[] = {6, -1};
  CHECK(text_of([&](const Tensor& x, const Tensor&) { return std::vector{x.reshape(dims)}; }) ==
        text_of([&](const Tensor& x, const Tensor&) { return std::vector{reshape(x, dims)}; }));
  SAME(LIST(x.reshape({{"n", 6}, {"m", -1}})), LIST(reshape(x, {{"n", 6}, {"m", -1}})));
  SAME(LIST(x.flatten()), LIST(flatten(x)));
  SAME(LIST(x.flatten("b", 2)), LIST(flatten(x, "b", 2)));
  SAME(LIST(x.permute({2, "a", 1})), LIST(permute(x, {2, "a", 1})));
  SAME(LIST(x.transpose()), LIST(transpose(x)));
  SAME(LIST(x.transpose(0, "c")), LIST(transpose(x, 0, "c")));
  SAME(LIST(x.unsqueeze(1, "new").squeeze("new")), LIST(squeeze(unsqueeze(x, 1, "new"), "new")));
  SAME(LIST(x.broadcast_to({5, 2, 3, 4})), LIST(broadcast_to(x, {5, 2, 3, 4})));
  SAME(LIST(x.flip()), LIST(flip(x)));
  SAME(LIST(x.flip({0, "c"})), LIST(flip(x, {0, "c"})));
  SAME(LIST(x.slice("b", 1)), LIST(slice(x, "b", 1)));
  SAME(LIST(x.slice(2, -1, to_end, -2)), LIST(slice(x, 2, -1, to_end, -2)));
  SAME(x.split({1, 2}, "b"), split(x, {1, 2}, "b"));
  SAME(x.chunk(2, -1), chunk(x, 2, -1));
  SAME(LIST(x.select(i)), LIST(select(x, i)));
  SAME(LIST(x.gather(i)), LIST(gather(x, i)));
  SAME(LIST(x.gather(i, "c")), LIST(gather(x, i, "c")));
  SAME(LIST(x.take_along(x.argsort())), LIST(take_along(x, argsort(x))));
  SAME(LIST(x.masked_fill(gt(x, x), 3.0)), LIST(masked_fill(x, gt(x, x), 3.0)));
  SAME(LIST(x.cast(f16)), LIST(cast(x, f16)));
  SAME(LIST(x.matmul(x.reshape({2, 4, 3}))), LIST(matmul(x, reshape(x, {2, 4, 3}))));
  SAME(LIST(x.pow(x).minimum(x).maximum(x)), LIST(maximum(minimum(pow(x, x), x), x)));
  SAME(LIST(x.clamp(-1, 2)), LIST(clamp(x, -1, 2)));
  SAME(LIST(x.abs().neg().sign().square().sqrt().rsqrt().reciprocal().exp().log()),
       LIST(log(exp(reciprocal(rsqrt(sqrt(square(sign(neg(abs(x)))))))))));
  SAME(LIST(x.sin().cos().tanh().sigmoid().relu().gelu().silu().floor().ceil().round()),
       LIST(round(ceil(floor(silu(gelu(relu(sigmoid(tanh(cos(sin(x))))))))))));
  SAME(LIST(x.sum(), x.mean({0, "c"}, true), x.prod("b")),
       LIST(sum(x), mean(x, {0, "c"}, true), prod(x, "b")));
  SAME(LIST(x.max(), x.min(1), x.logsumexp("a", true)),
       LIST(max(x), min(x, 1), logsumexp(x, "a", true)));
  SAME(LIST(gt(x, x).any(), gt(x, x).all(0)), LIST(any(gt(x, x)), all(gt(x, x), 0)));
  SAME(LIST(x.variance(), x.variance(0, 0, true)), LIST(variance(x), variance(x, 0, 0, true)));
  SAME(LIST(x.norm(), x.norm(1, "b", true)), LIST(norm(x), norm(x, 1, "b", true)));
  SAME(LIST(x.argmax(), x.argmin("a", true, i64)), LIST(argmax(x), argmin(x, "a", true, i64)));
  SAME(LIST(x.softmax(), x.log_softmax(0), x.cumsum("b")),
       LIST(softmax(x), log_softmax(x, 0), cumsum(x, "b")));
  SAME(LIST(x.sort(), x.sort(0, true), x.argsort("b", true)),
       LIST(sort(x), sort(x, 0, true), argsort(x, "b", true)));
#undef LIST
#undef SAME
}

TEST_CASE("Tensor: errors of methods name the caller's line") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({2, 3}, f32));
  const int line = __LINE__ + 1;
  const std::string text = expect_error(Errc::axis_out_of_range, [&] { x.softmax(2); });
  CHECK(text.find("tensor_methods_test.cpp:" + std::to_string(line)) != std::string::npos);
  CHECK(text.find("softmax") != std::string::npos);
  expect_error(Errc::stale_handle, [] { Tensor().exp(); });
}

}  // namespace
}  // namespace tenon
