// Several backends of one device: models that alternate, threads, one that goes while another
// stays, resets, faults of one beside runs of another.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* shared_url = "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1";

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
  /// Of a run; Errc::corrupt of one with other bits.
  std::optional<Errc> error() {
    try {
      return is_right() ? std::optional<Errc>() : Errc::corrupt;
    } catch (const Error& error) {
      return error.code();
    }
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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
  const DevicePtr device = open_npu(shared_url);
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

TEST_CASE("npu shared: a new backend does not inherit what another left behind") {
  const DevicePtr device = open_npu(shared_url);
  for (const auto kind : {simctl::FaultKind::bus_error, simctl::FaultKind::hang}) {
    INFO("kind " << static_cast<int>(kind));
    {
      const Network network = network_of(24, 2);
      Options options = options_for(network);
      options.retries = 0;
      arm(*device, kind, 1);
      CHECK_THROWS_AS(run(network, backend(device, options), network.sample(1)), Error);
    }
    User next(device, 24, 3);
    CHECK(next.is_right());
    CHECK(next.npu->counters().faults + next.npu->counters().timeouts == 0);
  }
}

TEST_CASE("npu shared: a ring has the size for which a device has memory") {
  const DevicePtr device = open_npu(std::string(shared_url) + "&dma=64KiB");
  User user(device, 40, 1);
  CHECK(user.is_right());
  CHECK(user.is_right());
}

TEST_CASE("npu shared: a device may take its time to reset") {
  for (const char* time : {"200us", "5ms"}) {
    INFO(time);
    const DevicePtr device = open_npu(std::string(shared_url) + "&reset=" + time);
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
  const DevicePtr device = open_npu(std::string(shared_url) + "&reset=3s");
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

TEST_CASE("npu shared: runs of several threads wait in the ring") {
  const DevicePtr device = open_npu(shared_url);
  std::vector<std::unique_ptr<User>> users;
  for (const std::int64_t channels : {40, 24, 32, 16}) {
    users.push_back(std::make_unique<User>(device, channels, users.size() + 1));
  }
  constexpr int rounds = 200;
  std::vector<int> right(users.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < users.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds; ++round) right[i] += users[i]->is_right() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < users.size(); ++i) {
    CHECK(right[i] == rounds);
    const Counters counters = users[i]->npu->counters();
    CHECK(counters.runs == rounds);
    CHECK(counters.timeouts + counters.faults + counters.thrown_out + counters.lost_interrupts ==
          0);
    most = std::max(most, counters.most_in_flight);
  }
  CHECK(most >= 2);
  CHECK(users[0]->is_right());
  const RunReport alone = users[0]->npu->last_run();
  CHECK_FALSE(alone.shared);
  CHECK(alone.cycles > 0);
}

/// Two users of a slow device with a run each in the ring.
struct BothRun {
  struct Runner {
    explicit Runner(const DevicePtr& device, std::int64_t channels, std::uint64_t seed)
        : user(device, channels, seed) {
      user.session->set_interrupt({.cancel = stop.get_token()});
    }
    void start() {
      thread = std::thread([this] { error = user.error(); });
    }
    void await_in_flight(std::uint64_t runs) const {
      for (int tries = 0; user.npu->counters().most_in_flight < runs; ++tries) {
        if (tries == 20000) FAIL("the other run ended before this one was in the ring");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }

    User user;
    std::stop_source stop;
    std::optional<Errc> error;
    std::thread thread;
  };

  BothRun()
      : device(open_npu(std::string(shared_url) + "&freq=1MHz&lat=65535&pace=real")),
        first(device, 40, 1),
        second(device, 24, 2) {
    first.start();
    first.await_in_flight(1);
    second.start();
    second.await_in_flight(2);
  }
  ~BothRun() { join(); }
  void join() {
    for (std::thread* thread : {&first.thread, &second.thread}) {
      if (thread->joinable()) thread->join();
    }
  }

  DevicePtr device;
  Runner first, second;
};

TEST_CASE("npu shared: an interrupted run repeats the other in the ring, before it or behind it") {
  for (const bool is_first : {true, false}) {
    INFO((is_first ? "the first" : "the second") << " is interrupted");
    BothRun both;
    BothRun::Runner& interrupted = is_first ? both.first : both.second;
    const BothRun::Runner& other = is_first ? both.second : both.first;
    interrupted.stop.request_stop();
    both.join();
    CHECK(interrupted.error == Errc::cancelled);
    CHECK(other.error == std::nullopt);
    CHECK(other.user.npu->counters().thrown_out == 1);
    CHECK(other.user.npu->counters().retries == 0);
    CHECK(other.user.npu->counters().timeouts == 0);
    CHECK(interrupted.user.npu->counters().most_in_flight == 2);
    CHECK(other.user.npu->counters().most_in_flight == 2);
    interrupted.user.session->set_interrupt({});
    CHECK(interrupted.user.is_right());
  }
}

TEST_CASE("npu shared: a reset that may have cleared memory fails the run that it came into") {
  for (const int level : {1, 2}) {
    INFO("level " << level);
    const DevicePtr device = open_npu(std::string(shared_url) + "&freq=1MHz&lat=65535&pace=real");
    BothRun::Runner one(device, 40, 1);
    one.start();
    one.await_in_flight(1);
    device->reset(level);
    one.thread.join();
    CHECK(one.error == Errc::device_error);
    CHECK(one.user.is_right());
  }
}

TEST_CASE("npu shared: a run that steps ends with a reset that may have cleared memory") {
  const DevicePtr device = open_npu(shared_url);
  User user(device, 40, 1), watched(device, 40, 1);
  std::vector<std::string> values;
  watched.session->set_merge(false);
  watched.session->set_post_callback([&](const StepEvent& event) {
    values.insert(values.end(), event.values.begin(), event.values.end());
  });
  CHECK(watched.is_right());
  REQUIRE(values.size() > 2);
  const auto step = [&](std::size_t i) {
    user.session->step_to(values[i], {user.inputs[0].to_device(cpu_device())});
  };
  step(0);
  device->reset(0);
  step(1);
  device->reset(2);
  expect_error(Errc::device_error, [&] { step(2); });
  step(0);
}

TEST_CASE("npu shared: with a run in the ring the device goes for all") {
  BothRun both;
  arm(*both.device, simctl::FaultKind::removed, 0);
  both.join();
  CHECK(both.first.error == Errc::device_lost);
  CHECK(both.second.error == Errc::device_lost);
}

TEST_CASE("npu shared: faults hit one run each, whoever runs beside it") {
  const DevicePtr device = open_npu(shared_url);
  User a(device, 40, 1), b(device, 24, 2), c(device, 32, 3);
  std::atomic<bool> ends = false;
  struct Result {
    int runs = 0, wrong = 0, errors = 0;
  };
  std::array<Result, 3> results;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    User& user = *std::array{&a, &b, &c}[i];
    threads.emplace_back([&ends, &user, &result = results[i]] {
      while (!ends) {
        const std::optional<Errc> error = user.error();
        ++result.runs;
        if (error == Errc::corrupt) ++result.wrong;
        if (error && error != Errc::corrupt) ++result.errors;
      }
    });
  }
  constexpr int faults = 40;
  for (int i = 0; i < faults; ++i) {
    const auto kind = std::array{simctl::FaultKind::hang, simctl::FaultKind::illegal,
                                 simctl::FaultKind::bus_error}[static_cast<std::size_t>(i) % 3];
    arm(*device, kind, static_cast<std::uint32_t>(1 + i % 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  int errors = 0;
  for (const Result& result : results) {
    CHECK(result.runs > 0);
    CHECK(result.wrong == 0);
    errors += result.errors;
  }
  // A bus error is not tried again; of the others, two have to hit one call.
  CHECK(errors <= faults);
  while (device->reg_region("simctl").read(simctl::faults_armed, true) != 0) {
    static_cast<void>(a.error());
  }
  for (User* user : {&a, &b, &c}) CHECK(user->is_right());
}

}  // namespace
}  // namespace tenon::npu
