// The process that serves the device is killed while a network runs on it.
#include "npu/driver_open.hpp"
#include "npu/driver_open_remote.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <chrono>
#include <optional>
#include <thread>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
using Clock = std::chrono::steady_clock;

// As slow as its clock says: a run takes about a second, so that the end comes in its midst.
constexpr const char* slow =
    "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&freq=1MHz&lat=65535&pace=real";
constexpr std::chrono::seconds deadline{120};

Network network() {
  return make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor x = relu(
            conv2d(in[0], graph.constant("a", Shape({40, 8, 3, 3}, f32)), {}, {.padding = {1, 1}}));
        return {conv2d(x, graph.constant("b", Shape({40, 40, 1, 1}, f32)))};
      },
      6);
}

struct Connected {
  explicit Connected(const Network& network)
      : device(open_npu(slow)),
        npu(backend(device, options(network))),
        session(network.program, {.backends = {npu, make_backend("reference")}}) {
    session.bind(network.weights);
  }
  static Options options(const Network& network) {
    Options options = options_for(network);
    options.deadline = deadline;
    return options;
  }
  HostBuffer forward(const HostBuffer& input) {
    return session.forward({input.to_device(cpu_device())})[0].to_host();
  }

  DevicePtr device;
  std::shared_ptr<const Npu> npu;
  Session session;
};

TEST_CASE("npu killed: a device that dies within a run is lost at once; a new one serves") {
  register_reference_backend();
  const Network small = network();
  const HostBuffer input = small.sample(4)[0];
  const auto expected = run(small, backend(nullptr, options_for(small, Mode::exact)), {input});
  for (const int after_ms : {0, 20, 150}) {
    INFO("killed after " << after_ms << " ms");
    Connected first(small);
    std::jthread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
      kill_server(first.device);
    });
    const auto begin = Clock::now();
    std::optional<Error> error;
    try {
      first.forward(input);
    } catch (const Error& caught) {
      error = caught;
    }
    CHECK(Clock::now() - begin < deadline);
    REQUIRE(error.has_value());
    INFO(error->what());
    CHECK(error->code() == Errc::device_lost);
    CHECK(number(error->code()) == 11014);
    killer.join();
    // It stays lost, and says so at once; nothing hangs and nothing is written any more.
    CHECK(first.npu->state() == State::removed);
    std::optional<Errc> again;
    try {
      first.forward(input);
    } catch (const Error& caught) {
      again = caught.code();
    }
    CHECK(again == Errc::device_lost);

    Connected second(small);
    const bool same = same_bits({second.forward(input)}, expected);
    CHECK(same);
  }
}

}  // namespace
}  // namespace tenon::npu
