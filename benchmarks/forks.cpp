// Forks of a session on separate threads: the throughput of two relative to that of one. The forks
// share a backend of one thread or of two, or, for comparison, have separate backends. The limit is
// what two independent threads reach on this machine. With noisy neighbours, compare the processor
// time of a run instead: its increase beside another fork is the cost of sharing.
//
//   bench_forks [--turns N] [--only WORD]
#include "timing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;
using Clock = std::chrono::steady_clock;
using Weights = std::map<std::string, Buffer>;

Buffer numbers(const Shape& shape) {
  const HostBuffer values = HostBuffer::zeros(shape);
  std::byte* const bytes = values.view().data;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const auto mixed = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u >> 48;
    store_double(f32, bytes + i * 4, static_cast<double>(mixed) * 0x1p-19 - 0.0625);
  }
  return values.to_device(cpu_device());
}

/// Makes constants as a graph asks for them.
class Recorder {
 public:
  Tensor weight(const Shape& shape) {
    const std::string name = fmt::format("w{}", weights.size());
    weights[name] = numbers(shape);
    return graph.constant(name, shape);
  }
  Graph graph;
  Weights weights;
};

struct Case {
  std::string_view name;
  Shape input;
  std::function<Tensor(Recorder&, const Tensor&)> build;
};

Tensor transformer(Recorder& r, Tensor x, std::int64_t width, int layers) {
  const auto project = [&](const Tensor& t) {
    return linear(t, r.weight(Shape({width, width}, f32)));
  };
  const auto heads = [&](const Tensor& t) { return reshape(t, {1, -1, 4, width / 4}); };
  for (int i = 0; i < layers; ++i) {
    const Tensor n = rms_norm(x, r.weight(Shape({width}, f32)));
    const Tensor a =
        attention(heads(project(n)), heads(project(n)), heads(project(n)), {.causal = true});
    x = x + project(reshape(a, {-1, width}));
    x = x + silu(project(x));
  }
  return x;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"one small layer", Shape({1, 64}, f32),
       [](Recorder& r, const Tensor& x) { return linear(x, r.weight(Shape({64, 64}, f32))); }},
      {"transformer, a token", Shape({1, 128}, f32),
       [](Recorder& r, const Tensor& x) { return transformer(r, x, 128, 4); }},
      {"transformer, 64 tokens", Shape({64, 128}, f32),
       [](Recorder& r, const Tensor& x) { return transformer(r, x, 128, 4); }},
      {"convolutions", Shape({1, 32, 28, 28}, f32),
       [](Recorder& r, Tensor x) {
         for (int i = 0; i < 4; ++i) {
           x = relu(conv2d(x, r.weight(Shape({32, 32, 3, 3}, f32)), {}, {.padding = {1, 1}}));
         }
         return x;
       }},
      {"matrix product", Shape({256, 512}, f32),
       [](Recorder& r, const Tensor& x) { return linear(x, r.weight(Shape({512, 512}, f32))); }},
  };
  return all;
}

double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Times {
  double wall = 0;       ///< until all have made their runs
  double processor = 0;  ///< of one of them, without what workers of a pool take
};

/// Each of these makes so many runs on a thread of its own.
Times times(std::vector<Session>& sessions, const Buffer& input, int runs) {
  std::atomic<std::size_t> ready{0};
  std::atomic<double> processor{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (Session& session : sessions) {
    threads.emplace_back([&] {
      session.forward({input});
      ++ready;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      const double before = processor_seconds();
      for (int i = 0; i < runs; ++i) session.forward({input});
      processor += processor_seconds() - before;
    });
  }
  while (ready < sessions.size()) std::this_thread::yield();
  const auto begin = Clock::now();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  return {std::chrono::duration<double>(Clock::now() - begin).count(),
          processor / static_cast<double>(sessions.size())};
}

/// The wall's time for arithmetic in registers.
double seconds_of_arithmetic(int count, int runs) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> sum{0};
  const auto begin = Clock::now();
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&] {
      std::uint64_t value = 1;
      for (int i = 0; i < runs; ++i) value = value * 6364136223846793005u + 1442695040888963407u;
      sum += value;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Case& c, int turns) {
  Recorder recorder;
  const Tensor x = recorder.graph.input("x", c.input);
  const Tensor outputs[] = {c.build(recorder, x)};
  const Program program = recorder.graph.program(outputs);
  const auto weights = std::make_shared<const WeightSet>(std::move(recorder.weights));
  const Buffer input = numbers(c.input);
  const auto session_on = [&](int threads) {
    Session session(program, {.backends = {make_backend("cpu", {.threads = threads})}});
    session.bind(weights);
    session.forward({input});
    return session;
  };
  const Session of_one = session_on(1), of_two = session_on(2);
  std::vector<Session> one{of_one.fork()};
  std::vector<std::vector<Session>> twos;
  twos.push_back({of_one.fork(), of_one.fork()});
  twos.push_back({of_two.fork(), of_two.fork()});
  twos.push_back({session_on(1), session_on(1)});

  const double run = bench::shortest([&] { one[0].forward({input}); });
  const int runs = std::max(1, static_cast<int>(0.05 / run));
  std::vector<double> alone;
  std::vector<std::vector<double>> work(twos.size()), cost(twos.size());
  for (int turn = 0; turn < turns; ++turn) {
    const Times before = times(one, input, runs);
    alone.push_back(before.wall / runs);
    for (std::size_t i = 0; i < twos.size(); ++i) {
      const Times both = times(twos[i], input, runs);
      work[i].push_back(2 * before.wall / both.wall);
      cost[i].push_back(both.processor / before.processor);
    }
  }
  fmt::print("{:24} {:9.1f} us", c.name, median(alone) * 1e6);
  for (const auto& ratios : work) fmt::print(" {:8.2f}", median(ratios));
  fmt::print("   ");
  for (const auto& ratios : cost) fmt::print(" {:8.2f}", median(ratios));
  fmt::print("\n");
}

}  // namespace

int main(int count, char** arguments) {
  int turns = 21;
  std::string_view only;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string_view(arguments[i]) == "--turns") turns = std::stoi(arguments[i + 1]);
    if (std::string_view(arguments[i]) == "--only") only = arguments[i + 1];
  }
  register_cpu_backend();
  constexpr int steps = 50'000'000;
  std::vector<double> limits;
  for (int turn = 0; turn < turns; ++turn) {
    limits.push_back(2 * seconds_of_arithmetic(1, steps) / seconds_of_arithmetic(2, steps));
  }
  fmt::print("medians of {} turns; arithmetic on two threads: {:.2f} times that of one\n\n", turns,
             median(limits));
  fmt::print("{:37} {:^26}    {:^26}\n", "", "work of two, times one's",
             "processor time, beside/alone");
  fmt::print("{:24} {:>12}", "", "a run alone");
  for (int i = 0; i < 2; ++i) {
    fmt::print(" {:>8} {:>8} {:>8}   ", "pool 1", "pool 2", "2 pools");
  }
  fmt::print("\n");
  for (const Case& c : cases()) {
    if (c.name.find(only) != std::string_view::npos) measure(c, turns);
  }
  return 0;
}
