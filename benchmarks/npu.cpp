// Speed of the NPU simulator: MACs per second of wall time, and times of networks, with hazard
// detection on and off.
//
//   bench_npu [RUNS]
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;

struct Network {
  Program program;
  std::shared_ptr<const WeightSet> weights;
  HostBuffer image;
};

HostBuffer random_array(const Shape& shape, float scale, std::mt19937& random) {
  HostBuffer array = HostBuffer::zeros(shape);
  std::normal_distribution<float> normal(0, scale);
  for (float& value : array.mutable_values<float>()) value = normal(random);
  return array;
}

/// Records a network whose constants get random values.
class Maker {
 public:
  explicit Maker(const Shape& image) : image_(image), x_(graph_.input("image", image)) {}

  Tensor weight(const Shape& shape) {
    const std::string name = fmt::format("w{}", weights_.size());
    const auto inputs = static_cast<float>(shape.elements() / shape[0]);
    weights_.emplace(name, random_array(shape, 1 / std::sqrt(inputs), random_));
    return graph_.constant(name, shape);
  }
  void conv(std::int64_t outputs, std::int64_t kernel, std::int64_t stride,
            std::int64_t groups = 1) {
    const std::int64_t inputs = x_.shape()[1], pad = kernel / 2;
    Conv2d options;
    options.stride = {stride, stride};
    options.padding = {pad, pad, pad, pad};
    options.groups = groups;
    x_ = relu6(
        conv2d(x_, weight(Shape({outputs, inputs / groups, kernel, kernel}, f32)), {}, options));
  }
  void separable(std::int64_t outputs, std::int64_t stride) {
    conv(x_.shape()[1], 3, stride, x_.shape()[1]);
    conv(outputs, 1, 1);
  }
  void classify(std::int64_t classes) {
    x_ = mean(x_, {2, 3});
    x_ = linear(x_, weight(Shape({classes, x_.shape()[1]}, f32)));
  }

  Network finish() {
    Network network;
    network.program = graph_.program({&x_, 1});
    std::map<std::string, Buffer> buffers;
    for (const auto& [name, array] : weights_) {
      buffers.emplace(name, array.to_device(cpu_device()));
    }
    network.weights = std::make_shared<const WeightSet>(std::move(buffers));
    network.image = random_array(image_, 1, random_);
    return network;
  }

 private:
  Shape image_;
  Graph graph_;
  Tensor x_;
  std::map<std::string, HostBuffer> weights_;
  std::mt19937 random_{1};
};

Network stack_of_convolutions() {
  Maker maker(Shape({1, 32, 32, 32}, f32));
  for (int i = 0; i < 4; ++i) maker.conv(128, 3, i % 2 == 1 ? 2 : 1);
  maker.classify(10);
  return maker.finish();
}

/// MobileNet's first form at 96 x 96, half as wide.
Network mobile_network() {
  Maker maker(Shape({1, 3, 96, 96}, f32));
  maker.conv(16, 3, 2);
  const std::pair<std::int64_t, std::int64_t> layers[] = {
      {32, 1},  {64, 2},  {64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},
      {256, 1}, {256, 1}, {256, 1}, {256, 1}, {512, 2}, {512, 1}};
  for (const auto& [outputs, stride] : layers) maker.separable(outputs, stride);
  maker.classify(100);
  return maker.finish();
}

void measure(const std::string& name, const Network& network, const std::string& url, int runs) {
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(npu::calibrate(
      network.program, *network.weights, std::vector<std::vector<HostBuffer>>{{network.image}}));
  const auto backend = npu::backend(Device::open(url), options);
  Session session(network.program, {.backends = {backend}});
  session.bind(network.weights);
  const Buffer image = network.image.to_device(cpu_device());
  session.forward({image});  // compiles
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    session.forward({image});
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  const npu::RunReport run = backend->last_run();
  fmt::print("{:22} {:36} {:8.1f} ms  {:8.1f} M MACs/s  {:9} cycles  {:5.1f} M MACs\n", name, url,
             1e3 * median, static_cast<double>(run.macs) / median / 1e6, run.cycles,
             static_cast<double>(run.macs) / 1e6);
}

}  // namespace

int main(int argc, char** argv) try {
  const int runs = argc > 1 ? std::max(std::stoi(argv[1]), 1) : 5;
  register_reference_backend();
  register_npu_sim();
  for (const char* url : {"npu://sim?strict=1", "npu://sim?strict=0", "npu://sim?sched=random"}) {
    measure("4 convolutions", stack_of_convolutions(), url, runs);
    measure("MobileNet-like, 96x96", mobile_network(), url, runs);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
