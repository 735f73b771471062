// Random networks through the driver, bit by bit what the CPU computes in the same integers.
#include "bench.hpp"
#include "findings.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testkit {
namespace {

using Random = std::mt19937_64;

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

HostBuffer uniform(Random& random, const Shape& shape, double reach) {
  HostBuffer array = HostBuffer::zeros(shape);
  std::uniform_real_distribution<double> value(-reach, reach);
  for (float& element : array.mutable_values<float>()) element = static_cast<float>(value(random));
  return array;
}

/// A network of one kind: what it computes of its input.
struct Kind {
  std::string_view name;
  bool is_image;
  Tensor (*record)(Graph& graph, const Tensor& x, Random& random);
};

Tensor convolutions(Graph& graph, const Tensor& x, Random& random) {
  const std::int64_t in = x.shape()[1], out = between(random, 1, 70), k = between(random, 1, 3);
  const Tensor a = relu(conv2d(x, graph.constant("a", Shape({out, in, k, k}, f32)),
                               graph.constant("a.bias", Shape({out}, f32)),
                               {.stride = {between(random, 1, 2), 1}, .padding = {k / 2, k / 2}}));
  const Tensor depthwise = conv2d(a, graph.constant("b", Shape({out, 1, 3, 3}, f32)), {},
                                  {.padding = {1, 1}, .groups = static_cast<std::int32_t>(out)});
  return conv2d(depthwise, graph.constant("c", Shape({out, out, 1, 1}, f32))) + a;
}

Tensor products(Graph& graph, const Tensor& x, Random& random) {
  const std::int64_t in = x.shape()[1], hidden = between(random, 1, 200);
  const Tensor a = relu(linear(x, graph.constant("a", Shape({hidden, in}, f32)),
                               graph.constant("a.bias", Shape({hidden}, f32))));
  const Tensor b = linear(a, graph.constant("b", Shape({in, hidden}, f32)));
  return matmul(b, transpose(x, 0, 1));
}

Tensor elements(Graph& graph, const Tensor& x, Random&) {
  const Shape& shape = x.shape();
  const Tensor bias = graph.constant("a", Shape({1, shape[1], 1, 1}, f32));
  const Tensor a = silu(x + bias);
  return maximum(leaky_relu(a - x, 0.2), a * x);
}

Tensor pools(Graph&, const Tensor& x, Random& random) {
  const std::int64_t k = between(random, 2, 3);
  const Tensor a = max_pool2d(x, {.kernel = {k, 2}, .stride = {1, 2}});
  return avg_pool2d(a, {.kernel = {2, 2}, .stride = {1, 1}});
}

constexpr Kind kinds[] = {{"convolutions", true, convolutions},
                          {"products of matrices", false, products},
                          {"element-wise ops", true, elements},
                          {"pools", true, pools}};

struct Network {
  Network(const Kind& kind, std::uint64_t seed);

  std::vector<std::byte> run(const BackendPtr& backend) const;
  npu::Options options(npu::Mode mode, const NpuCheckOptions& check) const {
    npu::Options options;
    options.calibration = calibration;
    options.mode = mode;
    options.deadline = check.patience;
    return options;
  }

