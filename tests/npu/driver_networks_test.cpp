// Whole networks: what placement saves, counters, threads, predictions.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* networks_url = "npu://sim?mac=32x32&ocm=2MiB&acc=256KiB&strict=1";

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

TEST_CASE("npu: a MobileNet-like network, on chip and not", "[one_thread]") {
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
    const auto npu = backend(open_npu(networks_url), options);
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
  const auto npu = backend(open_npu(networks_url), options_for(network));
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
  const auto npu = backend(open_npu(networks_url), options);
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
    const auto npu = backend(open_npu(networks_url), options);
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
