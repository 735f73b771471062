// Whole networks: accuracy in int8, what placement saves, what stays with other backends.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/io/file.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* device_url = "npu://sim?mac=32x32&ocm=2MiB&acc=256KiB&strict=1";

struct Digits {
  HostBuffer images, labels;
  std::int64_t count = 0;

  Digits() {
    const io::File file = io::open("examples/data/digits_test.safetensors");
    count = file.at("images").shape.dim(0);
    images = file.at("images").data().reshape({count, 1, 8, 8});
    labels = file.at("labels").data();
  }
  HostBuffer part(std::int64_t begin, std::int64_t end) const {
    return images.slice(0, begin, end).contiguous();
  }
  std::int64_t right(const HostBuffer& scores, std::int64_t begin) const {
    const auto values = scores.values<float>();
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < scores.shape()[0]; ++i) {
      const auto row = values.subspan(static_cast<std::size_t>(i) * 10, 10);
      const auto best = std::ranges::max_element(row) - row.begin();
      found += best == labels.values<std::int32_t>()[static_cast<std::size_t>(begin + i)] ? 1 : 0;
    }
    return found;
  }
};

/// The convolutional network of examples/digits.cpp for `count` images.
Network digit_cnn(std::int64_t count, const std::vector<HostBuffer>& samples,
                  const CalibrationOptions& options) {
  const io::File file = io::open("examples/data/digits_cnn.safetensors");
  Graph graph;
  const Shape shape({count, 1, 8, 8}, f32);
  const Tensor images = graph.input("images", shape);
  const auto weight = [&](const std::string& name) {
    return graph.constant(name, file.at(name).shape);
  };
  const auto stage = [&](const Tensor& x, const std::string& name) {
    const Tensor y =
        conv2d(x, weight(name + ".weight"), weight(name + ".bias"), {.padding = {1, 1, 1, 1}});
    return max_pool2d(relu(y), {.kernel = {2, 2}, .stride = {2, 2}});
  };
  const Tensor features = stage(stage(images, "conv1"), "conv2");
  const Tensor scores = linear(flatten(features, 1, 3), weight("head.weight"), weight("head.bias"));
  Network network;
  network.program = graph.program({&scores, 1});
  network.inputs = {shape};
  std::map<std::string, Buffer> weights;
  for (const char* name : {"conv1", "conv2", "head"}) {
    for (const char* part : {".weight", ".bias"}) {
      const std::string whole = std::string(name) + part;
      weights.emplace(whole, file.at(whole).data().to_device(cpu_device()));
    }
  }
  network.weights = std::make_shared<const WeightSet>(std::move(weights));
  std::vector<std::vector<HostBuffer>> inputs;
  for (const HostBuffer& sample : samples) inputs.push_back({sample});
  network.calibration = std::make_shared<const CalibrationTable>(
      calibrate(network.program, *network.weights, inputs, options));
  return network;
}

TEST_CASE("npu: the digit CNN in int8 is within a point of f32, with every observer") {
  const Digits digits;
  constexpr std::int64_t kept = 60;  // images to calibrate on; the others are counted
  const HostBuffer samples = digits.part(0, kept);
  const HostBuffer rest = digits.part(kept, digits.count);
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::percentile, ObserverKind::entropy}) {
    INFO(to_string(kind));
    CalibrationOptions calibration;
    calibration.observer.kind = kind;
    const Network small = digit_cnn(kept, {samples}, calibration);
    Network network = digit_cnn(digits.count - kept, {rest}, calibration);
    network.calibration = small.calibration;  // same names, other images
    const auto real = run_reference(network, {rest});
    const auto npu = backend(open_npu(device_url), options_for(network));
    const auto quantized = run(network, npu, {rest});
    const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), {rest});
    const bool same = same_bits(quantized, exact);
    CHECK(same);
    const double points = 100.0 / static_cast<double>(digits.count - kept);
    const double before = points * static_cast<double>(digits.right(real[0], kept));
    const double after = points * static_cast<double>(digits.right(quantized[0], kept));
    CAPTURE(before, after);
    CHECK(before > 95);
    CHECK(after >= before - 1);
  }
}

/// Inverted residuals as in MobileNetV2: expand 1x1, depthwise 3x3, project 1x1, relu6 between,
/// the input added where shapes allow.
Record mobilenet(std::int64_t classes) {
  return [classes](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
    int number = 0;
    const auto conv = [&](const Tensor& x, std::int64_t outputs, std::int64_t kernel,
                          std::int64_t stride, std::int64_t groups) {
      std::string name = "c";
      name += std::to_string(number++);
      const std::int64_t inputs = x.shape()[1] / groups;
      return conv2d(
          x, graph.constant(name + ".w", Shape({outputs, inputs, kernel, kernel}, f32)),
          graph.constant(name + ".b", Shape({outputs}, f32)),
          {.stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}, .groups = groups});
    };
    const auto block = [&](const Tensor& x, std::int64_t outputs, std::int64_t stride) {
      const std::int64_t inputs = x.shape()[1];
      const Tensor wide = relu6(conv(x, 6 * inputs, 1, 1, 1));
      const Tensor deep = relu6(conv(wide, 6 * inputs, 3, stride, 6 * inputs));
      const Tensor narrow = conv(deep, outputs, 1, 1, 1);
      return stride == 1 && inputs == outputs ? narrow + x : narrow;
    };
    Tensor x = relu6(conv(in[0], 32, 3, 2, 1));
    x = block(x, 16, 1);
    x = block(block(x, 24, 2), 24, 1);
    x = block(block(x, 32, 2), 32, 1);
    x = block(block(x, 64, 2), 64, 1);
    x = block(x, 96, 1);
    x = relu6(conv(x, 320, 1, 1, 1));
    x = mean(x, {2, 3});
    return {linear(x, graph.constant("head.w", Shape({classes, 320}, f32)),
                   graph.constant("head.b", Shape({classes}, f32)))};
  };
}

