// Gradients of convolutions, pools and resampling against central differences in f64.
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace tenon::testing {
namespace {

using Build = std::function<Tensor(const std::vector<Tensor>&)>;

/// sum(seed * build(inputs)) as a program would compute it, and its gradients.
struct Evaluation {
  double loss;
  std::vector<HostBuffer> gradients;
};

Evaluation evaluate(const Build& build, const std::vector<HostBuffer>& inputs, bool differentiate) {
  ValuedGraph graph;
  std::vector<Tensor> tensors;
  for (const HostBuffer& input : inputs) tensors.push_back(graph.input(input));
  const Tensor y = build(tensors);
  Random random(7);
  const Tensor seed = graph.input(random.uniform(y.shape().without_tags(), -1, 1));
  const Tensor loss = sum(y * seed);
  Evaluation result{elements(graph.value(loss))[0], {}};
  if (!differentiate) return result;
  for (const Tensor& gradient : grad(loss, std::span<const Tensor>(tensors))) {
    result.gradients.push_back(graph.value(gradient));
  }
  return result;
}

/// Of the first `parameters` operands.
void check_gradient(const Build& build, std::initializer_list<Shape> shapes,
                    std::size_t parameters = 99) {
  Random random(3);
  std::vector<HostBuffer> inputs;
  for (const Shape& shape : shapes) inputs.push_back(random.uniform(shape));
  const Evaluation at = evaluate(build, inputs, true);
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < std::min(parameters, inputs.size()); ++i) {
    INFO("operand " << i);
    REQUIRE(at.gradients[i].shape() == inputs[i].shape());
    const std::vector<double> got = elements(at.gradients[i]);
    const std::vector<double> values = elements(inputs[i]);
    auto* const data = inputs[i].view().as<double>();
    for (std::size_t j = 0; j < values.size(); ++j) {
      data[j] = values[j] + step;
      const double above = evaluate(build, inputs, false).loss;
      data[j] = values[j] - step;
      const double below = evaluate(build, inputs, false).loss;
      data[j] = values[j];
      INFO("element " << j);
      CHECK(got[j] == Approx((above - below) / (2 * step)).margin(1e-6).epsilon(1e-6));
    }
  }
}

TEST_CASE("gradient: conv2d") {
  const Shape x({2, 4, 5, 4}, f64), bias({6}, f64);
  check_gradient([](const auto& in) { return conv2d(in[0], in[1], in[2]); },
                 {x, Shape({6, 4, 2, 3}, f64), bias});
  check_gradient(
      [](const auto& in) {
        return conv2d(in[0], in[1], in[2],
                      {.stride = {2, 3}, .padding = {1, 0, 2, 1}, .groups = 2});
      },
      {x, Shape({6, 2, 3, 3}, f64), bias});
  check_gradient(
      [](const auto& in) {
        return conv2d(in[0], in[1], {}, {.padding = {2, 1}, .dilation = {2, 1}, .groups = 4});
      },
      {x, Shape({4, 1, 3, 2}, f64)});
}

TEST_CASE("gradient: conv_transpose2d") {
  const Shape x({2, 4, 3, 2}, f64);
  check_gradient(
      [](const auto& in) {
        return conv_transpose2d(
            in[0], in[1], in[2],
            {.stride = {2, 3}, .padding = {1, 0, 1, 2}, .output_padding = {1, 0}, .groups = 2});
      },
      {x, Shape({4, 3, 2, 3}, f64), Shape({6}, f64)});
  // Output padding beyond the stride, and a padding that hides windows.
  check_gradient(
      [](const auto& in) {
        return conv_transpose2d(
            in[0], in[1], {},
            {.padding = {1, 0, 0, 0}, .output_padding = {0, 2}, .dilation = {1, 3}});
      },
      {x, Shape({4, 2, 1, 2}, f64)});
}

TEST_CASE("gradient: convolutions along one and three axes") {
  check_gradient(
      [](const auto& in) {
        return conv3d(in[0], in[1], in[2],
                      {.stride = {2, 1, 1}, .padding = {1, 1, 0}, .groups = 2});
      },
      {Shape({1, 2, 4, 3, 2}, f64), Shape({4, 1, 3, 2, 2}, f64), Shape({4}, f64)});
  check_gradient(
      [](const auto& in) {
        return conv_transpose3d(in[0], in[1], in[2],
                                {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .groups = 2});
      },
      {Shape({1, 2, 2, 3, 2}, f64), Shape({2, 2, 3, 1, 2}, f64), Shape({4}, f64)});
  check_gradient([](const auto& in) { return conv_transpose1d(in[0], in[1], {}, {.stride = 2}); },
                 {Shape({2, 2, 3}, f64), Shape({2, 2, 3}, f64)});
}

TEST_CASE("gradient: pools, columns") {
  const Shape x({2, 2, 5, 6}, f64);
  check_gradient(
      [](const auto& in) {
        return max_pool2d(in[0], {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}});
      },
      {x});
  check_gradient(
      [](const auto& in) {
        return avg_pool2d(in[0], {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}});
      },
      {x});
  check_gradient(
      [](const auto& in) {
        return unfold2d(in[0], {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 0}});
      },
      {x});
  check_gradient([](const auto& in) { return fold2d(in[0], {.size = {3, 3}, .kernel = {2, 2}}); },
                 {Shape({1, 8, 4}, f64)});
}

