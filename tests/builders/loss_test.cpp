#include "builder_cases.hpp"
#include "support/literals.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/loss.hpp>
#include <tenon/ops/reduce.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

const BuilderTable loss_table = {
    {"cross_entropy",
     [](Operands x, const Json& a) {
       return cross_entropy(x[0], x[1], {.label_smoothing = a.at("label_smoothing").get<double>()});
     }},
    {"mse_loss", [](Operands x, const Json&) { return mse_loss(x[0], x[1]); }},
    {"l1_loss", [](Operands x, const Json&) { return l1_loss(x[0], x[1]); }},
    {"huber_loss",
     [](Operands x, const Json& a) { return huber_loss(x[0], x[1], a.at("delta").get<double>()); }},
    {"binary_cross_entropy",
     [](Operands x, const Json&) { return binary_cross_entropy(x[0], x[1]); }},
    {"kl_divergence", [](Operands x, const Json&) { return kl_divergence(x[0], x[1]); }},
};

TEST_CASE("builders: losses") { check_builders("loss", loss_table); }
TEST_CASE("builders: losses, fresh random cases", "[oracle]") {
  check_fresh_builders("loss", loss_table);
}

TEST_CASE("losses: second derivatives where the prediction is 0, or right") {
  ValuedGraph graph;
  const auto second = [&](const Tensor& loss, const Tensor& x) {
    return graph.value(grad(sum(grad(loss, x)), x));
  };
  const Tensor logit = graph.input(floats({2}, {0, 0})), target = graph.input(floats({2}, {1, 0}));
  expect_equal(graph.value(grad(binary_cross_entropy(logit, target), logit)), {-0.25, 0.25});
  expect_equal(second(binary_cross_entropy(logit, target), logit), {0.125, 0.125});
  const Tensor x = graph.input(floats({3}, {1, 1, 4})), of = graph.input(floats({3}, {1, 1.5, 1}));
  expect_near(second(huber_loss(x, of), x), {1.0 / 3, 1.0 / 3, 0});
}
TEST_CASE("binary_cross_entropy: small losses of large logits") {
  ValuedGraph graph;
  const Tensor logits = graph.input(floats({2}, {30, -30}));
  const Tensor loss = binary_cross_entropy(logits, graph.input(floats({2}, {1, 0})));
  CHECK(graph.value(loss).values<float>()[0] == Approx(9.3576229688e-14).epsilon(1e-4).margin(0));
}

}  // namespace
}  // namespace tenon::testing
