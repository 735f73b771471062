// Random networks on random devices, engines interleaved at random: always the bits of the host.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

/// Layers at random on an image, with residuals and branches where shapes allow.
class RandomNetwork {
 public:
  RandomNetwork(Graph& graph, Random& random) : graph_(graph), random_(random) {}

  std::vector<Tensor> operator()(const Tensor& input) {
    values_ = {input};
    const std::int64_t layers = random_.integer(1, 7);
    for (std::int64_t i = 0; i < layers; ++i) values_.push_back(layer(pick()));
    std::vector<Tensor> outputs{values_.back()};
    if (random_.integer(0, 3) == 0) outputs.push_back(values_[values_.size() / 2]);
    if (random_.integer(0, 2) == 0) outputs.push_back(head(values_.back()));
    return outputs;
  }

 private:
  // Mostly what was made last: chains are what fuses.
  const Tensor& pick() {
    const auto last = static_cast<std::int64_t>(values_.size()) - 1;
    return values_[static_cast<std::size_t>(random_.integer(0, 2) == 0 ? random_.integer(0, last)
                                                                       : last)];
  }
  Tensor constant(const Shape& shape) {
    return graph_.constant(fmt::format("w{}", number_++), shape);
  }
  std::int64_t channels() {
    const std::int64_t some[] = {1, 3, 8, 20, 31, 32, 33, 64, 70};
    return some[random_.integer(0, 8)];
  }

  Tensor layer(const Tensor& x) {
    const std::int64_t c = x.shape()[1], h = x.shape()[2], w = x.shape()[3];
    switch (random_.integer(0, 14)) {
      case 0:
      case 1:
      case 2:
        return convolution(x);
      case 3: {
        const std::int64_t k = random_.integer(1, 3);
        if (c == 1) return convolution(x);  // one group is no depthwise convolution
        return conv2d(x, constant(Shape({c, 1, k, k}, f32)), constant(Shape({c}, f32)),
                      {.padding = {k / 2, k / 2}, .groups = c});
      }
      case 4:
        if (h < 2 || w < 2) return relu(x);
        return max_pool2d(x, {.kernel = {2, 2}, .stride = {random_.integer(1, 2), 2}});
      case 5:
        if (h < 3 || w < 3) return neg(x);
        return avg_pool2d(
            x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = true});
      case 6:
        return relu6(x);
      case 7:
        return silu(x);
      case 8:
        return leaky_relu(x, 0.2);
      case 9:
        return x * mean(x, {2, 3}, true);
      case 10:
        return x + constant(Shape({1, c, 1, 1}, f32));
      case 11:
        return padded(x);
      case 12:
        return c > 32 ? slice(x, 1, 32 * random_.integer(0, (c - 1) / 32)) : relu(x);
      case 13:
        return joined(x);
      default:
        for (const Tensor& other : values_) {
          if (other.shape() == x.shape() && random_.integer(0, 1) == 0) {
            return random_.integer(0, 1) == 0 ? x + other : maximum(x, other);
          }
        }
        return x - mean(x, {2, 3}, true);
    }
  }

  // Zeros around an image: of the window behind them, or a layer of their own.
  Tensor padded(const Tensor& x) {
    const auto some = [&] { return random_.integer(0, 3); };
    const Tensor y = pad(x, {0, 0, some(), some()}, {0, 0, some(), some()});
    return y.shape()[2] > 40 || y.shape()[3] > 40 ? relu(x)
           : random_.integer(0, 1) == 0           ? y
                                                  : convolution(y);
  }

  // Images of one size next to each other; all but the last have whole blocks of channels.
  Tensor joined(const Tensor& x) {
    std::vector<Tensor> parts;
    const auto fits = [&](const Tensor& other) {
      return other.shape()[0] == x.shape()[0] && other.shape()[2] == x.shape()[2] &&
             other.shape()[3] == x.shape()[3];
    };
    for (const Tensor& other : values_) {
      if (fits(other) && other.shape()[1] % 32 == 0 && parts.size() < 3) parts.push_back(other);
    }
    parts.push_back(x);
    return concat(parts, 1);
  }

  Tensor convolution(const Tensor& x) {
    const std::int64_t c = x.shape()[1], h = x.shape()[2], w = x.shape()[3];
    const std::int64_t k = random_.integer(1, 3), o = channels(), d = random_.integer(1, 2);
    Conv2d attributes{.stride = {random_.integer(1, 2), random_.integer(1, 2)}};
    const std::int64_t extent = d * (k - 1) + 1;
    if (extent <= h && extent <= w) attributes.dilation = {d, d};
    attributes.padding = {k / 2, k / 2, (k - 1) / 2, k / 2};
    const Tensor bias = random_.integer(0, 1) == 0 ? Tensor() : constant(Shape({o}, f32));
    if (k > h || k > w) return relu(x);
    Tensor y = conv2d(x, constant(Shape({o, c, k, k}, f32)), bias, attributes);
    return random_.integer(0, 1) == 0 ? y : relu(y);
  }

  Tensor head(const Tensor& x) {
    const Tensor rows = flatten(x, 1, 3);
    const std::int64_t n = random_.integer(1, 40);
    return linear(rows, constant(Shape({n, rows.shape()[1]}, f32)), constant(Shape({n}, f32)));
  }

  Graph& graph_;
  Random& random_;
  std::vector<Tensor> values_;
  int number_ = 0;
};