TEST_CASE("npu: a MobileNet-like network, on chip and not") {
  const Network network = make_network({Shape({1, 3, 64, 64}, f32)}, mobilenet(100), 7);
  const std::vector<HostBuffer> inputs = network.sample(1234);
  const auto real = run_reference(network, inputs);
  const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  CHECK(cosine(exact[0], real[0]) > 0.98);

  std::map<Placement, RunReport> runs;
  for (const Placement placement :
       {Placement::none, Placement::global, Placement::dp, Placement::evict, Placement::best}) {
    INFO(to_string(placement));
    Options options = options_for(network);
    options.placement = placement;
    const auto npu = backend(open_npu(device_url), options);
    const auto outputs = run(network, npu, inputs);
    const bool same = same_bits(outputs, exact);
    CHECK(same);
    runs[placement] = npu->last_run();
  }
  const RunReport& off = runs[Placement::none];
  for (const auto& [placement, on] : runs) {
    INFO(to_string(placement));
    CHECK(on.macs == off.macs);
    if (placement == Placement::none) continue;
    CHECK(on.ddr_read + on.ddr_write < (off.ddr_read + off.ddr_write) / 2);
    CHECK(on.cycles < off.cycles);
  }
}

TEST_CASE("npu: forks on many threads take turns on one device") {
  const Network network = make_network({Shape({1, 3, 16, 16}, f32)}, mobilenet(10), 9);
  const auto npu = backend(open_npu(device_url), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  constexpr std::size_t threads = 8;
  constexpr int rounds = 4;
  std::vector<HostBuffer> inputs;
  std::vector<std::vector<HostBuffer>> expected;
  const auto exact = backend(nullptr, options_for(network, Mode::exact));
  for (std::size_t i = 0; i < threads; ++i) {
    inputs.push_back(network.sample(100 + i)[0]);
    expected.push_back(run(network, exact, {inputs[i]}));
  }
  std::array<int, threads> right{};
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i, fork = session.fork()]() mutable {
      for (int round = 0; round < rounds; ++round) {
        const HostBuffer y = fork.forward({inputs[i].to_device(cpu_device())})[0].to_host();
        right[i] += same_bits({y}, expected[i]) ? 1 : 0;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const int count : right) CHECK(count == rounds);
  CHECK(npu->counters().runs == threads * rounds);
}

TEST_CASE("npu: layers have counters of their own, and events in a trace") {
  const Network network = make_network({Shape({1, 3, 16, 16}, f32)}, mobilenet(10), 10);
  Options options = options_for(network);
  options.profile_layers = true;
  const auto npu = backend(open_npu(device_url), options);
  SessionOptions session_options{.backends = {npu, make_backend("reference")}};
  Session session(network.program, session_options);
  session.bind(network.weights);
  const auto trace = std::make_shared<Trace>();
  session.set_trace(trace);
  session.forward({network.sample(1)[0].to_device(cpu_device())});
  const RunReport run = npu->last_run();
  std::uint64_t bytes = 0, macs = 0;
  for (const LayerReport& layer : run.layers) {
    CHECK(layer.begin <= layer.end);
    CHECK(layer.end <= run.cycles);
    bytes += layer.ddr_read + layer.ddr_write;
    macs += layer.macs;
  }
  CHECK(bytes == run.ddr_read + run.ddr_write);
  CHECK(macs == run.macs);
  CHECK(trace->size() > run.layers.size());
}

TEST_CASE("npu: predicted bytes are those that the device counts, predicted cycles come near") {
  const Network network = make_network({Shape({1, 3, 32, 32}, f32)}, mobilenet(10), 8);
  const std::vector<HostBuffer> inputs = network.sample(5);
  for (const Placement placement : {Placement::none, Placement::best}) {
    INFO(to_string(placement));
    Options options = options_for(network);
    options.placement = placement;
    const auto npu = backend(open_npu(device_url), options);
    Session session(network.program, {.backends = {npu, make_backend("reference")}});
    session.bind(network.weights);
    session.forward({inputs[0].to_device(cpu_device())});
    const std::vector<NetworkReport> reports = npu->networks();
    REQUIRE(reports.size() == 1);
    const RunReport run = npu->last_run();
    CHECK(reports[0].predicted_read == run.ddr_read);
    CHECK(reports[0].predicted_write == run.ddr_write);
    CHECK(reports[0].macs == run.macs);
    const double ratio =
        static_cast<double>(reports[0].predicted_cycles) / static_cast<double>(run.cycles);
    CAPTURE(reports[0].predicted_cycles, run.cycles);
    CHECK(ratio > 0.85);
    CHECK(ratio < 1.15);
  }
}

}  // namespace
}  // namespace tenon::npu
