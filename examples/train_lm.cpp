// Trains the character model of char_lm.hpp on a text and lets it write:
//
//   train_lm [--steps N] [--seed N] [--weights FILE] TEXT
#include "char_lm.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <tuple>

using namespace tenon;

namespace {

constexpr std::int64_t batch = 8;

struct Options {
  std::int64_t steps = 500;
  std::uint64_t seed = 1;
  std::string weights, text;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (!options.text.empty()) throw Error(Errc::bad_argument, word, "is one argument too many");
      options.text = word;
      continue;
    }
    if (i + 1 == argc) throw Error(Errc::bad_argument, word, "needs a value");
    const std::string value = argv[++i];
    if (word == "--weights") {
      options.weights = value;
      continue;
    }
    char* end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || number < 1) {
      throw Error(Errc::bad_argument, word, "'" + value + "' is no positive number");
    }
    if (word == "--steps") {
      options.steps = number;
    } else if (word == "--seed") {
      options.seed = static_cast<std::uint64_t>(number);
    } else {
      throw Error(Errc::bad_argument, word, "the options are --steps, --seed and --weights");
    }
  }
  if (options.text.empty()) throw Error(Errc::bad_argument, "train_lm", "needs a text file");
  return options;
}

/// The text's bytes; those beyond ASCII become '?'.
std::string read_text(const std::string& path, std::int64_t least) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Errc::not_found, path, "cannot be opened");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (char& c : text) c = static_cast<unsigned char>(c) < 128 ? c : '?';
  if (static_cast<std::int64_t>(text.size()) <= least) {
    throw Error(Errc::truncated, path, "has no more characters than one window");
  }
  return text;
}

/// Windows of the text at random places: i32 [batch, steps + 1].
HostBuffer random_windows(const std::string& text, std::int64_t steps, std::mt19937_64& random) {
  HostBuffer ids = HostBuffer::uninitialized(Shape({batch, steps + 1}, i32));
  const auto values = ids.mutable_values<std::int32_t>();
  const auto width = static_cast<std::size_t>(steps) + 1;
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b) {
    const std::size_t begin = random() % (text.size() - width + 1);
    for (std::size_t t = 0; t < width; ++t) values[b * width + t] = text[begin + t];
  }
  return ids;
}

/// A character drawn from the softmax of `scores`, sharpened by the temperature 0.7.
char draw(std::span<const float> scores, std::mt19937_64& random) {
  const float most = *std::ranges::max_element(scores);
  std::vector<double> weights;
  for (const float score : scores) weights.push_back(std::exp((score - most) / 0.7));
  return static_cast<char>(std::discrete_distribution<int>(weights.begin(), weights.end())(random));
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const DevicePtr device = Device::open("cpu:");
  const char_lm::Sizes sizes;
  const std::string text = read_text(options.text, sizes.context + 1);
  std::mt19937_64 random(options.seed);

  const auto shapes = char_lm::shapes(sizes);
  auto net = train::initialize(shapes, options.seed, device, char_lm::initial);
  const char_lm::Training training;
  auto state = training.optimizer.start(net, device);
  auto step =
      compile<&char_lm::Training::step>(
          training,
          {shapes, train::shapes_of(state), Shape({batch, sizes.context + 1}, i32), Shape({}, f32)},
          device)
          .bind(training);
  const train::WarmupCosine rate{.peak = 3e-3, .warmup = 20, .total = options.steps};
  double mean = 0;
  for (std::int64_t i = 0; i < options.steps; ++i) {
    Buffer loss;
    std::tie(net, state, loss) = step(std::move(net), std::move(state),
                                      random_windows(text, sizes.context, random).to_device(device),
                                      train::scalar(rate.at(i), f32, device));
    const auto now = static_cast<double>(loss.to_host().values<float>()[0]);
    mean = i == 0 ? now : 0.95 * mean + 0.05 * now;
    if ((i + 1) % 20 == 0 || i + 1 == options.steps) {
      std::fprintf(stderr, "\rstep %lld of %lld, loss %.4f", static_cast<long long>(i + 1),
                   static_cast<long long>(options.steps), mean);
    }
  }
  std::fprintf(stderr, "\n");
  if (!options.weights.empty()) train::save(options.weights, net);

  // The window slides over what has been written.
  const Shape window({1, sizes.context}, i32);
  auto next =
      compile<&char_lm::Training::next_scores>(training, {shapes, window}, device).bind(training);
  std::string written = text.substr(0, static_cast<std::size_t>(sizes.context));
  for (int i = 0; i < 200; ++i) {
    HostBuffer ids = HostBuffer::uninitialized(window);
    std::ranges::copy(
        std::string_view(written).substr(written.size() - static_cast<std::size_t>(sizes.context)),
        ids.mutable_values<std::int32_t>().begin());
    const HostBuffer scores = next(net, ids.to_device(device)).to_host();
    written += draw(scores.values<float>(), random);
  }
  std::printf("%s\nloss %.3f after %lld steps\n", written.c_str(), mean,
              static_cast<long long>(options.steps));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
