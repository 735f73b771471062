#include "builder_cases.hpp"
#include "support/expect_error.hpp"
#include "support/literals.hpp"
#include "support/valued_graph.hpp"

#include <tenon/graph.hpp>
#include <tenon/nn/mixture_of_experts.hpp>
#include <tenon/ops/attention_mask.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/reduce.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

Tensor second(Operands x) { return x.size() > 1 ? x[1] : Tensor(); }

/// A value of the program that depends on its input too, which is 0.
Tensor beside(const Tensor& zero, const Tensor& y) { return add(y, cast(sum(zero), y.dtype())); }

const BuilderTable language_table = {
    {"alibi_slopes",
     [](Operands x, const Json& a) {
       return beside(x[0], alibi_slopes(number(a, "heads"), a.at("max_bias").get<double>()));
     }},
    {"alibi_mask",
     [](Operands x, const Json& a) {
       return alibi_mask(x[0], number(a, "queries"), number(a, "keys"), second(x));
     }},
    {"streaming_mask",
     [](Operands x, const Json& a) {
       return beside(x[0], streaming_mask(number(a, "window"), number(a, "first"),
                                          number(a, "queries"), number(a, "keys"), second(x)));
     }},
    {"prefix_mask",
     [](Operands x, const Json& a) {
       return prefix_mask(x[0], number(a, "queries"), number(a, "keys"), second(x));
     }},
    {"segment_mask", [](Operands x, const Json&) { return segment_mask(x[0], x[1]); }},
    {"segments_of",
     [](Operands x, const Json& a) {
       const IntList sizes = int_list(a.at("sizes"));
       return beside(x[0], segments_of(std::vector<std::int64_t>(sizes.begin(), sizes.end())));
     }},
    {"mixture_of_experts",
     [](Operands x, const Json& a) {
       nn::MixtureOfExperts<> mixture;
       mixture.router.weight = x[1];
       mixture.gate = x[2];
       mixture.up = x[3];
       mixture.down = x[4];
       if (x.size() > 5) mixture.router_bias = x[5];
       mixture.options = {number(a, "used"), Name(a.at("scores").get<std::string>()),
                          a.at("normalized").get<bool>(), a.at("scale").get<double>()};
       return mixture.forward(x[0]);
     }},
    {"gather_pages", [](Operands x, const Json&) { return gather_pages(x[0], x[1], x[2]); }},
};

TEST_CASE("builders: language models") { check_builders("language", language_table); }
TEST_CASE("builders: language models, fresh random cases", "[oracle]") {
  check_fresh_builders("language", language_table);
}

TEST_CASE("builders: a router without such scores, or with too few experts") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor logits = graph.input("logits", Shape({3, 4}, f32));
  expect_error(Errc::bad_attribute, [&] { nn::route(logits, {.scores = "entmax"}); });
  for (const std::int64_t used : {0, 5}) {
    expect_error(Errc::out_of_range, [&] { nn::route(logits, {.used = used}); });
  }
  nn::RouterOptions sparse{.scores = "sparsemixer", .normalized = false};
  CHECK(nn::route(logits, sparse).weights.shape() == Shape({3, 2}, f32));
  const Tensor bias = graph.input("bias", Shape({4}, f32));
  expect_error(Errc::bad_attribute, [&] { nn::route(logits, sparse, bias); });
  sparse.used = 3;
  expect_error(Errc::bad_attribute, [&] { nn::route(logits, sparse); });
}

TEST_CASE("builders: a router whose chosen scores are all but 0 divides by 2^-14") {
  ValuedGraph graph;
  const nn::RouterOptions options{.used = 2, .scores = "sigmoid"};
  const Tensor bias = graph.input(floats({3}, {9, 8, 0}));
  const auto weights_of = [&](float logit) {
    const Tensor logits = graph.input(floats({1, 3}, {logit, logit, 0}));
    return graph.value(nn::route(logits, options, bias).weights);
  };
  expect_equal(weights_of(-200), {0, 0});
  expect_close(weights_of(-11.090339F), floats({1, 2}, {0.25F, 0.25F}), 1e-5, 0);  // 2^-16 each
  expect_close(weights_of(-3), floats({1, 2}, {0.5F, 0.5F}), 1e-6, 0);
}

}  // namespace
}  // namespace tenon::testing
