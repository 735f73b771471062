#include "builder_cases.hpp"
#include "grad/run_session.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/load.hpp>
#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/loss.hpp>
#include <tenon/ops/reduce.hpp>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using Loss = std::function<Tensor(Operands, Reduction)>;

Tensor ctc(Operands x, const CtcOptions& options) {
  return ctc_loss(log_softmax(x[0]), x[1], x[2], x[3], options);
}

/// The cases of python/tests/record_losses.py.
const std::map<std::string, Loss> losses = {
    {"mse_loss", [](Operands x, Reduction r) { return mse_loss(x[0], x[1], r); }},
    {"l1_loss", [](Operands x, Reduction r) { return l1_loss(x[0], x[1], r); }},
    {"huber_loss", [](Operands x, Reduction r) { return huber_loss(x[0], x[1], 0.7, r); }},
    {"smooth_l1_loss", [](Operands x, Reduction r) { return smooth_l1_loss(x[0], x[1], 0.6, r); }},
    {"smooth_l1_loss_0", [](Operands x, Reduction r) { return smooth_l1_loss(x[0], x[1], 0, r); }},
    {"binary_cross_entropy",
     [](Operands x, Reduction r) { return binary_cross_entropy(x[0], x[1], {.reduction = r}); }},
    {"binary_cross_entropy_weighted",
     [](Operands x, Reduction r) { return binary_cross_entropy(x[0], x[1], {x[2], x[3], r}); }},
    {"focal_loss",
     [](Operands x, Reduction r) { return focal_loss(x[0], x[1], {.reduction = r}); }},
    {"focal_loss_plain",
     [](Operands x, Reduction r) {
       return focal_loss(x[0], x[1], {.alpha = -1, .gamma = 1.5, .reduction = r});
     }},
    {"kl_divergence",
     [](Operands x, Reduction r) { return kl_divergence(x[0], x[1], {.reduction = r}); }},
    {"kl_divergence_log",
     [](Operands x, Reduction r) { return kl_divergence(x[0], x[1], {true, r}); }},
    {"gaussian_nll_loss",
     [](Operands x, Reduction r) { return gaussian_nll_loss(x[0], x[1], x[2], false, 0.1, r); }},
    {"gaussian_nll_loss_full",
     [](Operands x, Reduction r) { return gaussian_nll_loss(x[2], x[1], x[0], true, 1e-6, r); }},
    {"poisson_nll_loss",
     [](Operands x, Reduction r) { return poisson_nll_loss(x[0], x[1], true, false, 1e-8, r); }},
    {"poisson_nll_loss_full",
     [](Operands x, Reduction r) { return poisson_nll_loss(x[0], x[1], false, true, 1e-8, r); }},
    {"hinge_embedding_loss",
     [](Operands x, Reduction r) { return hinge_embedding_loss(x[0], x[1], 0.8, r); }},
    {"soft_margin_loss", [](Operands x, Reduction r) { return soft_margin_loss(x[0], x[1], r); }},
    {"margin_ranking_loss",
     [](Operands x, Reduction r) { return margin_ranking_loss(x[0], x[1], x[2], 0.3, r); }},
    {"cosine_embedding_loss",
     [](Operands x, Reduction r) { return cosine_embedding_loss(x[0], x[1], x[2], 0.1, r); }},
    {"triplet_margin_loss",
     [](Operands x, Reduction r) {
       return triplet_margin_loss(x[0], x[1], x[2], {.reduction = r});
     }},
    {"triplet_margin_loss_swap",
     [](Operands x, Reduction r) {
       return triplet_margin_loss(x[0], x[1], x[2],
                                  {.margin = 0.5, .p = 3, .swap = true, .reduction = r});
     }},
    {"multi_margin_loss",
     [](Operands x, Reduction r) { return multi_margin_loss(x[0], x[1], {.reduction = r}); }},
    {"multi_margin_loss_weighted",
     [](Operands x, Reduction r) { return multi_margin_loss(x[0], x[1], {2, 0.8, x[2], r}); }},
    {"cross_entropy",
     [](Operands x, Reduction r) { return cross_entropy(x[0], x[1], {.reduction = r}); }},
    {"cross_entropy_smooth",
     [](Operands x, Reduction r) {
       return cross_entropy(x[0], x[1], {.label_smoothing = 0.2, .weight = x[2], .reduction = r});
     }},
    {"cross_entropy_images",
     [](Operands x, Reduction r) {
       return cross_entropy(x[0], x[1],
                            {.label_smoothing = 0.1, .weight = x[2], .reduction = r, .axis = 1});
     }},
    {"cross_entropy_soft",
     [](Operands x, Reduction r) {
       return cross_entropy(x[0], x[1], {.label_smoothing = 0.1, .weight = x[2], .reduction = r});
     }},
    {"cross_entropy_soft_images",
     [](Operands x, Reduction r) {
       return cross_entropy(x[0], x[1], {.reduction = r, .axis = 1});
     }},
    {"nll_loss",
     [](Operands x, Reduction r) {
       return nll_loss(x[0], x[1], {.weight = x[2], .reduction = r});
     }},
    {"ctc_loss",
     [](Operands x, Reduction r) { return ctc(x, {.zero_infinity = true, .reduction = r}); }},
    {"ctc_loss_infinite", [](Operands x, Reduction r) { return ctc(x, {.reduction = r}); }},
    {"ctc_loss_blank",
     [](Operands x, Reduction r) { return ctc(x, {.blank = 3, .reduction = r}); }},
};

