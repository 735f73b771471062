// One training step - forward, loss, gradients, AdamW - of four networks, as benchmarks/train.py
// measures them beside PyTorch:
//
//   bench_train cnn|resnet|lstm|transformer [--batch N] [--threads N] [--steps N] [--profile 1]
//
// prints the median and the minimum of the steps' milliseconds; with --profile where their time
// went. cnn: the digit network of examples/train_digits.cpp, images [N, 1, 8, 8]; resnet: ResNet-18
// with batch norms, images [N, 3, 64, 64], 1000 classes; lstm: one layer of 128 units over 128 steps
// [128, N, 64], 10 classes; transformer: that of examples/char_lm.hpp with 4 layers of width 128, 4
// heads, 64 characters.
#include "examples/char_lm.hpp"
#include "examples/digits_networks.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
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
  bool profile = false;
};

template <template <class> class Net>
struct ClassifierTraining {
  train::Adam optimizer = train::adamw(0.01);
  TENON_FIELDS()
  std::tuple<Net<Tensor>, train::AdamState<Net<Tensor>>, Tensor> step(
      Net<Tensor> net, train::AdamState<Net<Tensor>> state, Tensor images, Tensor labels,
      Tensor rate) const {
    const Tensor loss = cross_entropy(net.forward(images), labels);
    auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
    return {next, next_state, loss};
  }
};

nn::Conv2d<Shape> filters(std::int64_t inputs, std::int64_t outputs, std::int64_t size,
                          std::int64_t stride) {
  return {Shape({outputs, inputs, size, size}, f32),
          std::nullopt,
          {.stride = {stride, stride}, .padding = {size / 2, size / 2}}};
}

/// A convolution and the norm of its results over the batch.
template <class T = Tensor>
struct NormedConv {
  nn::Conv2d<T> conv;
  T weight, bias;
  TENON_FIELDS(conv, weight, bias)

  Tensor forward(const Tensor& x) const {
    return batch_norm_training(conv.forward(x), weight, bias).y;
  }
};

NormedConv<Shape> normed(std::int64_t inputs, std::int64_t outputs, std::int64_t size,
                         std::int64_t stride) {
  const Shape channels({outputs}, f32);
  return {filters(inputs, outputs, size, stride), channels, channels};
}

template <class T = Tensor>
struct BasicBlock {
  NormedConv<T> first, second;
  std::optional<NormedConv<T>> shortcut;
  TENON_FIELDS(first, second, shortcut)

  Tensor forward(const Tensor& x) const {
    return relu(second.forward(relu(first.forward(x))) + (shortcut ? shortcut->forward(x) : x));
  }
};

/// ResNet-18 (He et al., arXiv:1512.03385).
template <class T = Tensor>
struct ResNet18 {
  NormedConv<T> stem;
  std::vector<BasicBlock<T>> blocks;
  nn::Linear<T> head;
  TENON_FIELDS(stem, blocks, head)

  Tensor forward(const Tensor& images) const {
    Tensor x = max_pool2d(relu(stem.forward(images)),
                          {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    for (const BasicBlock<T>& block : blocks) x = block.forward(x);
    return head.forward(mean(x, {2, 3}));
  }
};

ResNet18<Shape> resnet_shapes() {
  ResNet18<Shape> net{normed(3, 64, 7, 2), {}, {Shape({1000, 512}, f32), Shape({1000}, f32)}};
  std::int64_t inputs = 64;
  for (const std::int64_t outputs : {64, 128, 256, 512}) {
    const std::int64_t stride = outputs == 64 ? 1 : 2;
    BasicBlock<Shape> block{normed(inputs, outputs, 3, stride), normed(outputs, outputs, 3, 1), {}};
    if (stride == 2) block.shortcut = normed(inputs, outputs, 1, 2);
    net.blocks.push_back(std::move(block));
    net.blocks.push_back({normed(outputs, outputs, 3, 1), normed(outputs, outputs, 3, 1), {}});
    inputs = outputs;
  }
  return net;
}

/// Classes of sequences, by the state behind the last step.
template <class T = Tensor>
struct LstmClassifier {
  nn::Lstm<T> lstm;
  nn::Linear<T> head;
  TENON_FIELDS(lstm, head)

  Tensor forward(const Tensor& x) const { return head.forward(lstm.forward(x).carry.h); }
};

LstmClassifier<Shape> lstm_shapes() {
  const std::int64_t inputs = 64, width = 128, gates = 4 * width;
  const Shape bias({gates}, f32);
  return {{{Shape({gates, inputs}, f32), Shape({gates, width}, f32), bias, bias}},
          {Shape({10, width}, f32), Shape({10}, f32)}};
}

/// Runs `step` on a network and its state, which it updates.
template <class Run, class Net, class State, class Step>
void measure(const Options& options, Run& run, Net net, State state, const Step& step) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  Profile profile;
  run.enable_time_profile(options.profile);
  float last = 0;
  for (int i = 0; i < options.steps + 5; ++i) {
    const auto begin = Clock::now();
    Buffer loss;
    std::tie(net, state, loss) = step(std::move(net), std::move(state));
    last = loss.to_host().values<float>()[0];
    if (i < 5) continue;
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    profile.add(run.step_times());
  }
  std::ranges::sort(times);
  fmt::print("median {:.3f} ms, minimum {:.3f} ms, loss {:.4f}\n", times[times.size() / 2],
             times.front(), last);
  if (options.profile) fmt::print("{}", profile.table({}, 2000));
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

template <template <class> class Net>
void run_classifier(const Options& options, const DevicePtr& device, const Net<Shape>& shapes,
                    const Shape& images, std::int32_t classes) {
  using Training = ClassifierTraining<Net>;
  const Training training;
  auto net = train::initialize(shapes, 1, device);
  auto state = training.optimizer.start(net, device);
  const Shape labels({options.batch}, i32);
  auto run = compile<&Training::step>(training,
                                      {shapes, train::shapes_of(state), images, labels,
                                       Shape(std::span<const Axis>(), f32)},
                                      device, compile_options(options))
                 .bind(training);
  const Buffer x =
      train::initial_values("x", images, {train::Initial::Kind::uniform, 1}, 1).to_device(device);
  const Buffer y = counted(labels, classes).to_device(device);
  const Buffer rate = train::scalar(1e-3, f32, device);
  measure(options, run, std::move(net), std::move(state),
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
  measure(options, run, std::move(net), std::move(state),
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
      if (word == "--profile") options.profile = true;
      if (word == "--steps") options.steps = static_cast<int>(number);
    } else {
      options.network = word;
    }
  }
  const DevicePtr device = Device::open("cpu:");
  if (options.network == "cnn") {
    run_classifier<Cnn>(options, device, cnn_shapes(), Shape({options.batch, 1, 8, 8}, f32), 10);
  } else if (options.network == "lstm") {
    run_classifier<LstmClassifier>(options, device, lstm_shapes(),
                                   Shape({128, options.batch, 64}, f32), 10);
  } else if (options.network == "resnet") {
    run_classifier<ResNet18>(options, device, resnet_shapes(),
                             Shape({options.batch, 3, 64, 64}, f32), 1000);
  } else if (options.network == "transformer") {
    run_transformer(options, device);
  } else {
    throw Error(Errc::bad_argument, "bench_train", "takes cnn, resnet, lstm or transformer");
  }
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return exit_status(error.code());
}