  Program program;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const npu::CalibrationTable> calibration;
  HostBuffer input;
};

std::vector<std::byte> bytes_of(const std::vector<Buffer>& outputs) {
  std::vector<std::byte> bytes;
  for (const Buffer& output : outputs) {
    const HostBuffer dense = output.to_host().contiguous();
    bytes.insert(bytes.end(), dense.bytes(), dense.bytes() + dense.shape().bytes());
  }
  return bytes;
}

Session session_of(const Network& network, const BackendPtr& backend) {
  Session session(network.program, {.backends = {backend, make_backend("reference")}});
  session.bind(network.weights);
  return session;
}

Network::Network(const Kind& kind, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t channels = between(random, 1, 70);
  const Shape shape = kind.is_image
                          ? Shape({1, channels, between(random, 4, 9), between(random, 4, 9)}, f32)
                          : Shape({between(random, 1, 40), channels}, f32);
  Graph graph;
  program = graph.program(std::vector{kind.record(graph, graph.input("x", shape), random)});
  std::map<std::string, Buffer> made;
  for (const ConstantSlot& slot : lower(program, std::vector{shape}).constants) {
    if (program.folded.contains(slot.name)) continue;
    const double inputs = slot.shape.rank() < 2 ? 100.0
                                                : static_cast<double>(slot.shape.elements()) /
                                                      static_cast<double>(slot.shape[0]);
    made.emplace(slot.name,
                 uniform(random, slot.shape, 1.7 / std::sqrt(inputs)).to_device(cpu_device()));
  }
  weights = std::make_shared<const WeightSet>(std::move(made));
  std::vector<std::vector<HostBuffer>> samples;
  for (int i = 0; i < 3; ++i) samples.push_back({uniform(random, shape, 2)});
  calibration =
      std::make_shared<const npu::CalibrationTable>(npu::calibrate(program, *weights, samples));
  input = uniform(random, shape, 2);
}

std::vector<std::byte> Network::run(const BackendPtr& backend) const {
  Session session = session_of(*this, backend);
  return bytes_of(session.forward({input.to_device(cpu_device())}));
}

struct Compared {
  Network network;
  std::shared_ptr<const npu::Npu> npu;
  std::vector<std::byte> expected;
};

Compared compared(const DevicePtr& device, const Kind& kind, std::uint64_t seed,
                  const NpuCheckOptions& options) {
  Network network(kind, seed);
  auto npu = npu::backend(device, network.options(npu::Mode::device, options));
  auto expected = network.run(npu::backend(device, network.options(npu::Mode::exact, options)));
  return {std::move(network), std::move(npu), std::move(expected)};
}

void check_kind(const DevicePtr& device, const Kind& kind, const NpuCheckOptions& options,
                Findings& findings) {
  for (int i = 0; i < options.networks; ++i) {
    const std::uint64_t seed = options.seed * 1000 + static_cast<std::uint64_t>(i);
    findings.guarded(fmt::format("a network of {} (seed {})", kind.name, seed), [&] {
      const Compared one = compared(device, kind, seed, options);
      const std::vector<std::byte> found = one.network.run(one.npu);
      const auto [a, b] = std::ranges::mismatch(found, one.expected);
      if (a != found.end()) {
        findings.add(
            "a network of {} (seed {}) differs from its integers on the CPU first in "
            "value {} of {}",
            kind.name, seed, (a - found.begin()) / 4, found.size() / 4);
      }
      const npu::Counters counters = one.npu->counters();
      if (counters.runs == 0) {
        findings.add("a network of {} (seed {}) does not run on the device", kind.name, seed);
      }
      if (counters.timeouts + counters.faults + counters.lost_interrupts > 0) {
        findings.add(
            "a network of {} (seed {}) ran with {} timeouts, {} faults and {} lost "
            "interrupts, expected none",
            kind.name, seed, counters.timeouts, counters.faults, counters.lost_interrupts);
      }
    });
  }
}

/// A thread with a backend, a session and its fork for each kind; all at once, many times.
void check_sharing(const DevicePtr& device, const NpuCheckOptions& options, Findings& findings) {
  constexpr int rounds = 20;
  std::vector<Compared> users;
  for (const Kind& kind : kinds) users.push_back(compared(device, kind, options.seed, options));
  std::atomic<int> wrong = 0;
  std::mutex mutex;
  const auto work = [&](const Compared& user) {
    try {
      Session session = session_of(user.network, user.npu);
      Session fork = session.fork();
      const Buffer input = user.network.input.to_device(cpu_device());
      for (int round = 0; round < rounds; ++round) {
        if (bytes_of(session.forward({input})) != user.expected) ++wrong;
        if (bytes_of(fork.forward({input})) != user.expected) ++wrong;
      }
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex);
      findings.add("a thread of several that share the device threw: {}", error.what());
    }
  };
  std::vector<std::thread> threads;
  for (const Compared& user : users) threads.emplace_back([&] { work(user); });
  for (std::thread& thread : threads) thread.join();
  if (wrong > 0) {
    findings.add(
        "{} of {} runs of several backends, sessions, forks and threads at once differ "
        "from the same run alone",
        wrong.load(), 2 * rounds * static_cast<int>(users.size()));
  }
}

/// A child of fork() has to be told, and must not wait for what only its parent has.
void check_child(const DevicePtr& device, Findings& findings) {
  const auto is_refused = [](const std::function<void()>& access) {
    try {
      access();
    } catch (const Error& error) {
      return error.code() == Errc::forked_process;
    } catch (...) {
    }
    return false;
  };
  std::byte byte{};
  const MemChunk chunk = device->mem_region("etm").malloc(64);
  auto& control = dynamic_cast<isa::DeviceControl&>(*device);
  const std::pair<std::string_view, std::function<void()>> accesses[] = {
      {"a read of a register", [&] { device->reg_region("npu").read(isa::reg::id, true); }},
      {"a write of a register",
       [&] { device->reg_region("npu").write(isa::reg::irq_mask, 0, true); }},
      {"a read of etm", [&] { chunk.read(&byte, 0, 1); }},
      {"wait_irq", [&] { control.wait_irq(1, std::chrono::milliseconds(1)); }},
      {"a reset", [&] { device->reset(); }}};
  constexpr unsigned patience_s = 30;
  for (const auto& [what, access] : accesses) {
    const pid_t child = ::fork();
    if (child < 0) return;  // a machine without room for a process says nothing of the device
    if (child == 0) {
      ::alarm(patience_s);
      ::_exit(is_refused(access) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    findings.add("{} in a child of fork() {}, expected Errc::forked_process", what,
                 WIFEXITED(status) ? "is not refused" : "does not return");
  }
}

}  // namespace

void check_networks(const DevicePtr& device, const NpuCheckOptions& options, Findings& findings) {
  register_reference_backend();
  findings.begin("npu-isa.md");
  for (const Kind& kind : kinds) check_kind(device, kind, options, findings);
  findings.begin("npu-device.md, The command ring");
  findings.guarded("several users of the device",
                   [&] { check_sharing(device, options, findings); });
  findings.guarded("children of fork()", [&] { check_child(device, findings); });
}

}  // namespace tenon::testkit
