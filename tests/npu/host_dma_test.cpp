// What the driver and sessions move to and from the device's memory goes by host DMA: counted,
// traced, with errors, hangs and resets in between.
#include "io/temp_folder.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/ops.hpp>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
using simctl::FaultKind;
using tenon::testing::TempFolder;

DevicePtr open_sim(const std::string& params = "") {
  register_npu_sim();
  return Device::open("npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&ddr=64MiB&dma=1MiB" + params);
}

void arm(Device& device, FaultKind kind, std::uint32_t nth) {
  RegRegion& control = device.reg_region("simctl");
  control.write(simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
  control.write(simctl::fault_nth, nth, true);
  control.write(simctl::fault_layer, 0xFFFFFFFF, true);
  control.write(simctl::fault_arm, 1, true);
}

std::uint64_t simctl_of(Device& device, std::uint32_t reg) {
  return device.reg_region("simctl").read(reg, true);
}

/// A network with a backend and a session on a device.
struct User {
  explicit User(const DevicePtr& device, std::uint64_t seed = 1)
      : network(make_network(
            {Shape({1, 8, 6, 6}, f32)},
            [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
              const Tensor a = relu(conv2d(in[0], graph.constant("a", Shape({40, 8, 3, 3}, f32)),
                                           {}, {.padding = {1, 1}}));
              return {linear(flatten(a, 1, 3), graph.constant("b", Shape({10, 1440}, f32)))};
            },
            seed)),
        inputs(network.sample(77)) {
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

TEST_CASE("npu host dma: constants, programs, inputs and results go by it where there is one") {
  const DevicePtr device = open_sim();
  User user(device);
  CHECK(user.is_right());  // plans and uploads, too
  const std::uint64_t before = simctl_of(*device, simctl::host_dmas);
  CHECK(before >= 4);
  CHECK(user.is_right());
  CHECK(simctl_of(*device, simctl::host_dmas) >= before + 2);

  const DevicePtr direct = open_sim("&hostdma=0");
  User other(direct);
  CHECK(other.is_right());
  CHECK(simctl_of(*direct, simctl::host_dmas) == 0);
  expect_error(Errc::bad_key, [] { open_sim("&host_dma=0"); });
}

TEST_CASE("npu host dma: nothing else reaches the engines' memory") {
  const TempFolder folder;
  const std::string trace = (folder / "trace").string();
  {
    User user(open_sim("&trace=" + trace));
    CHECK(user.is_right());
  }
  std::ifstream file(trace);
  int starts = 0, exchanged = 0, others = 0;
  for (std::string line; std::getline(file, line);) {
    starts += line.starts_with("W 094 00000001 ") ? 1 : 0;
    if (!line.starts_with("S ") && !line.starts_with("G ")) continue;
    const bool xchg = line.substr(2, 8) == "00000000";
    (xchg ? exchanged : others) += 1;
  }
  CHECK(starts >= 4);
  CHECK(exchanged > starts);
  CHECK(others == 0);
}

TEST_CASE("npu host dma: a transfer that fails once is repeated, wherever it was") {
  const DevicePtr device = open_sim();
  User user(device);
  CHECK(user.is_right());
  int failed = 0;
  for (std::uint32_t nth = 1;; ++nth) {
    INFO("transfer " << nth);
    arm(*device, FaultKind::host_dma_error, nth);
    const std::uint64_t fired = simctl_of(*device, simctl::faults_fired);
    CHECK(user.is_right());
    if (simctl_of(*device, simctl::faults_fired) == fired) break;
    ++failed;
  }
  CHECK(failed >= 2);  // the input and the result
  CHECK(user.npu->counters().faults == 0);
}

TEST_CASE("npu host dma: a transfer that fails twice is a device error, the next run is right") {
  const DevicePtr device = open_sim();
  User user(device);
  CHECK(user.is_right());
  arm(*device, FaultKind::host_dma_error, 1);
  arm(*device, FaultKind::host_dma_error, 2);
  const std::string text = expect_error(Errc::device_error, [&] { user.is_right(); });
  CHECK(text.find("host DMA of ") != std::string::npos);
  CHECK(user.is_right());
  // A program that stops later still says why: the ring's error is not the transfer's.
  arm(*device, FaultKind::host_dma_error, 1);
  arm(*device, FaultKind::illegal, 1);
  CHECK(user.is_right());
  CHECK(user.npu->counters().reloads == 2);
}

TEST_CASE("npu host dma: one that never ends costs a reset, twice it is a timeout") {
  const DevicePtr device = open_sim("&patience=200ms");
  User user(device);
  CHECK(user.is_right());
  for (std::uint32_t nth = 1; nth <= 2; ++nth) {
    INFO("transfer " << nth);
    arm(*device, FaultKind::host_dma_hang, nth);
    CHECK(user.is_right());
  }
  CHECK(simctl_of(*device, simctl::faults_fired) == 2);
  arm(*device, FaultKind::host_dma_hang, 1);
  arm(*device, FaultKind::host_dma_hang, 2);
  const std::string text = expect_error(Errc::device_timeout, [&] { user.is_right(); });
  CHECK(text.find("has not ended after 200 ms") != std::string::npos);
  CHECK(user.is_right());
  CHECK(user.npu->state() == State::open);
}

TEST_CASE("npu host dma: a backend that cannot upload says so, another one can") {
  const DevicePtr device = open_sim();
  {
    User user(device);
    arm(*device, FaultKind::host_dma_error, 1);
    arm(*device, FaultKind::host_dma_error, 2);
    expect_error(Errc::device_error, [&] { user.is_right(); });  // while it is bound
    CHECK(user.is_right());
  }
  User again(device, 2);
  CHECK(again.is_right());
}

TEST_CASE("npu host dma: resets between its registers repeat a transfer, and harm none") {
  const DevicePtr device = open_sim();
  const MemChunk chunk = device->mem_region("etm").malloc(100'000);
  std::atomic<bool> done = false;
  std::thread resets([&] {
    while (!done) {
      device->reset(0);
      std::this_thread::yield();
    }
  });
  int wrong = 0;
  std::vector<std::byte> bytes(chunk.size_bytes()), back(chunk.size_bytes());
  for (int round = 0; round < testing::rounds(200); ++round) {
    std::memset(bytes.data(), round, bytes.size());
    chunk.write(bytes.data(), 0, bytes.size());
    chunk.read(back.data(), 0, back.size());
    wrong += back == bytes ? 0 : 1;
  }
  done = true;
  resets.join();
  CHECK(wrong == 0);
}

TEST_CASE("npu host dma: one that hangs beside the program of another backend costs neither") {
  const DevicePtr device = open_sim("&patience=200ms");
  User a(device, 1), b(device, 2);
  std::atomic<bool> done = false;
  int wrong_b = 0;
  CHECK(a.is_right());
  std::thread other([&] {
    while (!done) wrong_b += b.is_right() ? 0 : 1;
  });
  int wrong_a = 0;
  for (std::uint32_t round = 0; round < 4; ++round) {
    arm(*device, FaultKind::host_dma_hang, 1 + round);
    for (int i = 0; i < 5; ++i) wrong_a += a.is_right() ? 0 : 1;
  }
  done = true;
  other.join();
  CHECK(wrong_a + wrong_b == 0);
  CHECK(simctl_of(*device, simctl::faults_fired) == 4);
}

}  // namespace
}  // namespace tenon::npu
