// fork() while other threads are inside calls of the library: children work, or are told.
#include "base/sanitizers.hpp"
#include "core/forked_child.hpp"
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "memory/kept_memory.hpp"
#include "support/fake_device.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/rounds.hpp"

#include <tenon/backend.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>
#include <tenon/log.hpp>
#include <tenon/name.hpp>
#include <tenon/ops.hpp>
#include <tenon/trace.hpp>
#include <tenon/weights_view.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

// The address sanitizer (of clang, at least up to version 19) takes the locks of its allocator before
// fork(), but not those of its quarantine: a child whose parent's threads were freeing memory waits for
// ever when its first thread ends. So this program has no quarantine.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() {
  return "quarantine_size_mb=0:thread_local_quarantine_size_kb=0";
}

namespace tenon {
namespace {

using namespace testing;

constexpr std::int64_t width = 64;  // its weights lie in slabs
const Shape weight_shape({width, width}, f32);

/// A model as a struct.
template <class T = Tensor>
struct Layer {
  T weight;
  TENON_FIELDS(weight)

  Tensor forward(const Tensor& x) const { return tanh(linear(x, weight)); }
};

Program two_layers() {
  Program program = program_of(R"(def forward(x: f32[S, 64]):
    a: f32[64, 64] = const("a")
    b: f32[64, 64] = const("b")
    t = linear(x, a)
    y = tanh(t)
    z = linear(y, b)
    return z
)");
  verify(program);
  return program;
}

std::shared_ptr<const WeightSet> two_weights() {
  std::map<std::string, Buffer> weights;
  weights["a"] = device(Random(1).uniform(weight_shape));
  weights["b"] = device(Random(2).uniform(weight_shape));
  return std::make_shared<const WeightSet>(std::move(weights));
}

WeightsView layer_view() {
  return {"layer", std::vector<std::pair<std::string, Shape>>{{"weight", weight_shape}}};
}

std::vector<BackendPtr> fresh_backends(int threads = 2) {
  return {make_backend("cpu", {.threads = threads}), make_backend("reference")};
}

/// Whether threads of the parent may be starting others at fork(). The address sanitizer (of clang,
/// at least up to version 19) then has a lock in the child that the child's own threads wait for.
constexpr bool parent_starts_threads = !has_address_sanitizer;

/// What a parent's threads and its children use together.
class Shared {
 public:
  Shared() {
    const HostBuffer weight = Random(5).uniform(weight_shape);
    const io::NamedTensor tensors[] = {{"weight", weight}};
    io::save_safetensors(path_, tensors);
    want_ = values(session.fork().forward({input_})[0]);
    layer_want_ = values(layer_of(bound, 3));
  }

  Session compiled(const std::vector<BackendPtr>& on,
                   const std::shared_ptr<const WeightSet>& from) const {
    Session made(two_layers(), {.backends = on});
    made.bind(from);
    return made;
  }
  bool is_right(Session made) const { return values(made.forward({input_})[0]) == want_; }
  bool is_right_layer(const BoundExe<&Layer<>::forward>& of) const {
    return values(layer_of(of, 3)) == layer_want_;
  }
  Buffer layer_of(const BoundExe<&Layer<>::forward>& of, std::int64_t rows) const {
    auto run = of.fork();
    return run(device(Random(4).uniform(Shape({rows, width}, f32))));
  }
  static BoundExe<&Layer<>::forward> bound_layer(const WeightsView& from,
                                                 const std::vector<BackendPtr>& on) {
    return compile<&Layer<>::forward>(Layer<>{from.tensor("weight")}, {Shape({2, width}, f32)},
                                      {.backends = on})
        .bind(Layer<Buffer>{device(Random(5).uniform(weight_shape))});
  }

  /// A model's file, opened, loaded on a thread of its own, and run.
  bool is_right_file(const std::vector<BackendPtr>& on) const {
    const io::File file = io::open(path_, {.access = io::Access::guarded});
    const Layer<> model{file.view().tensor("weight")};
    auto loaded = io::load_async(model, file, cpu_device());
    const auto exe =
        compile<&Layer<>::forward>(model, {Shape({2, width}, f32)}, CompileOptions{.backends = on});
    return is_right_layer(exe.bind(loaded.get()));
  }

  std::vector<BackendPtr> backends = fresh_backends();
  std::shared_ptr<const WeightSet> weights = two_weights();
  Session session = compiled(backends, weights);
  WeightsView view = layer_view();
  BoundExe<&Layer<>::forward> bound = bound_layer(view, backends);
  PreparedCache prepared;
  Trace trace;
  FakeRegion region{"fake", 0x1000, 1 << 20, false};
  Buffer pending{Shape({1}, f32), [] { return false; }};

