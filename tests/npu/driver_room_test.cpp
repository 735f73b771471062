// What does not fit on chip: run in pieces or refused, never an error after `explain` said yes.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

/// Runs it on the device, the reference behind it: with the bits of Mode::exact, and every step
/// where `explain` says. Returns how many steps the NPU refused.
int check_room(const std::string& url, const Network& network) {
  register_reference_backend();
  const auto npu = backend(open_npu(url), options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  int refused = 0;
  for (const PlanReport::Part& part : session.report(network.inputs).parts) {
    for (const std::string& value : part.values) {
      INFO(value);
      const bool takes = session.explain(value, network.inputs)[0] == "npu: takes it";
      CHECK(takes == (part.backend == "npu"));
      refused += takes ? 0 : 1;
    }
  }
  const std::vector<HostBuffer> inputs = network.sample(8);
  std::vector<HostBuffer> results;
  std::vector<Buffer> buffers{inputs[0].to_device(cpu_device())};
  for (const Buffer& output : session.forward(std::move(buffers))) {
    results.push_back(output.to_host());
  }
  // With the device, the mode on the CPU refuses what that refuses.
  const auto exact =
      run(network, backend(open_npu(url), options_for(network, Mode::exact)), inputs);
  const bool same = same_bits(results, exact);
  CHECK(same);
  CHECK(cosine(results[0], run_reference(network, inputs)[0]) > 0.99);
  return refused;
}

TEST_CASE("npu room: a flattened image larger than the chip is read in pieces", "[one_thread]") {
  for (const std::int64_t channels : {16, 48}) {
    INFO(channels << " channels");
    const Network network = make_network(
        {Shape({2, 8, 24, 24}, f32)},
        [channels](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
          const Tensor x =
              relu(conv2d(in[0], graph.constant("a", Shape({channels, 8, 1, 1}, f32))));
          return {linear(flatten(x, 1, 3),
                         graph.constant("b", Shape({40, channels * 24 * 24}, f32)),
                         graph.constant("c", Shape({40}, f32)))};
        },
        1);
    CHECK(check_room("npu://sim?mac=16x8&ocm=8KiB&acc=16KiB&strict=1", network) == 0);
    CHECK(check_room("npu://sim?mac=16x8&ocm=64KiB&acc=16KiB&strict=1", network) == 0);
  }
}

TEST_CASE("npu room: what fits alone and not behind its layer is a layer of its own") {
  const Network network = make_network(
      {Shape({1, 32, 6, 150}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x =
            conv2d(in[0], graph.constant("a", Shape({32, 32, 3, 3}, f32)), {}, {.padding = {1, 1}});
        return {silu(x + in[0])};
      },
      2);
  CHECK(check_room("npu://sim?mac=16x8&ocm=32KiB&acc=32KiB&strict=1", network) == 0);
}

TEST_CASE("npu room: rows that are too wide for the chip are refused") {
  const Network network = make_network(
      {Shape({1, 8, 2, 500}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x = conv2d(in[0], graph.constant("a", Shape({8, 8, 1, 1}, f32)));
        return {sigmoid(x) * in[0] + x};
      },
      3);
  CHECK(check_room("npu://sim?mac=16x8&ocm=16KiB&acc=64KiB&strict=1", network) > 0);
  CHECK(check_room("npu://sim?mac=16x8&ocm=256KiB&acc=64KiB&strict=1", network) == 0);
}

TEST_CASE("npu room: factors of more channels than fit are refused") {
  const Network network =
      make_network({Shape({2, 2048}, f32)},
                   [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                     return {linear(in[0], graph.constant("a", Shape({16, 2048}, f32)))};
                   },
                   4, {.observer = {}, .per_channel = true});
  CHECK(check_room("npu://sim?mac=16x8&ocm=4KiB&acc=16KiB&strict=1", network) == 1);
  CHECK(check_room("npu://sim?mac=16x8&ocm=16KiB&acc=16KiB&strict=1", network) == 0);
}

}  // namespace
}  // namespace tenon::npu
