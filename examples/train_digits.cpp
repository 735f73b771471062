// Trains a network of examples/data from scratch:
//
//   train_digits [--network cnn|mlp|mobilenet] [--epochs N] [--stop N] [--seed N] [--checkpoint FILE]
//                [--resume FILE] [--weights FILE] [--svg FILE]
//
// The whole step - forward, loss, gradients, AdamW - is one program. A checkpoint holds the network
// and the optimiser's state; a run that is resumed from it continues with the same bits, if --epochs is
// the same: with another one the further rates are others. `--weights` writes the network alone, as
// digits.cpp reads it.
#include "digits_mobilenet.hpp"
#include "digits_networks.hpp"
#include "digits_training.hpp"
#include "saved_number.hpp"

#include <tenon/tenon.hpp>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace {

struct Options {
  std::string network = "cnn";
  std::int64_t epochs = 0;  ///< 0: the network's own
  std::int64_t stop = 0;    ///< the epoch after which to end early; 0: none
  std::uint64_t seed = 1;
  std::string checkpoint, resume, weights, svg;
};

/// How a network is trained.
struct Recipe {
  std::int64_t side = 8;  ///< of its images
  std::int64_t epochs = 100, batch = 64, warmup = 20;
  double rate = 4e-3, weight_decay = 0.02, label_smoothing = 0;
  int reach = 1;  ///< pixels by which images are moved
};

template <template <class> class Net>
struct Training {
  train::Adam optimizer;
  double label_smoothing = 0;
  TENON_FIELDS()

  using State = train::AdamState<Net<Tensor>>;

  /// images f32 [batch, 1, side, side], labels i32 [batch], rate f32 [].
  std::tuple<Net<Tensor>, State, Tensor> step(Net<Tensor> net, State state, Tensor images,
                                              Tensor labels, Tensor rate) const {
    const Tensor loss =
        cross_entropy(net.forward(images), labels, {.label_smoothing = label_smoothing});
    auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
    return {next, next_state, loss};
  }

  /// The class of each image: i32 [n].
  Tensor classify(Net<Tensor> net, Tensor images) const { return argmax(net.forward(images), -1); }
};

template <class Net>
struct Checkpoint {
  Net net;
  train::AdamState<Net> optimizer;
  TENON_FIELDS(net, optimizer)
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw Error(Errc::bad_argument, word, "needs a value");
      return argv[++i];
    };
    const auto number = [&] {
      const std::string text = value();
      char* end = nullptr;
      const long long parsed = std::strtoll(text.c_str(), &end, 10);
      if (text.empty() || *end != '\0' || parsed < 1) {
        throw Error(Errc::bad_argument, word, "'" + text + "' is no positive number");
      }
      return parsed;
    };
    if (word == "--network") {
      options.network = value();
    } else if (word == "--epochs") {
      options.epochs = number();
    } else if (word == "--stop") {
      options.stop = number();
    } else if (word == "--seed") {
      options.seed = static_cast<std::uint64_t>(number());
    } else if (word == "--checkpoint") {
      options.checkpoint = value();
    } else if (word == "--resume") {
      options.resume = value();
    } else if (word == "--weights") {
      options.weights = value();
    } else if (word == "--svg") {
      options.svg = value();
    } else {
      throw Error(
          Errc::bad_argument, word,
          "the options are --network, --epochs, --stop, --seed, --checkpoint, --resume, --weights "
          "and --svg");
    }
  }
  return options;
}

/// A training under way: what a checkpoint holds.
template <template <class> class Net>
struct Run {
  Net<Buffer> net;
  train::AdamState<Net<Buffer>> state;
  std::vector<double> losses;  ///< one per epoch
  std::uint64_t seed;

  Run(const Net<Shape>& shapes, const Training<Net>& training, const Options& options,
      const DevicePtr& device)
      : net(train::initialize(shapes, options.seed, device)),
        state(training.optimizer.start(net, device)),
        seed(options.seed) {
    if (options.resume.empty()) return;
    const io::File file = io::open(options.resume);
    Checkpoint<Net<Buffer>> read = train::load(file, Checkpoint<Net<Buffer>>{net, state}, device);
    net = std::move(read.net);
    state = std::move(read.optimizer);
    const HostBuffer known = file.at("losses").data();
    losses.assign(known.values<double>().begin(), known.values<double>().end());
    seed = static_cast<std::uint64_t>(saved_number(file, "seed"));
  }

  void save(const std::string& path) const {
    const Shape points({static_cast<std::int64_t>(losses.size())}, f64);
    const auto number = static_cast<std::int64_t>(seed);
    train::save(path, Checkpoint<Net<Buffer>>{net, state},
                {{"losses", HostBuffer::of<double>(points, std::span<const double>(losses))},
                 {"seed", HostBuffer::of<std::int64_t>(Shape({1}, i64), {number})}});
  }
};

