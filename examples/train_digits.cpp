// Trains the convolutional network of digits.cpp from scratch:
//
//   train_digits [--epochs N] [--stop N] [--seed N] [--checkpoint FILE] [--resume FILE] [--weights FILE]
//                [--svg FILE]
//
// The whole step - forward, loss, gradients, AdamW - is one program. A checkpoint holds the network
// and the optimiser's state; a run that is resumed from it continues with the same bits. `--weights`
// writes the network alone, as digits.cpp reads it.
#include "digits_networks.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace {

constexpr std::int64_t batch = 64;

struct Options {
  std::int64_t epochs = 100;
  std::int64_t stop = 0;  ///< the epoch after which to end early; 0: none
  std::uint64_t seed = 1;
  std::string checkpoint, resume, weights, svg;
};

struct Training {
  train::Adam optimizer = train::adamw(0.02);
  TENON_FIELDS()

  /// images f32 [batch, 1, 8, 8], labels i32 [batch], rate f32 [].
  std::tuple<Cnn<Tensor>, train::AdamState<Cnn<Tensor>>, Tensor> step(
      Cnn<Tensor> net, train::AdamState<Cnn<Tensor>> state, Tensor images, Tensor labels,
      Tensor rate) const {
    const Tensor loss = cross_entropy(net.forward(images), labels);
    auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
    return {next, next_state, loss};
  }

  /// The class of each image: i32 [n].
  Tensor classify(Cnn<Tensor> net, Tensor images) const { return argmax(net.forward(images), -1); }
};

template <class T>
struct Checkpoint {
  Cnn<T> net;
  train::AdamState<Cnn<T>> optimizer;
  TENON_FIELDS(net, optimizer)
};

Cnn<Shape> network_shapes() {
  const Conv2d same{.padding = {1, 1, 1, 1}};
  return {.conv1 = {Shape({16, 1, 3, 3}, f32), Shape({16}, f32), same},
          .conv2 = {Shape({32, 16, 3, 3}, f32), Shape({32}, f32), same},
          .head = {Shape({10, 128}, f32), Shape({10}, f32)}};
}

/// The images [8, 8] of a batch, each moved by up to one pixel: people do not write on a grid.
HostBuffer moved_images(std::span<const std::uint8_t> pixels, std::span<const std::size_t> chosen,
                        std::mt19937_64& random) {
  HostBuffer images = HostBuffer::zeros(Shape({batch, 1, 8, 8}, f32));
  const auto to = images.mutable_values<float>();
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    const auto dy = static_cast<int>(random() % 3) - 1, dx = static_cast<int>(random() % 3) - 1;
    for (int y = std::max(0, -dy); y < std::min(8, 8 - dy); ++y) {
      for (int x = std::max(0, -dx); x < std::min(8, 8 - dx); ++x) {
        const auto from = chosen[n] * 64 + static_cast<std::size_t>((y + dy) * 8 + x + dx);
        to[n * 64 + static_cast<std::size_t>(y * 8 + x)] = static_cast<float>(pixels[from]) / 16.0F;
      }
    }
  }
  return images;
}

/// A line chart of the losses, one point per epoch, on a logarithmic scale.
void write_svg(const std::string& path, const std::vector<double>& losses) {
  std::ofstream svg(path);
  svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 640 360' font-family='sans-serif' "
         "font-size='12'>\n<rect width='640' height='360' fill='white'/>\n";
  const auto [least, most] = std::ranges::minmax(losses);
  const double low = std::log10(least), high = std::log10(most) + 1e-9;
  const auto y_of = [&](double loss) {
    return 320 - 290 * (std::log10(loss) - low) / (high - low);
  };
  svg << "<polyline fill='none' stroke='#1f77b4' stroke-width='2' points='";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double x = 60 + 560 * static_cast<double>(i) /
                              static_cast<double>(std::max<std::size_t>(losses.size() - 1, 1));
    svg << x << ',' << y_of(losses[i]) << ' ';
  }
  svg << "'/>\n";
  for (const double loss : {most, least}) {
    svg << "<text x='8' y='" << y_of(loss) + 4 << "'>" << loss << "</text>\n";
  }
  svg << "<text x='300' y='350'>epoch, 0 to " << losses.size() - 1
      << "</text>\n<text x='60' y='18'>training loss (log scale)</text>\n</svg>\n";
  if (!svg.flush()) throw Error(Errc::io_error, path, "cannot write the loss curve");
}

