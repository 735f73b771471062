// One device, many users at once: backends, models, sessions, forks and threads, each answer bit by
// bit the reference integers, while backends come and go, the device has faults, and somebody
// resets it.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
using simctl::FaultKind;

constexpr const char* owner_url = "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&ddr=256MiB&strict=1";
constexpr std::size_t inputs_each = 3;

Tensor filters(Graph& graph, const char* name, const Tensor& x, std::int64_t out, std::int64_t k) {
  return graph.constant(name, Shape({out, x.shape()[1], k, k}, f32));
}

Tensor residual(Graph& graph, const Tensor& x) {
  const Tensor a = relu(conv2d(x, filters(graph, "a", x, 40, 3), {}, {.padding = {1, 1}}));
  return conv2d(a, filters(graph, "b", a, 40, 1)) + a;
}
Tensor classifier(Graph& graph, const Tensor& x) {
  const Tensor a = max_pool2d(conv2d(x, filters(graph, "a", x, 24, 3)), {.kernel = {2, 2}});
  return linear(flatten(a, 1, 3), graph.constant("b", Shape({10, 96}, f32)));
}
Tensor tables(Graph& graph, const Tensor& x) {
  return sigmoid(x * graph.constant("a", Shape({1, 8, 1, 1}, f32))) * x;
}

/// A model with inputs and the integers that each of them gives.
struct Model {
  Model(Tensor (*record)(Graph&, const Tensor&), std::uint64_t seed)
      : network(make_network(
            {Shape({1, 8, 6, 6}, f32)},
            [record](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
              return {record(graph, in[0])};
            },
            seed)) {
    const auto exact = backend(nullptr, options_for(network, Mode::exact));
    for (std::size_t i = 0; i < inputs_each; ++i) {
      inputs[i] = network.sample(seed + 100 + i)[0];
      expected[i] = run(network, exact, {inputs[i]});
    }
  }

  Network network;
  std::array<HostBuffer, inputs_each> inputs;
  std::array<std::vector<HostBuffer>, inputs_each> expected;
};

std::vector<Model> models() {
  register_reference_backend();
  std::vector<Model> all;
  all.emplace_back(residual, 1);
  all.emplace_back(residual, 2);
  all.emplace_back(classifier, 3);
  all.emplace_back(tables, 4);
  return all;
}