 private:
  Buffer input_ = device(Random(3).uniform(Shape({3, width}, f32)));
  std::vector<float> want_, layer_want_;
  TempFolder folder_;
  std::filesystem::path path_ = folder_ / "layer.safetensors";
};

void make_buffers(MemRegion& host) {
  std::vector<Buffer> buffers;
  for (std::int64_t size = 1; size < 1000; size += 100) {
    buffers.push_back(Buffer::allocate(Shape({size}, f32), host));
  }
}

/// Memory that goes from one run to the next.
void keep_memory_of_results(MemRegion& host) {
  KeptMemory kept;
  kept.keep({kept_bytes_from});
  for (int i = 0; i < 3; ++i) host.malloc(kept_bytes_from);
}

void intern_names(int thread, std::uint64_t round) {
  for (std::uint64_t i = 0; i < 20; ++i) {
    static_cast<void>(Name("n" + std::to_string(thread) + "_" + std::to_string((round + i) % 500)));
  }
}

void trace_and_log(Shared& shared) {
  const auto now = Trace::Clock::now();
  shared.trace.add("track", "event", now, now);
  log(LogLevel::info, "a message");
  static_cast<void>(backend_names());
  static_cast<void>(Device::schemes());
}

/// One call of each kind that threads of the parent are inside of.
std::vector<std::function<void(int, std::uint64_t)>> calls_of(Shared& shared) {
  MemRegion& host = cpu_device()->default_mem_region();
  std::vector<std::function<void(int, std::uint64_t)>> calls = {
      [&](int, std::uint64_t) {
        shared.is_right(shared.session.fork());
        try {
          shared.is_right(shared.session);
        } catch (const Error&) {  // Errc::busy
        }
      },
      [&](int, std::uint64_t) { make_buffers(host); },
      [&](int, std::uint64_t) { keep_memory_of_results(host); },
      [&](int, std::uint64_t) {
        shared.is_right(shared.compiled(shared.backends, shared.weights));
        shared.is_right(shared.compiled(shared.backends, two_weights()));
      },
      [&](int, std::uint64_t) {
        shared.is_right(
            shared.compiled(fresh_backends(parent_starts_threads ? 2 : 1), two_weights()));
      },
      [&](int, std::uint64_t round) {
        shared.layer_of(shared.bound, static_cast<std::int64_t>(round % 100));
        Shared::bound_layer(layer_view(), shared.backends);
        static_cast<void>(shared.view.find("weight"));
      },
      intern_names,
      [&](int, std::uint64_t round) {
        trace_and_log(shared);
        static_cast<void>(shared.region.malloc(1 + round % 1000));
        static_cast<void>(shared.pending.is_ready());
        shared.prepared.get(std::to_string(round % 1000), [] { return nullptr; });
      },
  };
  if (parent_starts_threads) {
    calls.push_back([&](int, std::uint64_t) { shared.is_right_file(shared.backends); });
  }
  return calls;
}

/// Threads that make these calls until the end.
class Crowd {
 public:
  Crowd(Shared& shared, int threads, std::uint64_t seed) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i, seed, calls = calls_of(shared)] {
        Random random(seed + static_cast<std::uint64_t>(i));
        while (!done_) {
          const std::int64_t call = random.integer(0, static_cast<std::int64_t>(calls.size()) - 1);
          calls[static_cast<std::size_t>(call)](i, ++rounds_);
        }
      });
    }
  }
  ~Crowd() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

/// False when the call, which uses what the parent's threads may have been inside of, returns false
/// or ends in another error than Errc::forked_process.
bool works_or_is_told(const std::function<bool()>& call) {
  try {
    return call();
  } catch (const Error& error) {
    return error.code() == Errc::forked_process;
  }
}

bool works_in_child(Shared& shared, const SharedLine& now) {
  MemRegion& host = cpu_device()->default_mem_region();
  // What belongs to the process, not to an object of the parent.
  now.set("buffers");
  make_buffers(host);
  keep_memory_of_results(host);
  now.set("names");
  intern_names(99, 0);
  now.set("log and registries");
  set_log_sink([](LogLevel, std::string_view) {});
  log(LogLevel::info, "a message");
  static_cast<void>(backend_names());
  static_cast<void>(Device::schemes());
  now.set("a fresh session on a fresh backend");
  if (!shared.is_right(shared.compiled(fresh_backends(), two_weights()))) return false;
  now.set("a fresh session on the parent's backend");
  if (!shared.is_right(shared.compiled(shared.backends, two_weights()))) return false;
  now.set("a fresh Exe");
  if (!shared.is_right_layer(Shared::bound_layer(layer_view(), fresh_backends()))) return false;
  now.set("a fresh file");
  if (!shared.is_right_file(fresh_backends())) return false;
  // What threads of the parent were using.
  const std::pair<const char*, std::function<bool()>> inherited[] = {
      {"the parent's session", [&] { return shared.is_right(shared.session); }},
      {"a fork of the parent's session", [&] { return shared.is_right(shared.session.fork()); }},
      {"the parent's weights",
       [&] { return shared.is_right(shared.compiled(fresh_backends(), shared.weights)); }},
      {"the parent's Exe", [&] { return shared.is_right_layer(shared.bound); }},
      {"the parent's view", [&] { return shared.view.find("weight").has_value(); }},
      {"the parent's trace",
       [&] {
         trace_and_log(shared);
         return shared.trace.size() > 0;
       }},
      {"the parent's region",
       [&] {
         static_cast<void>(shared.region.malloc(100));
         return true;
       }},
      {"the parent's buffer", [&] { return !shared.pending.is_ready(); }},
      {"the parent's prepared weights",
       [&] {
         shared.prepared.get("0", [] { return nullptr; });
         return true;
       }},
  };
  for (const auto& [what, call] : inherited) {
    now.set(what);
    if (!works_or_is_told(call)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("fork: while other threads are inside calls") {
  register_cpu_backend();
  register_reference_backend();
  constexpr int forks = rounds(200);
  Random random;
  LogSink before = set_log_sink([](LogLevel, std::string_view) {});
  Shared shared;
  {
    const Crowd crowd(shared, 6, static_cast<std::uint64_t>(random.integer(0, 1 << 30)));
    for (int i = 0; i < forks; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.integer(0, 3000)));
      INFO("fork " << i);
      const std::string failure =
          failure_in_child([&](const SharedLine& now) { return works_in_child(shared, now); });
      REQUIRE(failure == "");
    }
  }
  set_log_sink(std::move(before));
  CHECK(shared.is_right(shared.session));
}

}  // namespace tenon