TEST_CASE("losses: values and gradients are PyTorch's") {
  const io::File file = io::open("tests/builders/data/torch_losses.safetensors");
  const std::pair<std::string_view, Reduction> reductions[] = {
      {"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}};
  for (const auto& [name, loss] : losses) {
    for (const auto& [word, reduction] : reductions) {
      const std::string key = name + "/" + std::string(word);
      INFO(key);
      Graph graph;
      std::vector<Tensor> operands;
      std::vector<HostBuffer> arrays;
      for (int i = 0; file.find(key + "." + std::to_string(i)) != nullptr; ++i) {
        arrays.push_back(file.at(key + "." + std::to_string(i)).data());
        operands.push_back(graph.input("x" + std::to_string(i), arrays.back().shape()));
      }
      const Tensor value = loss(operands, reduction);
      const std::vector<Tensor> results{value, grad(sum(value), operands[0])};
      const Program program = graph.program(results);
      for (const char* backend : {"reference", "cpu"}) {
        INFO(backend);
        Session session(program, {.backends = {make_backend(backend), make_backend("reference")}});
        const std::vector<HostBuffer> made = run_session(session, arrays);
        expect_close(made[0].to(f64), file.at(key + ".value").data(), 2e-6, 2e-5);
        expect_close(made[1].to(f64), file.at(key + ".gradient").data(), 5e-6, 1e-4);
      }
    }
  }
}

TEST_CASE("kl_divergence: the sum is divided by the size of the first axis") {
  ValuedGraph graph;  // values of torch.nn.functional.kl_div, batchmean
  const std::vector<double> log_p{0, 1, 2, 3, 4, 5}, p{0.2, 0.3, 0.5, 0.1, 0.6, 0.3};
  const auto of = [&](const Shape& shape) {
    const std::size_t count = static_cast<std::size_t>(shape.elements());
    const auto input = [&](const std::vector<double>& values) {
      return graph.input(HostBuffer::of(shape, std::span(values).first(count)));
    };
    return elements(graph.value(kl_divergence(input(log_p), input(p))))[0];
  };
  CHECK(of(Shape({2, 3, 1}, f64)) == Approx(-3.7137993694606766));
  CHECK(of(Shape({3}, f64)) == Approx(-0.7765510046881913));
  CHECK(of(Shape(std::span<const Axis>(), f64)) == Approx(-0.3218875824868201));
}

TEST_CASE("ctc_loss: numbers of steps and labels outside their axes are refused when it runs") {
  Graph graph;
  const Tensor log_p = graph.input("log_p", Shape({2, 1, 2}, f32));
  const Tensor labels = graph.input("labels", Shape({1, 1}, i64));
  const Tensor steps = graph.input("steps", Shape({1}, i64));
  const Tensor loss = ctc_loss(log_p, labels, steps, graph.input("counts", Shape({1}, i64)));
  Session session(graph.program({&loss, 1}),
                  {.backends = {make_backend("cpu"), make_backend("reference")}});
  const auto run = [&](std::int64_t times, std::int64_t count) {
    const auto number = [](std::initializer_list<Axis> sizes, std::int64_t value) {
      return HostBuffer::of<std::int64_t>(Shape(sizes, i64), {value});
    };
    run_session(session, {floats({2, 1, 2}, {-0.7F, -0.7F, -0.7F, -0.7F}), number({1, 1}, 1),
                          number({1}, times), number({1}, count)});
  };
  run(2, 1);
  run(0, 0);
  for (const std::int64_t outside : {-1, 3}) {
    expect_error(Errc::out_of_range, [&] { run(outside, 1); });
    expect_error(Errc::out_of_range, [&] { run(2, outside); });
  }
}

TEST_CASE("losses: what is refused") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 3}, {0, 1, 2, 3, 4, 5})),
               wide = graph.input(floats({4}, {1, 1, 1, 1}));
  const Tensor labels = graph.input(HostBuffer::of<std::int64_t>(Shape({2}, i64), {0, 1}));
  expect_error(Errc::shape_mismatch, [&] { cross_entropy(x, labels, {.weight = wide}); });
  expect_error(Errc::bad_argument, [&] { cross_entropy(x, labels, {.label_smoothing = 2}); });
  expect_error(Errc::unsupported_dtype, [&] { cross_entropy(x, wide); });
  expect_error(Errc::shape_mismatch,
               [&] { cross_entropy(x, graph.input(floats({2, 2}, {0, 1, 1, 0}))); });
  expect_error(Errc::unsupported_dtype, [&] { nll_loss(x, x); });
  expect_error(Errc::bad_argument, [&] { huber_loss(x, x, 0); });
  expect_error(Errc::bad_argument, [&] { smooth_l1_loss(x, x, -1); });
  expect_error(Errc::bad_argument, [&] { multi_margin_loss(x, labels, {.p = 3}); });
  expect_error(Errc::shape_mismatch, [&] { ctc_loss(x, labels, labels, labels); });
  const Tensor log_p = graph.input(floats({1, 2, 3}, {0, 1, 2, 3, 4, 5}));
  const Tensor pairs = graph.input(HostBuffer::of<std::int64_t>(Shape({2, 1}, i64), {0, 1}));
  expect_error(Errc::unsupported_dtype, [&] { ctc_loss(log_p, pairs, labels, wide); });
  expect_error(Errc::bad_argument, [&] { ctc_loss(log_p, pairs, labels, labels, {.blank = 3}); });
}

}  // namespace
}  // namespace tenon::testing
