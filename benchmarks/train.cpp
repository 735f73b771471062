// One training step - forward, loss, gradients, AdamW - of two networks, as benchmarks/train.py
// measures them beside PyTorch:
//
//   bench_train cnn|transformer [--batch N] [--threads N] [--steps N]
//
// prints the median and the minimum of the steps' milliseconds. cnn: the digit network of
// examples/train_digits.cpp, images [N, 1, 8, 8]; transformer: that of examples/char_lm.hpp with 4
// layers of width 128, 4 heads, 64 characters.
#include "examples/char_lm.hpp"
#include "examples/digits_networks.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

namespace {

struct Options {
  std::string network;
  std::int64_t batch = 8;
  int threads = 2;
  int steps = 50;
};

struct CnnTraining {
  train::Adam optimizer = train::adamw(0.01);
  TENON_FIELDS()
  std::tuple<Cnn<Tensor>, train::AdamState<Cnn<Tensor>>, Tensor> step(
      Cnn<Tensor> net, train::AdamState<Cnn<Tensor>> state, Tensor images, Tensor labels,
      Tensor rate) const {
    const Tensor loss = cross_entropy(net.forward(images), labels);
    auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
    return {next, next_state, loss};
  }
};

/// Runs `step` on a network and its state, which it updates.
template <class Net, class State, class Step>
void measure(const Options& options, Net net, State state, const Step& step) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  float last = 0;
  for (int i = 0; i < options.steps + 5; ++i) {
    const auto begin = Clock::now();
    Buffer loss;
    std::tie(net, state, loss) = step(std::move(net), std::move(state));
    last = loss.to_host().values<float>()[0];
    if (i >= 5)
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::sort(times);
  fmt::print("median {:.3f} ms, minimum {:.3f} ms, loss {:.4f}\n", times[times.size() / 2],
             times.front(), last);
}

HostBuffer counted(const Shape& shape, std::int32_t below) {
  HostBuffer array = HostBuffer::uninitialized(shape);
  std::uint32_t state = 1;
  for (std::int32_t& value : array.mutable_values<std::int32_t>()) {
    state = state * 1664525 + 1013904223;
    value = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(below));
  }
  return array;
}

CompileOptions compile_options(const Options& options) {
  CompileOptions result;
  result.backend.threads = options.threads;
  return result;
}

void run_cnn(const Options& options, const DevicePtr& device) {
  const Conv2d same{.padding = {1, 1, 1, 1}};
  const Cnn<Shape> shapes{.conv1 = {Shape({16, 1, 3, 3}, f32), Shape({16}, f32), same},
                          .conv2 = {Shape({32, 16, 3, 3}, f32), Shape({32}, f32), same},
                          .head = {Shape({10, 128}, f32), Shape({10}, f32)}};
  const CnnTraining training;
  auto net = train::initialize(shapes, 1, device);
  auto state = training.optimizer.start(net, device);
  const Shape images({options.batch, 1, 8, 8}, f32), labels({options.batch}, i32);
  auto run = compile<&CnnTraining::step>(training,
                                         {shapes, train::shapes_of(state), images, labels,
                                          Shape(std::span<const Axis>(), f32)},
                                         device, compile_options(options))
                 .bind(training);
  const Buffer x =
      train::initial_values("x", images, {train::Initial::Kind::uniform, 1}, 1).to_device(device);
  const Buffer y = counted(labels, 10).to_device(device);
  const Buffer rate = train::scalar(1e-3, f32, device);
  measure(options, std::move(net), std::move(state),
          [&](auto&& n, auto&& s) { return run(std::move(n), std::move(s), x, y, rate); });
}

void run_transformer(const Options& options, const DevicePtr& device) {
  const auto shapes =
      char_lm::shapes({.vocabulary = 128, .context = 64, .width = 128, .layers = 4, .heads = 4});
  char_lm::Training training;
  training.max_norm = 1;
  auto net = train::initialize(shapes, 1, device, char_lm::initial);
  auto state = training.optimizer.start(net, device);
  const Shape ids({options.batch, 65}, i32);
  auto run =
      compile<&char_lm::Training::step>(
          training, {shapes, train::shapes_of(state), ids, Shape(std::span<const Axis>(), f32)},
          device, compile_options(options))
          .bind(training);
  const Buffer x = counted(ids, 128).to_device(device);
  const Buffer rate = train::scalar(1e-3, f32, device);
  measure(options, std::move(net), std::move(state),
          [&](auto&& n, auto&& s) { return run(std::move(n), std::move(s), x, rate); });
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--") && i + 1 < argc) {
      const long number = std::strtol(argv[++i], nullptr, 10);
      if (number < 1) throw Error(Errc::bad_argument, word, "takes a positive number");
      if (word == "--batch") options.batch = number;
      if (word == "--threads") options.threads = static_cast<int>(number);
      if (word == "--steps") options.steps = static_cast<int>(number);
    } else {
      options.network = word;
    }
  }
  const DevicePtr device = Device::open("cpu:");
  if (options.network == "cnn") {
    run_cnn(options, device);
  } else if (options.network == "transformer") {
    run_transformer(options, device);
  } else {
    throw Error(Errc::bad_argument, "bench_train", "takes cnn or transformer");
  }
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return exit_status(error.code());
}
