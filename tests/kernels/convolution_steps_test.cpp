// Rewrites of a network's steps before they become tasks: merged steps, other layouts. That results
// stay the same is tested by conformance/images_test.cpp.
#include "backends/cpu/convolution/channels_last.hpp"
#include "backends/cpu/convolution/merge.hpp"
#include "backends/cpu/convolution/merged_conv2d.hpp"
#include "backends/cpu/convolution/split.hpp"

#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>

#include <functional>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu {
namespace {

/// h = relu(conv(x)); r = relu(conv(h) + h); the mean of r over the image, and what `also` picks.
struct Steps {
  explicit Steps(std::int64_t batch, std::int64_t side,
                 const std::function<Tensor(Tensor sum, Tensor r)>& also = {}) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor x = graph.input("x", Shape({batch, 32, side, side}, f32));
    const auto conv = [&](const char* name, const Tensor& image) {
      return conv2d(image, graph.constant(name, Shape({32, 32, 3, 3}, f32)), {},
                    {.stride = {}, .padding = {1, 1}, .dilation = {}});
    };
    const Tensor h = relu(conv("w1", x));
    const Tensor sum = conv("w2", h) + h;
    const Tensor r = relu(sum);
    std::vector<Tensor> results{mean(r, {2, 3})};
    if (also) results.push_back(also(sum, r));
    const Shape input = x.shape();
    lowered = lower(graph.program(results), {&input, 1});
    leaves = edges(lowered, lowered.steps).writes;
    merge_convolutions(lowered.steps, leaves);
  }

  std::size_t merged() const {
    std::size_t count = 0;
    for (const Step& step : lowered.steps) {
      if (step.op.as<MergedConv2d>() != nullptr) ++count;
    }
    return count;
  }

  Lowered lowered;
  std::vector<Operand> leaves;
};

TEST_CASE("merge_convolutions: residual and activation become part of the convolution") {
  const Steps steps(1, 8);
  REQUIRE(steps.lowered.steps.size() == 3);
  CHECK(steps.merged() == 2);
  const auto* second = steps.lowered.steps[1].op.as<MergedConv2d>();
  REQUIRE(second != nullptr);
  CHECK(second->has_residual);
  CHECK(second->has_activation);
  CHECK(second->activation == Unary::relu);
}

TEST_CASE("merge_convolutions: values that are read elsewhere stay") {
  const Steps steps(1, 8, [](Tensor sum, Tensor) { return sum; });
  // The second convolution takes the residual, but not the activation behind the visible sum.
  REQUIRE(steps.merged() == 2);
  CHECK_FALSE(steps.lowered.steps[1].op.as<MergedConv2d>()->has_activation);
}

TEST_CASE("put_channels_last: changes the layout of internal values only") {
  Steps steps(1, 8);
  put_channels_last(steps.lowered.steps, steps.leaves);
  CHECK_FALSE(has_channels_last(steps.lowered.steps[0].inputs[0]));
  CHECK(has_channels_last(steps.lowered.steps[0].output));
  CHECK(has_channels_last(steps.lowered.steps[1].output));

  Steps visible(1, 8, [](Tensor, Tensor r) { return r; });
  put_channels_last(visible.lowered.steps, visible.leaves);
  CHECK_FALSE(has_channels_last(visible.lowered.steps[1].output));
}

TEST_CASE("split_batches: large images one by one, small ones together") {
  Steps large(4, 64);
  split_batches(large.lowered.steps, large.leaves, 0);
  CHECK(large.lowered.steps.size() == 2 * 4 + 1);
  CHECK(large.lowered.steps[0].output.shape[0] == 1);

  Steps small(4, 8);
  split_batches(small.lowered.steps, small.leaves, 0);
  CHECK(small.lowered.steps.size() == 3);
}

TEST_CASE("split_batches: images share the memory of values that only the run reads") {
  Steps steps(4, 64);
  const std::int64_t image = steps.lowered.steps[0].output.strides[0];
  CHECK(split_batches(steps.lowered.steps, steps.leaves, 0) == image);
  for (std::size_t i = 0; i < 4; ++i) {
    const Step& first = steps.lowered.steps[2 * i];
    const Step& second = steps.lowered.steps[2 * i + 1];
    CHECK(first.output.place.kind == Place::Kind::shared_scratch);
    CHECK(first.output.place == steps.lowered.steps[0].output.place);
    CHECK(second.inputs[0] == first.output);
    CHECK(second.inputs[2] == first.output);
    CHECK(second.output.place.kind == Place::Kind::slab);  // the mean over it comes behind the run
    CHECK(first.inputs[0].place.offset ==
          steps.lowered.steps[0].inputs[0].place.offset + static_cast<std::int64_t>(i) * image);
  }
}

}  // namespace
}  // namespace tenon::cpu