Session session_of(const Model& model, const std::shared_ptr<const Npu>& npu) {
  Session session(model.network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(model.network.weights);
  return session;
}

bool is_right(const Model& model, Session& session, std::size_t input) {
  const Buffer y = session.forward({model.inputs[input].to_device(cpu_device())})[0];
  return same_bits({y.to_host()}, model.expected[input]);
}

/// Threads that run sessions and forks of all models in an order of their own, and now and then
/// make a backend of their own for one. Returns what went wrong, a line each.
std::string run_users(const DevicePtr& device, const std::vector<Model>& all, int rounds,
                      const Options& changes, std::uint64_t seed) {
  const auto options = [&](const Model& model) {
    Options made = changes;
    made.calibration = model.network.calibration;
    made.deadline = std::chrono::minutes(10);
    return made;
  };
  // Two backends of each model, with programs that differ.
  std::vector<std::pair<const Model*, Session>> sessions;
  for (const Model& model : all) {
    for (const bool merge : {true, false}) {
      Options made = options(model);
      made.merge = merge;
      made.placement = merge ? Placement::best : Placement::none;
      sessions.emplace_back(&model, session_of(model, backend(device, made)));
    }
  }
  std::mutex mutex;
  std::string wrong;
  const auto work = [&](std::uint64_t own_seed) {
    std::mt19937_64 random(own_seed);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    std::vector<std::pair<const Model*, Session>> forks;
    for (const auto& [model, session] : sessions) forks.emplace_back(model, session.fork());
    std::string text;
    try {
      for (int round = 0; round < rounds; ++round) {
        auto& [model, fork] = forks[below(forks.size())];
        if (!is_right(*model, fork, below(inputs_each))) text += "a run differs\n";
        if (below(10) != 0) continue;
        const Model& guest = all[below(all.size())];
        Session session = session_of(guest, backend(device, options(guest)));
        if (!is_right(guest, session, below(inputs_each))) text += "a guest's run differs\n";
      }
    } catch (const std::exception& error) {
      text += std::string(error.what()) + "\n";
    }
    const std::scoped_lock lock(mutex);
    wrong += text;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, seed * 10 + i);
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

TEST_CASE("npu owner: backends, models, sessions, forks and threads share a device") {
  const std::vector<Model> all = models();
  for (const char* const more : {"", "&sched=random&seed=5", "&hostdma=0", "&coherent=1"}) {
    INFO(more);
    const DevicePtr device = open_npu(std::string(owner_url) + more);
    CHECK(run_users(device, all, 60, {}, 1) == "");
  }
}

TEST_CASE("npu owner: they give the device's memory back") {
  const std::vector<Model> all = models();
  const DevicePtr device = open_npu(owner_url);
  const auto used = [&] {
    return device->mem_region("etm").usage().used_bytes +
           device->mem_region("xchg").usage().used_bytes;
  };
  const std::uint64_t before = used();
  CHECK(run_users(device, all, 20, {}, 2) == "");
  CHECK(used() == before);
}

TEST_CASE("npu owner: faults of any kind that is recovered from cost nobody a result") {
  const std::vector<Model> all = models();
  const DevicePtr device = open_npu(std::string(owner_url) + "&patience=200ms");
  std::atomic<bool> done = false;
  std::thread faults([&] {
    RegRegion& control = device->reg_region("simctl");
    std::mt19937_64 random(3);
    constexpr FaultKind kinds[] = {FaultKind::hang,         FaultKind::illegal,
                                   FaultKind::crc,          FaultKind::dma_timeout,
                                   FaultKind::lost_irq,     FaultKind::host_dma_error,
                                   FaultKind::host_dma_hang};
    // One at a time, since two in one transfer are more than it is repeated for.
    while (!done) {
      if (control.read(simctl::faults_armed, true) == 0) {
        const FaultKind kind = kinds[random() % std::size(kinds)];
        control.write(simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
        control.write(simctl::fault_nth, 20 + random() % 30, true);
        control.write(simctl::fault_layer, 0xFFFFFFFF, true);
        control.write(simctl::fault_arm, 1, true);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  CHECK(run_users(device, all, 100, {.retries = 20}, 3) == "");
  done = true;
  faults.join();
  CHECK(device->reg_region("simctl").read(simctl::faults_fired, true) > 5);
}

TEST_CASE("npu owner: somebody who resets the device again and again costs nobody a result") {
  const std::vector<Model> all = models();
  const DevicePtr device = open_npu(owner_url);
  std::atomic<bool> done = false;
  int resets = 0;
  std::thread somebody([&] {
    std::mt19937_64 random(4);
    while (!done) {
      device->reset(0);
      ++resets;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    }
  });
  CHECK(run_users(device, all, testing::rounds(100), {.retries = 100}, 4) == "");
  done = true;
  somebody.join();
  CHECK(resets > 5);
}

TEST_CASE("npu owner: resets that clear memory fail runs, and make no result wrong") {
  const std::vector<Model> all = models();
  const DevicePtr device = open_npu(owner_url);
  std::atomic<int> right = 0, failed = 0, running = 0;
  std::mutex mutex;
  std::string wrong;
  const auto add = [&](std::string_view text) {
    const std::scoped_lock lock(mutex);
    wrong += text;
    wrong += '\n';
  };
  const auto work = [&](const Model& model) {
    Session session = session_of(
        model, backend(device, {.calibration = model.network.calibration, .retries = 100}));
    for (int round = 0; round < testing::rounds(100); ++round) {
      try {
        if (is_right(model, session, static_cast<std::size_t>(round) % inputs_each)) {
          ++right;
        } else {
          add("a run differs");
        }
      } catch (const Error& error) {
        if (error.code() == Errc::device_error) {
          ++failed;
        } else {
          add(error.what());
        }
      }
    }
    --running;
  };
  std::vector<std::thread> threads;
  for (const Model& model : all) {
    ++running;
    threads.emplace_back(work, std::cref(model));
  }
  std::mt19937_64 random(5);
  while (running > 0) {
    device->reset(static_cast<int>(random() % 3));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == "");
  CHECK(right > 0);
  CHECK(failed > 0);
}

}  // namespace
}  // namespace tenon::npu