std::string random_url(Random& random) {
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return *(words.begin() + random.integer(0, static_cast<std::int64_t>(words.size()) - 1));
  };
  return fmt::format(
      "npu://sim?strict=1&mac={}&ocm={}&acc={}&wbuf={}&queue={}&coherent={}&sched={}&seed={}",
      one_of({"32x32", "16x8", "8x16", "5x7"}), one_of({"48KiB", "128KiB", "2MiB"}),
      one_of({"16KiB", "64KiB", "256KiB"}), random.integer(1, 2), one_of({"1", "4", "64"}),
      random.integer(0, 1), one_of({"time", "random", "random"}), random.integer(0, 1 << 30));
}

/// As run(), step by step.
std::vector<HostBuffer> run_apart(const Network& network, const BackendPtr& backend,
                                  const std::vector<HostBuffer>& inputs) {
  register_reference_backend();
  Session session(network.program, {.backends = {backend, make_backend("reference")}});
  session.bind(network.weights);
  session.set_merge(false);
  std::vector<HostBuffer> results;
  for (const Buffer& output : session.forward({inputs[0].to_device(cpu_device())})) {
    results.push_back(output.to_host());
  }
  return results;
}

TEST_CASE("npu: random networks on random devices give the bits of the host") {
  const char* wanted = std::getenv("TENON_NPU_NETWORKS");
  const int count = wanted != nullptr ? std::atoi(wanted) : rounds(60);
  Random random;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = random.engine()();
    Random own(seed);
    const Shape shape({own.integer(1, 3), own.integer(0, 1) == 0 ? 3 : own.integer(1, 40),
                       own.integer(1, 14), own.integer(1, own.integer(0, 5) == 0 ? 30 : 14)},
                      f32);
    const CalibrationOptions calibration{.observer = {}, .per_channel = own.integer(0, 1) == 1};
    const Network network = make_network(
        {shape},
        [&](Graph& graph, const std::vector<Tensor>& in) {
          return RandomNetwork(graph, own)(in[0]);
        },
        seed, calibration);
    const std::string url = random_url(own);
    INFO("network " << i << " of seed " << seed << " on " << url << "\n" << print(network.program));
    const auto inputs = network.sample(seed + 1);
    Options options = options_for(network, Mode::exact);
    options.fuse = own.integer(0, 4) != 0;
    options.per_channel = own.integer(0, 4) != 0;
    // On the CPU as well the device says what it has no room for, which the reference then
    // computes.
    const auto exact = run(network, backend(open_npu(url), options), inputs);
    options.mode = Mode::device;
    options.merge = own.integer(0, 4) != 0;
    options.placement = static_cast<Placement>(own.integer(0, 4));
    const bool same = same_bits(run(network, backend(open_npu(url), options), inputs), exact);
    REQUIRE(same);
    const bool same_apart =
        same_bits(run_apart(network, backend(open_npu(url), options), inputs), exact);
    REQUIRE(same_apart);
  }
}

}  // namespace
}  // namespace tenon::npu
