// Two NPU backends on one device, two CPU sessions and four forks of a third, used by four threads
// at once: every result has the bits that one thread alone gave.
#include "core/runs.hpp"
#include "core/small_model.hpp"
#include "npu/driver_rig.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/device.hpp>
#include <tenon/ops.hpp>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon {
namespace {

using namespace testing;

/// Rounds of each thread.
int rounds() {
  const char* const wanted = std::getenv("TENON_TEST_ROUNDS");
  return wanted != nullptr ? std::atoi(wanted) : 300;
}

using Results = std::vector<HostBuffer>;

Results run(Session& session, const HostBuffer& input) {
  Results results;
  for (const Buffer& output : session.forward({device(input)})) results.push_back(output.to_host());
  return results;
}

/// A session, and what it gave for some inputs while nothing else ran.
class Subject {
 public:
  Subject(std::string name, Session session, std::vector<HostBuffer> inputs)
      : name_(std::move(name)), session_(std::move(session)), inputs_(std::move(inputs)) {
    for (const HostBuffer& input : inputs_) want_.push_back(run(session_, input));
  }

  /// The same with a fork of the session.
  Subject fork(int number) const {
    Subject made = *this;
    made.name_ += fmt::format(", fork {}", number);
    made.session_ = session_.fork();
    return made;
  }
  const std::string& name() const noexcept { return name_; }
  bool is_right(Random& random) {
    const auto which =
        static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(inputs_.size()) - 1));
    return npu::testing::same_bits(run(session_, inputs_[which]), want_[which]);
  }

 private:
  std::string name_;
  Session session_;
  std::vector<HostBuffer> inputs_;
  std::vector<Results> want_;
};

npu::testing::Network convolutions(std::int64_t channels, std::uint64_t seed) {
  return npu::testing::make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [channels](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor a = relu(conv2d(in[0], graph.constant("a", Shape({channels, 8, 3, 3}, f32)),
                                     {}, {.padding = {1, 1}}));
        return {conv2d(a, graph.constant("b", Shape({channels, channels, 1, 1}, f32))) + a};
      },
      seed);
}

Subject network_on(std::string name, const npu::testing::Network& network,
                   const BackendPtr& backend, std::uint64_t seed) {
  Session session(network.program, {.backends = {backend, make_backend("reference")}});
  session.bind(network.weights);
  return {
      std::move(name), std::move(session), {network.sample(seed)[0], network.sample(seed + 1)[0]}};
}

Subject transformer_on(std::string name, const BackendPtr& backend) {
  Session session(small_model(), {.backends = {backend, make_backend("reference")}});
  session.bind(std::make_shared<const WeightSet>(small_weights()));
  std::vector<HostBuffer> inputs;
  for (const std::int64_t rows : {1, 5, 40}) {
    inputs.push_back(Random(6).uniform(Shape({rows, small_model_width}, f32)));
  }
  return {std::move(name), std::move(session), std::move(inputs)};
}

}  // namespace

TEST_CASE("stress: NPU, CPU and forks on four threads at once give what each gives alone") {
  register_cpu_backend();
  register_reference_backend();
  register_npu_sim();
  const DevicePtr device = Device::open("npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1");
  std::vector<std::shared_ptr<const npu::Npu>> npus;
  const auto on_npu = [&](std::string name, std::int64_t channels, std::uint64_t seed) {
    const npu::testing::Network network = convolutions(channels, seed);
    npus.push_back(npu::backend(device, npu::testing::options_for(network)));
    return network_on(std::move(name), network, npus.back(), seed + 50);
  };
  constexpr std::size_t threads = 4;
  // Each thread has a fork and a session or backend of its own.
  std::vector<Subject> own;
  own.push_back(on_npu("one NPU backend", 40, 1));
  own.push_back(on_npu("another NPU backend", 24, 2));
  own.push_back(network_on("convolutions on the CPU", convolutions(40, 3),
                           make_backend("cpu", {.threads = 2}), 53));
  own.push_back(transformer_on("a transformer on the CPU", make_backend("cpu", {.threads = 3})));
  REQUIRE(own.size() == threads);
  const Subject shared = transformer_on("a shared session", make_backend("cpu", {.threads = 2}));
  std::vector<Subject> forks;
  for (std::size_t i = 0; i < threads; ++i) forks.push_back(shared.fork(static_cast<int>(i)));

  Random random;
  const auto seed = static_cast<std::uint64_t>(random.integer(0, 1 << 30));
  const int count = rounds();
  std::vector<std::string> failures(threads);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      Random choice(seed + i);
      Subject* subject = nullptr;
      int round = 0;
      try {
        for (; round < count && failures[i].empty(); ++round) {
          for (Subject* const next : {&own[i], &forks[i]}) {
            subject = next;
            if (next->is_right(choice)) continue;
            failures[i] = fmt::format("round {}, {}: other bits", round, next->name());
          }
        }
      } catch (const std::exception& error) {
        failures[i] = fmt::format("round {}, {}: {}", round, subject->name(), error.what());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::string& failure : failures) CHECK(failure == "");
  constexpr int alone = 2;
  for (const auto& npu : npus) {
    CHECK(npu->counters().runs == static_cast<std::uint64_t>(count + alone));
    CHECK(npu->counters().timeouts == 0);
  }
}

}  // namespace tenon
