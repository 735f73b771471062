// The time until a network can run: from its program, weights and calibration, without and with a
// cache on disk, and from a snapshot that a session saved.
//
//   bench_cold_start [RUNS]
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <stdlib.h>

namespace {

using namespace tenon;

struct Network {
  std::string name;
  Program program;
  std::shared_ptr<const WeightSet> weights;
  Shape input;

  std::int64_t weight_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [unused, weight] : weights->all()) bytes += weight.shape().bytes();
    return bytes;
  }
  /// The same weights, packed by nobody yet, or by who wrote the file at `cache`.
  std::shared_ptr<const WeightSet> fresh_weights(const std::filesystem::path& cache = {}) const {
    auto prepared =
        cache.empty() ? nullptr : std::make_shared<PreparedCache>(PreparedFile{cache, "bench"});
    return std::make_shared<const WeightSet>(weights->all(), std::move(prepared));
  }
  HostBuffer sample() const { return random_array(input, 1, 7); }

  static HostBuffer random_array(const Shape& shape, float scale, unsigned seed) {
    HostBuffer array = HostBuffer::zeros(shape);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    for (float& value : array.mutable_values<float>()) value = normal(random);
    return array;
  }
};

/// Records a network whose constants get random values.
class Maker {
 public:
  explicit Maker(const Shape& image) : image_(image), x_(graph_.input("image", image)) {}

  Tensor weight(const Shape& shape, std::int64_t inputs) {
    const std::string name = fmt::format("w{}", weights_.size());
    const float scale = 1 / std::sqrt(static_cast<float>(inputs));
    const auto seed = static_cast<unsigned>(weights_.size());
    weights_.emplace(name, Network::random_array(shape, scale, seed).to_device(cpu_device()));
    return graph_.constant(name, shape);
  }
  Tensor conv(const Tensor& x, std::int64_t outputs, std::int64_t size, std::int64_t stride) {
    const std::int64_t inputs = x.shape()[1], pad = size / 2;
    Conv2d options;
    options.stride = {stride, stride};
    options.padding = {pad, pad, pad, pad};
    return conv2d(x, weight(Shape({outputs, inputs, size, size}, f32), inputs * size * size),
                  weight(Shape({outputs}, f32), outputs), options);
  }
  void stem(std::int64_t outputs, std::int64_t size, std::int64_t stride) {
    x_ = relu(conv(x_, outputs, size, stride));
  }
  /// Two 3x3 around a shortcut.
  void block(std::int64_t outputs, std::int64_t stride) {
    const Tensor h = conv(relu(conv(x_, outputs, 3, stride)), outputs, 3, 1);
    const bool same = stride == 1 && outputs == x_.shape()[1];
    x_ = relu(h + (same ? x_ : conv(x_, outputs, 1, stride)));
  }
  void classify(std::int64_t classes) {
    x_ = mean(x_, {2, 3});
    x_ = linear(x_, weight(Shape({classes, x_.shape()[1]}, f32), x_.shape()[1]));
  }
  Network finish(std::string name) {
    return {std::move(name), graph_.program({&x_, 1}),
            std::make_shared<const WeightSet>(std::move(weights_)), image_};
  }

 private:
  Shape image_;
  Graph graph_;
  Tensor x_;
  std::map<std::string, Buffer> weights_;
};

/// ResNet-18 (He et al., arXiv:1512.03385), its stem at half the resolution.
Network residual_network(std::int64_t pixels) {
  Maker maker(Shape({1, 3, pixels, pixels}, f32));
  maker.stem(64, 7, 2);
  for (const std::int64_t channels : {64, 128, 256, 512}) {
    maker.block(channels, channels == 64 ? 1 : 2);
    maker.block(channels, 1);
  }
  maker.classify(1000);
  return maker.finish(fmt::format("ResNet-18, {0}x{0}", pixels));
}

using Backends = std::function<std::vector<BackendPtr>()>;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Network& network, const std::string& device, const Backends& compiling,
             const Backends& loading, int runs) {
  // A folder of this user alone, as a cache wants it.
  std::string folder = std::filesystem::temp_directory_path() / "tenon_cold_start_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
  const auto snapshot = std::filesystem::path(folder) / "snapshot";
  const auto cache = std::filesystem::path(folder) / "cache";
  const std::vector<Shape> inputs{network.input};
  const auto compiled = [&](const std::shared_ptr<const WeightSet>& weights) {
    Session session(network.program, {.backends = compiling()});
    session.bind(weights);
    session.prepare(inputs);
    return session;
  };
  compiled(network.fresh_weights()).save(snapshot, {.weights = SavedWeights::needed});
  compiled(network.fresh_weights(cache));
  std::vector<double> compile, cached, load;
  for (int i = 0; i < runs; ++i) {
    compile.push_back(seconds_of([&] { compiled(network.fresh_weights()); }));
    cached.push_back(seconds_of([&] { compiled(network.fresh_weights(cache)); }));
    load.push_back(seconds_of([&] { Session::load(snapshot, loading()); }));
  }
  const double base = median(compile);
  fmt::print(
      "{:18} {:10} {:6.1f} MB of weights {:6.1f} MB saved {:7.1f} ms compiled {:6.1f} ms cached "
      "({:.1f}x) {:6.1f} ms loaded ({:.1f}x)\n",
      network.name, device, static_cast<double>(network.weight_bytes()) / 1e6,
      static_cast<double>(std::filesystem::file_size(snapshot)) / 1e6, 1e3 * base,
      1e3 * median(cached), base / median(cached), 1e3 * median(load), base / median(load));
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  const int runs = argc > 1 ? std::max(std::stoi(argv[1]), 1) : 5;
  register_cpu_backend();
  register_reference_backend();
  register_npu_sim();
  const auto on_cpu = [] { return std::vector{make_backend("cpu")}; };
  measure(residual_network(224), "cpu", on_cpu, on_cpu, runs);

  const Network small = residual_network(64);
  Session calibrating(small.program, {.backends = on_cpu()});
  calibrating.bind(small.weights);
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(npu::calibrate(
      std::move(calibrating), std::vector<std::vector<HostBuffer>>{{small.sample()}}));
  const DevicePtr device = Device::open("npu://sim");
  const auto compiling = [&] { return std::vector<BackendPtr>{npu::backend(device, options)}; };
  const auto loading = [&] { return std::vector<BackendPtr>{npu::backend(device, {})}; };
  measure(small, "npu://sim", compiling, loading, runs);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
