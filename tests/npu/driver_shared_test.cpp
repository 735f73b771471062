// Several backends of one device: models that alternate, threads, one that goes while another
// stays, resets, faults of one beside runs of another.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* device_url = "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1";

/// Networks of different sizes, weights and calibrations.
Network network_of(std::int64_t channels, std::uint64_t seed) {
  return make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [channels](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor a = relu(conv2d(in[0], graph.constant("a", Shape({channels, 8, 3, 3}, f32)),
                                     {}, {.padding = {1, 1}}));
        return {conv2d(a, graph.constant("b", Shape({channels, channels, 1, 1}, f32))) + a};
      },
      seed);
}

/// A network with a backend and a session of its own on a device.
struct User {
  User(const DevicePtr& device, std::int64_t channels, std::uint64_t seed)
      : network(network_of(channels, seed)), inputs(network.sample(seed + 50)) {
    register_reference_backend();
    expected = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
    npu = backend(device, options_for(network));
    session.emplace(network.program, SessionOptions{.backends = {npu, make_backend("reference")}});
    session->bind(network.weights);
  }

  bool is_right() {
    return same_bits({session->forward({inputs[0].to_device(cpu_device())})[0].to_host()},
                     expected);
  }

  Network network;
  std::vector<HostBuffer> inputs, expected;
  std::shared_ptr<const Npu> npu;
  std::optional<Session> session;
};

void arm(Device& device, simctl::FaultKind kind, std::uint32_t nth) {
  RegRegion& control = device.reg_region("simctl");
  control.write(simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
  control.write(simctl::fault_nth, nth, true);
  control.write(simctl::fault_layer, 0xFFFFFFFF, true);
  control.write(simctl::fault_arm, 1, true);
}

TEST_CASE("npu shared: backends of one device alternate, each with its own network and numbers") {
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1), b(device, 24, 2);
  constexpr int rounds = 10;
  int right = 0;
  for (int round = 0; round < rounds; ++round) {
    right += a.is_right() ? 1 : 0;
    right += b.is_right() ? 1 : 0;
  }
  CHECK(right == 2 * rounds);
  // What is counted belongs to one backend.
  CHECK(a.npu->counters().runs == rounds);
  CHECK(b.npu->counters().runs == rounds);
  CHECK(b.npu->networks().size() == 1);
}

TEST_CASE("npu shared: device_backends() may be asked again and again") {
  register_npu_backend();
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1);
  BackendOptions options;
  options.device = options_for(a.network);
  for (int round = 0; round < 3; ++round) {
    const BackendPtr another = device_backends(device, options)[0];
    const bool same = same_bits(run(a.network, another, a.inputs), a.expected);
    CHECK(same);
    CHECK(a.is_right());
  }
}

TEST_CASE("npu shared: threads with a backend each run at once") {
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1), b(device, 24, 2);
  constexpr int rounds = 500;
  int right_a = 0, right_b = 0;
  const auto work = [](User& user, int& right) {
    for (int round = 0; round < rounds; ++round) right += user.is_right() ? 1 : 0;
  };
  std::thread other([&] { work(b, right_b); });
  work(a, right_a);
  other.join();
  CHECK(right_a == rounds);
  CHECK(right_b == rounds);
  CHECK(a.npu->counters().timeouts + b.npu->counters().timeouts == 0);
}

TEST_CASE("npu shared: backends come and go beside one that runs") {
  const DevicePtr device = open_npu(device_url);
  User stays(device, 40, 1);
  constexpr int rounds = 60;
  int right = 0;
  std::thread runs([&] {
    for (int round = 0; round < rounds; ++round) right += stays.is_right() ? 1 : 0;
  });
  for (std::uint64_t guest = 0; guest < 5; ++guest) {
    User comes(device, 24, 2 + guest);
    CHECK(comes.is_right());
  }
  runs.join();
  CHECK(right == rounds);
  CHECK(stays.npu->counters().timeouts == 0);
}

TEST_CASE("npu shared: a fault of one backend is no other's") {
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1), b(device, 24, 2);
  for (const auto kind :
       {simctl::FaultKind::dma_timeout, simctl::FaultKind::hang, simctl::FaultKind::illegal}) {
    INFO("kind " << static_cast<int>(kind));
    arm(*device, kind, 1);
    CHECK(a.is_right());  // after a recovery
    CHECK(b.is_right());
    arm(*device, kind, 1);
    CHECK(b.is_right());
    CHECK(a.is_right());
  }
  arm(*device, simctl::FaultKind::bus_error, 1);
  expect_error(Errc::device_error, [&] { a.is_right(); });
  CHECK(b.is_right());
  CHECK(b.npu->counters().faults == 1);  // an illegal instruction above
  CHECK(a.is_right());
}

TEST_CASE("npu shared: a reset from outside costs nobody a run") {
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1), b(device, 24, 2);
  for (const int level : {0, 1, 2}) {
    INFO("level " << level);
    CHECK(a.is_right());
    device->reset(level);
    CHECK(b.is_right());
    CHECK(a.is_right());
  }
  // Only the last one lost what lay in memory.
  CHECK(a.npu->counters().timeouts + b.npu->counters().timeouts == 0);
  CHECK(a.npu->counters().reloads == 2);
  CHECK(b.npu->counters().reloads == 2);
}

TEST_CASE("npu shared: backends of a device that went stay lost, new ones serve when it is back") {
  const DevicePtr device = open_npu(device_url);
  User a(device, 40, 1), b(device, 24, 2);
  arm(*device, simctl::FaultKind::removed, 0);
  expect_error(Errc::device_lost, [&] { a.is_right(); });
  CHECK(a.npu->state() == State::removed);
  device->reg_region("simctl").write(simctl::replug, 1, true);
  User c(device, 40, 3);
  CHECK(c.is_right());
  expect_error(Errc::device_lost, [&] { b.is_right(); });
  CHECK(b.npu->state() == State::removed);
  a.session.reset();
  a.npu.reset();
  b.session.reset();
  b.npu.reset();  // the last of the old ones: the ring is another's
  CHECK(c.is_right());
  CHECK(c.npu->state() == State::open);
}

TEST_CASE("npu shared: a device may take its time to reset") {
  for (const char* time : {"200us", "5ms"}) {
    INFO(time);
    const DevicePtr device = open_npu(std::string(device_url) + "&reset=" + time);
    User a(device, 40, 1);
    arm(*device, simctl::FaultKind::hang, 1);
    CHECK(a.is_right());
    CHECK(a.npu->counters().resets == 1);
    device->reset(1);
    CHECK(a.is_right());
    CHECK(a.npu->counters().timeouts == 1);
  }
}

TEST_CASE("npu shared: a reset that does not end is a timeout") {
  const DevicePtr device = open_npu(std::string(device_url) + "&reset=3s");
  const Network network = network_of(24, 4);
  Options options = options_for(network);
  options.deadline = std::chrono::milliseconds(1000);
  const auto npu = backend(device, options);
  const std::vector<HostBuffer> inputs = network.sample(1);
  arm(*device, simctl::FaultKind::hang, 1);
  const std::string text = expect_error(Errc::device_timeout, [&] { run(network, npu, inputs); });
  CHECK(text.find("reset") != std::string::npos);
  CHECK(npu->state() == State::faulted);
}

}  // namespace
}  // namespace tenon::npu
