// bf16 copies of f32 parameters: forward and backward in bf16, the update in f32.
#include "support/op_testing.hpp"

#include <tenon/tenon.hpp>

#include <cmath>
#include <tuple>

namespace tenon::testing {
namespace {

template <class T = Tensor>
struct Classifier {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)
  Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
};

struct MixedTraining {
  train::Adam optimizer = train::adamw(0.01);
  DType computed = bf16;
  TENON_FIELDS()
  using State = train::AdamState<Classifier<Tensor>>;

  std::tuple<Classifier<Tensor>, State, Tensor> step(const Classifier<Tensor>& net,
                                                     const State& state, const Tensor& x,
                                                     const Tensor& labels,
                                                     const Tensor& rate) const {
    const Tensor scores = train::cast_fields(net, computed).forward(cast(x, computed));
    const Tensor loss = cross_entropy(cast(scores, f32), labels);
    const Classifier<Tensor> gradients = grad(loss, net);
    CHECK(scores.dtype() == computed);
    CHECK(gradients.up.weight.dtype() == f32);
    auto [next, next_state] = optimizer.update(net, gradients, state, rate);
    return {next, next_state, loss};
  }
};

/// The losses of 60 steps on one batch.
std::vector<double> losses(DType computed) {
  const DevicePtr device = cpu_device();
  MixedTraining training;
  training.computed = computed;
  const Classifier<Shape> shapes{{Shape({32, 16}, f32), Shape({32}, f32)},
                                 {Shape({4, 32}, f32), Shape({4}, f32)}};
  auto net = train::initialize(shapes, 7, device);
  auto state = training.optimizer.start(net, device);
  const HostBuffer x =
      train::initial_values("x", Shape({64, 16}, f32), {train::Initial::Kind::normal, 1}, 3);
  HostBuffer labels = HostBuffer::uninitialized(Shape({64}, i32));
  for (std::int64_t row = 0; row < 64; ++row) {
    const std::int32_t label = (x.at({row, 0}) > 0 ? 1 : 0) + (x.at({row, 1}) > 0 ? 2 : 0);
    labels.mutable_values<std::int32_t>()[static_cast<std::size_t>(row)] = label;
  }
  const Buffer rate = train::scalar(1e-2, f32, device);
  auto step =
      compile<&MixedTraining::step>(
          training, {shapes, train::shapes_of(state), x.shape(), labels.shape(), rate.shape()},
          device)
          .bind(training);
  std::vector<double> result;
  for (int i = 0; i < 60; ++i) {
    Buffer loss;
    std::tie(net, state, loss) =
        step(std::move(net), std::move(state), x.to_device(device), labels.to_device(device), rate);
    result.push_back(loss.to_host().at({}));
  }
  CHECK(net.up.weight.shape().dtype() == f32);
  return result;
}

TEST_CASE("train: bf16 in the step, f32 in the parameters, follow the losses of f32") {
  const std::vector<double> mixed = losses(bf16), plain = losses(f32);
  CHECK(plain.back() < 0.3 * plain.front());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    INFO("step " << i);
    // bf16 has 8 bits.
    CHECK(std::fabs(mixed[i] - plain[i]) < 0.02 + 0.03 * plain[i]);
  }
  CHECK(mixed.back() != plain.back());
}

}  // namespace
}  // namespace tenon::testing