/// "[#####.....] epoch 15 of 30, loss 0.0321", on one line of a terminal.
void show_progress(std::int64_t epoch, std::int64_t epochs, double loss) {
  const auto done = static_cast<std::size_t>(30 * epoch / epochs);
  std::fprintf(stderr, "\r[%s%s] epoch %lld of %lld, loss %.5f", std::string(done, '#').c_str(),
               std::string(30 - done, '.').c_str(), static_cast<long long>(epoch),
               static_cast<long long>(epochs), loss);
}

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
    if (word == "--epochs") {
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
          "the options are --epochs, --stop, --seed, --checkpoint, --resume, --weights and --svg");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options = parse(argc, argv);
  const DevicePtr device = Device::open("cpu:");
  const io::File data = io::open("examples/data/digits_train.safetensors");
  const HostBuffer pixels = data.at("images").data(), classes = data.at("labels").data();
  const auto count = static_cast<std::size_t>(pixels.shape()[0]);

  Cnn<Buffer> net = train::initialize(network_shapes(), options.seed, device);
  const Training training;
  auto state = training.optimizer.start(net, device);
  std::vector<double> losses;  // one per epoch
  if (!options.resume.empty()) {
    const io::File file = io::open(options.resume);
    Checkpoint<Buffer> read = train::load(file, Checkpoint<Buffer>{net, state}, device);
    net = std::move(read.net);
    state = std::move(read.optimizer);
    const HostBuffer known = file.at("losses").data();
    losses.assign(known.values<double>().begin(), known.values<double>().end());
    options.seed = static_cast<std::uint64_t>(file.at("seed").data().values<std::int64_t>()[0]);
  }

  const Shape images_shape({batch, 1, 8, 8}, f32), labels_shape({batch}, i32);
  auto step =
      compile<&Training::step>(training,
                               {train::shapes_of(net), train::shapes_of(state), images_shape,
                                labels_shape, Shape(std::span<const Axis>(), f32)},
                               device)
          .bind(training);
  const std::int64_t batches = static_cast<std::int64_t>(count) / batch;
  const train::WarmupCosine rate{.peak = 4e-3, .warmup = 20, .total = options.epochs * batches};
  const std::int64_t last =
      options.stop > 0 ? std::min(options.stop, options.epochs) : options.epochs;
  for (auto epoch = static_cast<std::int64_t>(losses.size()); epoch < last; ++epoch) {
    // Everything random follows from the seed and the epoch.
    std::mt19937_64 random(options.seed * 1'000'003 + static_cast<std::uint64_t>(epoch));
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    for (std::size_t i = count - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
    double sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
      const auto chosen = std::span(order).subspan(static_cast<std::size_t>(b * batch), batch);
      HostBuffer labels = HostBuffer::uninitialized(labels_shape);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        labels.mutable_values<std::int32_t>()[i] = classes.values<std::uint8_t>()[chosen[i]];
      }
      const HostBuffer images = moved_images(pixels.values<std::uint8_t>(), chosen, random);
      Buffer loss;
      std::tie(net, state, loss) =
          step(std::move(net), std::move(state), images.to_device(device), labels.to_device(device),
               train::scalar(rate.at(epoch * batches + b), f32, device));
      sum += static_cast<double>(loss.to_host().values<float>()[0]);
    }
    losses.push_back(sum / static_cast<double>(batches));
    show_progress(epoch + 1, options.epochs, losses.back());
  }
  std::fprintf(stderr, "\n");

  if (!options.checkpoint.empty()) {
    const auto seed = static_cast<std::int64_t>(options.seed);
    const Shape points({static_cast<std::int64_t>(losses.size())}, f64);
    train::save(options.checkpoint, Checkpoint<Buffer>{net, state},
                {{"losses", HostBuffer::of<double>(points, std::span<const double>(losses))},
                 {"seed", HostBuffer::of<std::int64_t>(Shape({1}, i64), {seed})}});
  }
  if (!options.weights.empty()) train::save(options.weights, net);
  if (!options.svg.empty()) write_svg(options.svg, losses);

  const io::File test = io::open("examples/data/digits_test.safetensors");
  const HostBuffer truth = test.at("labels").data();
  const std::int64_t tested = truth.shape()[0];
  const HostBuffer images = test.at("images").data().reshape({tested, 1, 8, 8});
  auto classify =
      compile<&Training::classify>(training, {train::shapes_of(net), images.shape()}, device)
          .bind(training);
  const HostBuffer found = classify(net, images.to_device(device)).to_host();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < tested; ++i) right += found.at({i}) == truth.at({i}) ? 1 : 0;
  std::printf("%lld of %lld held-out digits right, %.2f %%, after %lld epochs\n",
              static_cast<long long>(right), static_cast<long long>(tested),
              100.0 * static_cast<double>(right) / static_cast<double>(tested),
              static_cast<long long>(losses.size()));
  return 0;
} catch (const tenon::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return tenon::exit_status(error.code());
}
