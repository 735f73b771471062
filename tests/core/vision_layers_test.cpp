// Layers of images, from the names of their weights to their results.
#include "core/runs.hpp"
#include "support/op_testing.hpp"

#include <tenon/exe.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/weights_view.hpp>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

template <class T = Tensor>
struct VisionNet {
  nn::Conv1d<T> rows;
  nn::BatchNorm2d<T> batch;
  nn::GroupNorm<T> groups;
  nn::ConvTranspose2d<T> up;
  TENON_FIELDS(rows, batch, groups, up)

  Tensor forward(const Tensor& x) const {
    const Tensor wide = unsqueeze(rows.forward(x), 2);  // [1, 4, 1, 6]
    return up.forward(groups.forward(batch.forward(wide)));
  }
};

TEST_CASE("nn: Conv1d, BatchNorm2d, GroupNorm and ConvTranspose2d") {
  register_cpu_backend();
  const Shape filter({4, 2, 3}, f32), row({4}, f32), up({4, 3, 2, 2}, f32), image({1, 2, 6}, f32);
  const std::vector<std::pair<std::string, Shape>> declared{
      {"rows.weight", filter},    {"rows.bias", row},    {"batch.running_mean", row},
      {"batch.running_var", row}, {"batch.weight", row}, {"batch.bias", row},
      {"groups.weight", row},     {"up.weight", up}};
  const WeightsView view("net.safetensors", declared);
  const VisionNet<> model{nn::Conv1d<>::init(view["rows"], {.padding_left = 1, .padding_right = 1}),
                          nn::BatchNorm2d<>::init(view["batch"]),
                          nn::GroupNorm<>::init(view["groups"], 2),
                          nn::ConvTranspose2d<>::init(view["up"], {.stride = {2, 2}})};
  CHECK_FALSE(model.groups.bias.has_value());
  const auto exe = compile<&VisionNet<>::forward>(model, {image}, CompileOptions{});
  Random random(4);
  Bufferized<VisionNet<>> weights;
  weights.rows.weight = device(random.uniform(filter));
  weights.rows.bias = device(random.uniform(row));
  weights.batch.running_mean = device(random.uniform(row));
  weights.batch.running_var = device(random.uniform(row, 0.5, 2));
  weights.batch.weight = device(random.uniform(row));
  weights.batch.bias = device(random.uniform(row));
  weights.groups.weight = device(random.uniform(row));
  weights.up.weight = device(random.uniform(up));
  auto bound = exe.bind(weights);
  CHECK(values(bound(device(random.uniform(image)))).size() == 1 * 3 * 2 * 12);
}

template <class Layer>
Layer through_buffers(const Layer& layer) {
  const auto buffers = map_fields<Buffer>(
      layer, [](const std::string&, const Tensor&) { return Buffer(Shape({1}, f32)); });
  return map_fields<Tensor>(buffers, [](const std::string&, const Buffer&) { return Tensor(); });
}

// What is no tensor has to survive, or a training step would compute with the defaults.
TEST_CASE("nn: a layer of other leaves keeps its options") {
  nn::Conv1d<> rows;
  rows.options.padding_left = 3;
  CHECK(through_buffers(rows).options.padding_left == 3);
  nn::ConvTranspose2d<> up;
  up.options.stride = {2, 3};
  CHECK(through_buffers(up).options.stride[1] == 3);
  nn::BatchNorm2d<> batch;
  batch.eps = 0.5;
  CHECK(through_buffers(batch).eps == 0.5);
  nn::GroupNorm<> groups;
  groups.groups = 4;
  groups.eps = 0.25;
  CHECK(through_buffers(groups).groups == 4);
  CHECK(through_buffers(groups).eps == 0.25);
  nn::Mamba<> mamba;
  mamba.inner = 6;
  mamba.states = 5;
  mamba.heads = 3;
  mamba.groups = 2;
  mamba.norm_eps = 0.5;
  mamba.has_normed_parameters = true;
  const nn::Mamba<> same = through_buffers(mamba);
  CHECK(std::tuple(same.inner, same.states, same.heads, same.groups, same.norm_eps,
                   same.has_normed_parameters) == std::tuple(6, 5, 3, 2, 0.5, true));
  nn::Rwkv7Layer<> rwkv;
  rwkv.head_size = 16;
  CHECK(through_buffers(rwkv).head_size == 16);
  nn::MixtureOfExperts<> experts;
  experts.options.used = 5;
  CHECK(through_buffers(experts).options.used == 5);
}

}  // namespace
}  // namespace tenon