TEST_CASE("gradient: resampling and places of a grid") {
  const Shape x({1, 2, 4, 5}, f64);
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    check_gradient(
        [mode](const auto& in) { return resize(in[0], {.sizes = {3, 6, 7}, .mode = mode}); }, {x});
  }
  const auto place = [](const auto& in) { return sin(in[1]) * 1.3; };
  for (const char* padding : {"zeros", "border", "reflection"}) {
    check_gradient(
        [&](const auto& in) {
          return grid_sample(in[0], place(in), {.padding = padding, .align_corners = true});
        },
        {x, Shape({1, 2, 3, 2}, f64)});
  }
  check_gradient(
      [](const auto& in) {
        const Tensor box = stop_gradient(cumsum(square(in[1]), 1));
        const Tensor images = cast(stop_gradient(sum(in[1], {1})) * 0.0, i32);
        return roi_align(in[0], box, images, {.size = {2, 2}, .sampling_ratio = 2}) +
               sum(in[1]);  // a dependence
      },
      {x, Shape({3, 4}, f64)}, 1);
}

TEST_CASE("gradient: norms of images") {
  const Shape x({2, 4, 3, 2}, f64), row({4}, f64);
  check_gradient([](const auto& in) { return group_norm(in[0], 2, in[1], in[2]); }, {x, row, row});
  check_gradient([](const auto& in) { return instance_norm(in[0]); }, {x});
  check_gradient(
      [](const auto& in) { return batch_norm(in[0], in[1], square(in[2]), in[3], in[4]); },
      {x, row, row, row, row});
  check_gradient([](const auto& in) { return batch_norm_training(in[0], in[1], in[2]).y; },
                 {x, row, row});
  check_gradient([](const auto& in) { return l2_normalize(in[0], 1); }, {x});
  check_gradient([](const auto& in) { return local_response_norm(in[0], 3, 0.5); }, {x});
}

TEST_CASE("gradient: pools along other axes, blocks of pixels") {
  const Shape x({1, 4, 3, 4, 5}, f64);
  const PoolOptions options{
      .kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 0, 1}, .ceil_mode = true};
  check_gradient([&](const auto& in) { return max_pool(in[0], options); }, {x});
  check_gradient([&](const auto& in) { return avg_pool(in[0], options); }, {x});
  check_gradient([](const auto& in) { return lp_pool(in[0], 3, {.kernel = {2}}); },
                 {Shape({1, 2, 7}, f64)});
  check_gradient([](const auto& in) { return adaptive_avg_pool(in[0], {2, 3}); }, {x});
  check_gradient([](const auto& in) { return adaptive_max_pool(in[0], {2, 5}); }, {x});
  check_gradient([](const auto& in) { return pixel_shuffle(in[0], 2); },
                 {Shape({1, 4, 2, 3}, f64)});
}

}  // namespace
}  // namespace tenon::testing
