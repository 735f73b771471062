// Layers of images, from the names of their weights to their results.
#include "core/runs.hpp"
#include "support/op_testing.hpp"

#include <tenon/exe.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/weights_view.hpp>

#include <string>
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

}  // namespace
}  // namespace tenon
