// 3x3 convolutions by Winograd and directly (with `exact`), interleaved, in chains of equal layers
// with different filters, as in networks. Then the error of one layer by both, relative to sums in
// f64, for images after a relu and random filters.
//
//   bench_convolution [--threads N] [--depth LAYERS] [--rounds N] [--layers CxS CxS ...]
//
// CxS: C channels in and out, S by S pixels; --layers comes last. Operations are those of the
// direct sum, a multiply-add counted as two, for both: with Winograd, shares of the limit can
// exceed 100 %.
#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/limits.hpp"
#include "backends/cpu/thread_pool.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;

struct Layer {
  std::int64_t channels, side;
};

struct Settings {
  int threads = 0, depth = 4, rounds = 15;
  std::vector<Layer> layers{{64, 56}, {128, 28}, {256, 14}, {512, 7}, {32, 112}, {96, 28}};
};

HostBuffer random_values(std::mt19937& random, const Shape& shape, float scale, bool behind_relu) {
  std::normal_distribution<float> normal(0, scale);
  HostBuffer values = HostBuffer::zeros(shape);
  for (float& value : values.mutable_values<float>()) {
    value = normal(random);
    if (behind_relu) value = std::max(value, 0.0f);
  }
  return values;
}

double seconds_of(Session& session, const Buffer& image) {
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(session.forward({image}));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

Tensor layer(Graph& graph, const Tensor& x, std::int64_t channels, int number) {
  const Tensor w =
      graph.constant(fmt::format("w{}", number), Shape({channels, channels, 3, 3}, f32));
  return conv2d(x, w, {}, {.stride = {}, .padding = {1, 1}, .dilation = {}});
}

/// A session of the chain on the backend, and one of its first layer alone.
struct Sessions {
  Session chain, alone;

  Sessions(const BackendPtr& backend, const Layer& sizes, std::int64_t batch, int depth,
           const std::shared_ptr<const WeightSet>& weights)
      : chain(program(sizes, batch, depth, true), {.backends = {backend}}),
        alone(program(sizes, batch, 1, false), {.backends = {backend}}) {
    chain.bind(weights);
    alone.bind(weights);
  }

  static Program program(const Layer& sizes, std::int64_t batch, int depth, bool reduces) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Shape image({batch, sizes.channels, sizes.side, sizes.side}, f32);
    Tensor x = graph.input("x", image);
    for (int i = 0; i < depth; ++i) x = layer(graph, x, sizes.channels, i);
    // Images that nobody sees lie with their channels last.
    if (reduces) x = mean(x, {2, 3});
    return graph.program({&x, 1});
  }
};

struct Errors {
  double largest = 0, mean = 0;  ///< as a share of the outputs' root mean square
};

/// Of every 97th output of the first image.
Errors errors(const HostBuffer& x, const HostBuffer& w, const HostBuffer& y) {
  const std::int64_t channels = x.shape()[1], side = x.shape()[2];
  const auto xs = x.values<float>(), ws = w.values<float>(), ys = y.values<float>();
  const auto at = [](auto values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  Errors result;
  double squares = 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < channels * side * side; i += 97, ++count) {
    const std::int64_t output = i / (side * side), row = i / side % side, column = i % side;
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t r = std::max<std::int64_t>(0, 1 - row); r < std::min(3L, side + 1 - row);
           ++r) {
        for (std::int64_t s = std::max<std::int64_t>(0, 1 - column);
             s < std::min(3L, side + 1 - column); ++s) {
          sum += at(xs, (c * side + row + r - 1) * side + column + s - 1) *
                 at(ws, ((output * channels + c) * 3 + r) * 3 + s);
        }
      }
    }
    const double error = std::abs(at(ys, i) - sum);
    result.largest = std::max(result.largest, error);
    result.mean += error;
    squares += sum * sum;
  }
  const double scale = std::sqrt(squares / static_cast<double>(count));
  return {result.largest / scale, result.mean / static_cast<double>(count) / scale};
}

void measure(const Settings& settings, const Layer& sizes, std::int64_t batch, double limit) {
  std::mt19937 random(1);
  const Shape image({batch, sizes.channels, sizes.side, sizes.side}, f32);
  const HostBuffer x = random_values(random, image, 1.0f, true);
  const float scale = std::sqrt(2.0f / static_cast<float>(9 * sizes.channels));
  std::vector<HostBuffer> filters;
  std::map<std::string, Buffer> buffers;
  for (int i = 0; i < settings.depth; ++i) {
    filters.push_back(
        random_values(random, Shape({sizes.channels, sizes.channels, 3, 3}, f32), scale, false));
    buffers[fmt::format("w{}", i)] = filters.back().to_device(cpu_device());
  }
  const auto weights = std::make_shared<const WeightSet>(std::move(buffers));
  std::vector<std::unique_ptr<Sessions>> both;
  for (const bool exact : {false, true}) {
    const BackendPtr backend = make_backend("cpu", {.threads = settings.threads, .exact = exact});
    both.push_back(std::make_unique<Sessions>(backend, sizes, batch, settings.depth, weights));
  }
  const Buffer input = x.to_device(cpu_device());
  std::vector<double> times[2];
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      seconds_of(both[i]->chain, input);
      for (int run = 0; run < 3; ++run) times[i].push_back(seconds_of(both[i]->chain, input));
    }
  }
  const auto pixels = static_cast<double>(batch * sizes.side * sizes.side);
  const auto channels = static_cast<double>(sizes.channels);
  const double operations = 2 * 9 * pixels * channels * channels;
  fmt::print("{:5} {:4} {:5}", sizes.channels, sizes.side, batch);
  for (const auto& list : times) {
    const double seconds = median(list) / settings.depth;
    fmt::print("  {:8.3f} ms {:5.0f} {:4.0f} %", seconds * 1e3, operations / seconds * 1e-9,
               100 * operations / seconds / limit);
  }
  fmt::print(" {:6.2f}x", median(times[1]) / median(times[0]));
  for (const auto& sessions : both) {
    const Errors e = errors(x, filters[0], sessions->alone.forward({input}).at(0).to_host());
    fmt::print("  {:8.1e} {:8.1e}", e.largest, e.mean);
  }
  fmt::print("\n");
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads") settings.threads = std::stoi(argv[i + 1]);
    if (name == "--depth") settings.depth = std::max(1, std::stoi(argv[i + 1]));
    if (name == "--rounds") settings.rounds = std::max(1, std::stoi(argv[i + 1]));
    if (name == "--layers") {
      settings.layers.clear();
      for (int j = i + 1; j < argc; ++j) {
        const std::string text = argv[j];
        settings.layers.push_back({std::stoi(text), std::stoi(text.substr(text.find('x') + 1))});
      }
      break;
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  register_cpu_backend();
  cpu::ThreadPool pool(settings.threads);
  const double limit = cpu::measure_limits(pool, 0.2).f32_ops;
  fmt::print("level {}, {} threads, f32 limit {:.0f} Gop/s; medians, a layer of a chain of {}\n",
             cpu::name(cpu::active_isa()), pool.threads(), limit * 1e-9, settings.depth);
  fmt::print(
      "                    Winograd    Gop/s of limit      direct   Gop/s of limit   ratio"
      "  error: Winograd           direct\n");
  fmt::print(
      "channels, side, batch                                                              "
      "  largest     mean   largest     mean\n");
  for (const std::int64_t batch : {1, 8}) {
    for (const Layer& sizes : settings.layers) measure(settings, sizes, batch, limit);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