template <template <class> class Net>
Run<Net> train_network(const Net<Shape>& shapes, const Recipe& recipe, const Options& options,
                       const Digits& data, const DevicePtr& device) {
  const Training<Net> training{train::adamw(recipe.weight_decay), recipe.label_smoothing};
  Run<Net> run(shapes, training, options, device);
  const Shape images({recipe.batch, 1, recipe.side, recipe.side}, f32);
  auto step = compile<&Training<Net>::step>(training,
                                            {train::shapes_of(run.net), train::shapes_of(run.state),
                                             images, Shape({recipe.batch}, i32), Shape({}, f32)},
                                            device)
                  .bind(training);
  const std::int64_t epochs = options.epochs > 0 ? options.epochs : recipe.epochs;
  const std::int64_t batches = data.count() / recipe.batch;
  const train::WarmupCosine rate{
      .peak = recipe.rate, .warmup = recipe.warmup, .total = epochs * batches};
  const std::int64_t last = options.stop > 0 ? std::min(options.stop, epochs) : epochs;
  for (auto epoch = static_cast<std::int64_t>(run.losses.size()); epoch < last; ++epoch) {
    // Everything random follows from the seed and the epoch.
    std::mt19937_64 random(run.seed * 1'000'003 + static_cast<std::uint64_t>(epoch));
    const std::vector<std::size_t> order = shuffled(data.count(), random);
    double sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
      const auto chosen = std::span(order).subspan(static_cast<std::size_t>(b * recipe.batch),
                                                   static_cast<std::size_t>(recipe.batch));
      Buffer loss;
      std::tie(run.net, run.state, loss) =
          step(std::move(run.net), std::move(run.state),
               data.moved(chosen, recipe.reach, random).to_device(device),
               data.labels_of(chosen).to_device(device),
               train::scalar(rate.at(epoch * batches + b), f32, device));
      sum += static_cast<double>(loss.to_host().values<float>()[0]);
    }
    run.losses.push_back(sum / static_cast<double>(batches));
    show_progress(epoch + 1, epochs, run.losses.back());
  }
  std::fprintf(stderr, "\n");
  if (!options.checkpoint.empty()) run.save(options.checkpoint);
  if (!options.svg.empty()) write_svg(options.svg, run.losses);
  return run;
}

/// How many of the held-out digits a network gets right.
template <template <class> class Net>
void judge(const Net<Buffer>& net, std::int64_t side, std::size_t epochs, const DevicePtr& device) {
  const Digits test = Digits::read("examples/data/digits_test.safetensors", side, device);
  const Training<Net> training;
  auto classify = compile<&Training<Net>::classify>(
                      training, {train::shapes_of(net), test.images.shape()}, device)
                      .bind(training);
  const HostBuffer found = classify(net, test.images.to_device(device)).to_host();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < test.count(); ++i) {
    right += found.at({i}) == test.labels.at({i}) ? 1 : 0;
  }
  std::printf("%lld of %lld held-out digits right, %.2f %%, after %zu epochs\n",
              static_cast<long long>(right), static_cast<long long>(test.count()),
              100.0 * static_cast<double>(right) / static_cast<double>(test.count()), epochs);
}

template <template <class> class Net>
void make(const Net<Shape>& shapes, const Recipe& recipe, const Options& options,
          const DevicePtr& device) {
  const Digits data = Digits::read("examples/data/digits_train.safetensors", recipe.side, device);
  const Run<Net> run = train_network<Net>(shapes, recipe, options, data, device);
  if (!options.weights.empty()) train::save(options.weights, run.net);
  judge<Net>(run.net, recipe.side, run.losses.size(), device);
}

template <class T>
using PlainMobileNet = MobileNet<nn::Conv2d<T>>;

struct Fold {
  TENON_FIELDS()
  std::vector<Tensor> forward(TrainedMobileNet<Tensor> net, Tensor images) const {
    return net.folded(images);
  }
};

/// The network without normalisation: the statistics are those of all images of the training.
PlainMobileNet<Buffer> folded(const TrainedMobileNet<Buffer>& net, const Digits& data,
                              const DevicePtr& device) {
  const Fold fold;
  auto run = compile<&Fold::forward>(fold, {train::shapes_of(net), data.images.shape()}, device)
                 .bind(fold);
  const std::vector<Buffer> plain = run(net, data.images.to_device(device));
  std::size_t next = 0;
  const auto conv = [&](const NormalizedConv<Buffer>& trained) {
    next += 2;
    return nn::Conv2d<Buffer>{plain[next - 2], plain[next - 1], trained.options};
  };
  const auto block = [&](const InvertedResidual<NormalizedConv<Buffer>>& trained) {
    InvertedResidual<nn::Conv2d<Buffer>> made;
    if (trained.expand) made.expand = conv(*trained.expand);
    made.depthwise = conv(trained.depthwise);
    made.project = conv(trained.project);
    return made;
  };
  // In the order of the layers, as braces evaluate.
  return {conv(net.stem),    block(net.block0), block(net.block1), block(net.block2),
          block(net.block3), block(net.block4), block(net.block5), block(net.block6),
          conv(net.last),    net.head};
}

void make_mobilenet(const Options& options, const DevicePtr& device) {
  const Recipe recipe{.side = 32,
                      .epochs = 16,
                      .batch = 48,
                      .warmup = 100,
                      .rate = 6e-3,
                      .weight_decay = 0.04,
                      .label_smoothing = 0.1,
                      .reach = 3};
  const Digits data = Digits::read("examples/data/digits_train.safetensors", recipe.side, device);
  const auto run =
      train_network<TrainedMobileNet>(mobilenet_shapes(), recipe, options, data, device);
  const PlainMobileNet<Buffer> plain = folded(run.net, data, device);
  if (!options.weights.empty()) train::save(options.weights, plain);
  judge<PlainMobileNet>(plain, recipe.side, run.losses.size(), device);
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const DevicePtr device = Device::open("cpu:");
  if (options.network == "mobilenet") {
    make_mobilenet(options, device);
  } else if (options.network == "mlp") {
    make<Mlp>(mlp_shapes(), {.epochs = 200}, options, device);
  } else if (options.network == "cnn") {
    make<Cnn>(cnn_shapes(), {}, options, device);
  } else {
    throw Error(Errc::bad_argument, "--network",
                "'" + options.network + "' is no cnn, mlp or mobilenet");
  }
  return 0;
} catch (const tenon::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return tenon::exit_status(error.code());
}
