// The program that docs/training.md shows.
#include "support/shown_code.hpp"

#include <tenon/tenon.hpp>

#include <cstddef>
#include <string>
#include <tuple>

namespace tenon::testing {
namespace {

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)
  Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
};

struct Training {
  train::Adam optimizer = train::adamw(0.01);
  TENON_FIELDS()

  std::tuple<Mlp<Tensor>, train::AdamState<Mlp<Tensor>>, Tensor> step(
      Mlp<Tensor> net, train::AdamState<Mlp<Tensor>> state, Tensor images, Tensor labels,
      Tensor rate) const {
    const Tensor loss = cross_entropy(net.forward(images), labels);
    auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
    return {next, next_state, loss};
  }
};

TEST_CASE("training.md: the program that it shows lowers its loss") {
  const auto images = [](int) {
    return train::initial_values("images", Shape({64, 64}, f32), {train::Initial::Kind::uniform, 1},
                                 1)
        .to_device(cpu_device());
  };
  const auto labels = [](int) {
    HostBuffer classes = HostBuffer::zeros(Shape({64}, i32));
    for (std::int32_t i = 0; i < 64; ++i) {
      classes.mutable_values<std::int32_t>()[static_cast<std::size_t>(i)] = i % 10;
    }
    return classes.to_device(cpu_device());
  };
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const int steps = 60;

  auto device = Device::open("cpu:");
  const Mlp<Shape> shapes{{Shape({128, 64}, f32), Shape({128}, f32)},
                          {Shape({10, 128}, f32), Shape({10}, f32)}};
  Mlp<Buffer> net = train::initialize(shapes, /*seed=*/1, device);
  const Training training;
  auto state = training.optimizer.start(net, device);
  auto step = compile<&Training::step>(training,
                                       {shapes, train::shapes_of(state), Shape({64, 64}, f32),
                                        Shape({64}, i32), Shape({}, f32)},
                                       device)
                  .bind(training);
  const train::WarmupCosine rate{.peak = 3e-3, .warmup = 10, .total = steps};
  Buffer loss;
  for (int i = 0; i < steps; ++i) {
    std::tie(net, state, loss) = step(std::move(net), std::move(state), images(i), labels(i),
                                      train::scalar(rate.at(i), f32, device));
  }
  train::save(folder / "net.safetensors", net);

  CHECK(loss.to_host().values<float>()[0] < 0.5F);
  std::filesystem::remove(folder / "net.safetensors");
}

TEST_CASE("training.md: groups of parameters") {
  auto device = Device::open("cpu:");
  const Mlp<Shape> shapes{{Shape({3, 2}, f32), Shape({3}, f32)},
                          {Shape({1, 3}, f32), Shape({1}, f32)}};
  const Mlp<Buffer> net = train::initialize(shapes, 1, device);
  train::Groups groups(
      [](const std::string& path, const Shape& shape) -> std::size_t {
        return path.starts_with("embedding.") ? 2 : shape.rank() < 2 ? 1 : 0;
      },
      train::adamw(0.1), train::adamw(0), train::adamw(0.1));
  groups.factors[2] = 0.1;
  auto state = groups.start(net, device);  // train::Groups<...>::State<Buffer>
  CHECK(std::get<0>(state).mean.items.size() == 2);
  CHECK(std::get<1>(state).mean.items.size() == 2);
  CHECK(std::get<2>(state).mean.items.empty());
}

TEST_CASE("training.md: its code is this file's") {
  check_shown_code("docs/training.md", "tests/train/page_test.cpp", 3);
}

}  // namespace
}  // namespace tenon::testing
