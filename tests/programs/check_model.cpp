#include "check_model.hpp"

#include "guarded_array.hpp"
#include "support/memory_watch.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

using Results = std::vector<HostBuffer>;

struct Failure {
  std::string what;
};

/// Pools of threads are made once.
std::vector<BackendPtr> cpu_backends(int threads, bool exact) {
  static std::vector<std::pair<std::pair<int, bool>, std::vector<BackendPtr>>> made;
  for (const auto& [key, backends] : made) {
    if (key == std::pair(threads, exact)) return backends;
  }
  made.push_back(
      {{threads, exact},
       {make_cpu_backend({.threads = threads, .exact = exact}), make_reference_backend({})}});
  return made.back().second;
}

double at(const HostBuffer& array, std::int64_t i) {
  const auto unit = block_bytes(array.shape().dtype());
  return load_as_double(array.shape().dtype(), array.bytes() + i * unit);
}

HostBuffer readable(const HostBuffer& array) {
  return is_block(array.shape().dtype()) ? array.to(f32) : array.contiguous();
}

/// The largest error, in units of what is allowed.
double largest_error(const std::string& way, const Results& got, const Results& wanted,
                     double allowed) {
  if (got.size() != wanted.size()) throw Failure{way + ": another number of results"};
  double worst = 0;
  for (std::size_t r = 0; r < got.size(); ++r) {
    if (!(got[r].shape() == wanted[r].shape())) {
      throw Failure{fmt::format("{}: result {} is {}, not {}", way, r, to_string(got[r].shape()),
                                to_string(wanted[r].shape()))};
    }
    const HostBuffer a = readable(got[r]), b = readable(wanted[r]);
    double most = 1;
    for (std::int64_t i = 0; i < b.shape().elements(); ++i)
      most = std::max(most, std::fabs(at(b, i)));
    // A cache of blocks moves by a step of its blocks.
    const double slack = is_block(got[r].shape().dtype()) ? std::max(allowed, 0.03) : allowed;
    for (std::int64_t i = 0; i < b.shape().elements(); ++i) {
      const double error = std::fabs(at(a, i) - at(b, i));
      if (!(error <= slack * most)) {
        throw Failure{fmt::format("{}: element {} of result {} ({}) is {}, not {}", way, i, r,
                                  to_string(b.shape()), at(a, i), at(b, i))};
      }
      worst = std::max(worst, error / (slack * most));
    }
  }
  return worst;
}

void compare_bits(const std::string& way, const Results& got, const Results& wanted) {
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    const auto size = static_cast<std::size_t>(wanted[r].shape().bytes());
    if (got.size() != wanted.size() || !(got[r].shape() == wanted[r].shape()) ||
        (size > 0 && std::memcmp(got[r].bytes(), wanted[r].bytes(), size) != 0)) {
      std::int64_t at_byte = 0;
      while (got.size() == wanted.size() && static_cast<std::size_t>(at_byte) < size &&
             got[r].bytes()[at_byte] == wanted[r].bytes()[at_byte]) {
        ++at_byte;
      }
      throw Failure{fmt::format("{}: result {} ({}) has other bits, from byte {} on", way, r,
                                to_string(wanted[r].shape()), at_byte)};
    }
  }
}

class Checker {
 public:
  Checker(const RandomModel& model, std::uint64_t seed, CheckCounts& counts)
      : model_(model), seed_(seed), engine_(seed), counts_(counts) {
    std::map<std::string, Buffer> weights;
    for (const auto& [name, value] : model.weights) weights[name] = arrays_.copy(value);
    weights_ = std::make_shared<const WeightSet>(std::move(weights));
  }

  void run() {
    Program plain = model_.program;
    Session reference(plain, {.backends = {make_reference_backend({})}});
    const Results wanted = forward(reference);
    for (const HostBuffer& result : wanted) check_finite(result);

    Program optimized = model_.program;
    optimize(optimized);
    const double tight = model_.has_halves ? 0.03 : 2e-4;
    {
      Session session(optimized, {.backends = {make_reference_backend({})}});
      compare("optimised, on the reference", forward(session), wanted, tight);
    }
    const int threads = std::uniform_int_distribution<int>(2, 4)(engine_);
    for (const bool exact : {true, false}) {
      const double allowed = exact ? tight : 0.2;
      double& worst = exact ? counts_.worst_exact : counts_.worst_fast;
      const std::string name = exact ? "cpu exact" : "cpu fast";
      Session one(plain, {.backends = cpu_backends(1, exact)});
      const Results first = forward(one);
      worst = std::max(worst, compare(name + ", as recorded", first, wanted, allowed));
      compare_bits(name + ", run again", forward(one), first);
      Session many(plain, {.backends = cpu_backends(threads, exact)});
      compare_bits(fmt::format("{}, {} threads", name, threads), forward(many), first);

      Session best(optimized, {.backends = cpu_backends(threads, exact)});
      const Results results = forward(best);
      worst = std::max(worst, compare(name + ", optimised", results, wanted, allowed));
      if (!exact) {
        look_at_fallbacks(best);
        check_ways(optimized, best, results, threads);
      }
      compare_bits(name + ", optimised, run again", forward(best), results);
    }
    ++counts_.programs;
  }

 private:
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }

  std::vector<Buffer> inputs(GuardedArrays& arrays) const {
    std::vector<Buffer> result;
    for (const HostBuffer& value : model_.inputs) result.push_back(arrays.copy(value));
    return result;
  }

  Results forward(Session& session) {
    session.bind(weights_);
    return run_bound(session);
  }

  /// Inputs and results end at guard pages; now and then the session makes the results.
  Results run_bound(Session& session) {
    ++counts_.runs;
    GuardedArrays arrays;
    std::vector<Buffer> given = inputs(arrays);
    std::vector<Buffer> outputs;
    if (chance(0.3) || shapes_.empty()) {
      // Handles of our own would make the session copy what it updates.
      for (Buffer& input : given) {
        if (chance(0.5)) input = input.to_host().contiguous().to_device(cpu_device());
      }
      outputs = session.forward(std::move(given));
      shapes_.clear();
      for (const Buffer& output : outputs) shapes_.push_back(output.shape());
    } else {
      for (const Shape& shape : shapes_) outputs.push_back(arrays.room(shape));
      session.forward(std::move(given), outputs);
    }
    Results results;
    for (const Buffer& output : outputs) {
      HostBuffer copy = HostBuffer::zeros(output.shape());
      if (output.shape().bytes() > 0) {
        std::memcpy(copy.view().data, output.host_view().data,
                    static_cast<std::size_t>(output.shape().bytes()));
      }
      results.push_back(std::move(copy));
    }
    return results;
  }

  void check_finite(const HostBuffer& array) {
    if (!is_floating(array.shape().dtype())) return;
    for (std::int64_t i = 0; i < array.shape().elements(); ++i) {
      if (!std::isfinite(at(array, i))) tame_ = false;
    }
  }

  double compare(const std::string& way, const Results& got, const Results& wanted,
                 double allowed) const {
    return tame_ ? largest_error(way, got, wanted, allowed) : 0;
  }

  void look_at_fallbacks(Session& session) {
    if (model_.has_rare_types) return;
    ++counts_.plain;
    std::vector<Shape> shapes;
    for (const HostBuffer& input : model_.inputs) shapes.push_back(input.shape());
    const PlanReport report = session.report(shapes);
    if (report.fallbacks.empty()) return;
    ++counts_.plain_fallbacks;
    for (const auto& fallback : report.fallbacks) {
      fmt::print("  seed {}: {} falls back to {}: {}\n", seed_, fallback.op, fallback.backend,
                 fallback.why);
    }
  }

  /// Other ways to the same bits: text, snapshot, forks, and no merging up to rounding.
  void check_ways(const Program& optimized, Session& best, const Results& results, int threads) {
    const std::vector<BackendPtr> backends = cpu_backends(threads, false);
    if (chance(0.3)) {
      Program parsed = parse(print(optimized));
      parsed.folded = optimized.folded;
      Session session(std::move(parsed), {.backends = backends});
      compare_bits("through text", forward(session), results);
    }
    if (chance(0.2)) {
      const auto path = std::filesystem::temp_directory_path() /
                        fmt::format("tenon_random_program_{}.snapshot", getpid());
      best.save(path);
      Session session = Session::load(path, backends);
      const Results loaded = run_bound(session);
      std::filesystem::remove(path);
      compare_bits("through a snapshot", loaded, results);
    }
    if (chance(0.2)) {
      Session a = best.fork(), b = best.fork();
      std::vector<Results> both(2);
      std::vector<std::string> errors(2);
      std::vector<std::thread> runs;
      for (std::size_t i = 0; i < 2; ++i) {
        runs.emplace_back([&, i] {
          try {
            for (int round = 0; round < 3; ++round) {
              GuardedArrays arrays;
              Results copies;
              const std::vector<Buffer> outputs = (i == 0 ? a : b).forward(inputs(arrays));
              for (const Buffer& output : outputs) copies.push_back(output.to_host().contiguous());
              both[i] = std::move(copies);
            }
          } catch (const std::exception& error) {
            errors[i] = error.what();
          }
        });
      }
      for (std::thread& run : runs) run.join();
      for (std::size_t i = 0; i < 2; ++i) {
        if (!errors[i].empty()) throw Failure{"forks at once: " + errors[i]};
        compare_bits("forks at once", both[i], results);
      }
    }
    if (chance(0.2)) {
      Session session(optimized, {.backends = backends});
      session.set_merge(false);
      compare("not merged", forward(session), results, 0.2);
    }
  }

  const RandomModel& model_;
  std::uint64_t seed_;
  std::mt19937_64 engine_;
  CheckCounts& counts_;
  GuardedArrays arrays_;  // of weights
  std::shared_ptr<const WeightSet> weights_;
  std::vector<Shape> shapes_;  // of results
  bool tame_ = true;           // finite: worth comparing
};

std::map<std::string, Buffer> on_cpu(const std::map<std::string, HostBuffer>& values) {
  std::map<std::string, Buffer> weights;
  for (const auto& [name, value] : values) {
    weights[name] = value.contiguous().to_device(cpu_device());
  }
  return weights;
}

std::vector<Buffer> on_cpu(const std::vector<HostBuffer>& values) {
  std::vector<Buffer> given;
  for (const HostBuffer& value : values)
    given.push_back(value.contiguous().to_device(cpu_device()));
  return given;
}

Results on_host(const std::vector<Buffer>& outputs) {
  Results results;
  for (const Buffer& output : outputs) results.push_back(output.to_host().contiguous());
  return results;
}

/// Copies that the caller makes are no allocations of the library's: where one fails, the try
/// counts as ended well.
template <class T>
T own(const std::function<T()>& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, "", "");
  }
}

/// The whole life of a session.
Results live(const RandomModel& model, const Program& program,
             const std::shared_ptr<const WeightSet>& weights, int threads) {
  auto backends = own<std::vector<BackendPtr>>([] {
    std::vector<BackendPtr> list;
    list.reserve(2);
    return list;
  });
  backends.push_back(make_cpu_backend({.threads = threads}));
  backends.push_back(make_reference_backend({}));
  Session session(own<Program>([&] { return program; }),
                  own<SessionOptions>([&] { return SessionOptions{.backends = backends}; }));
  session.bind(weights);
  const std::vector<Buffer> outputs =
      session.forward(own<std::vector<Buffer>>([&] { return on_cpu(model.inputs); }));
  return own<Results>([&] { return on_host(outputs); });
}

/// One try with a failing allocation. Returns whether that was one too late to matter.
bool try_allocation(const std::function<void()>& call, std::size_t number) {
  MemoryWatch watch;
  watch.fail_at(number, false);
  std::optional<Failure> failure;
  try {
    call();
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_memory) failure = Failure{error.what()};
  } catch (const std::bad_alloc&) {
    failure = Failure{"a raw bad_alloc"};
  } catch (const std::exception& error) {
    failure = Failure{error.what()};
  }
  watch.fail_never();
  if (failure) {
    failure->what = fmt::format("allocation {}: {}", number, failure->what);
    throw std::move(*failure);
  }
  return watch.allocations() <= number;
}

}  // namespace

std::string check_sizes(const SizedModel& model, std::uint64_t seed, CheckCounts& counts) {
  try {
    std::mt19937_64 engine(seed);
    const auto weights = std::make_shared<const WeightSet>(on_cpu(model.weights));
    Program optimized = model.program;
    optimize(optimized);
    const int threads = std::uniform_int_distribution<int>(1, 4)(engine);
    Session reference(model.program, {.backends = {make_reference_backend({})}});
    Session exact(optimized, {.backends = cpu_backends(threads, true)});
    Session fast(optimized, {.backends = cpu_backends(threads, false), .plan_limit = 2});
    for (Session* session : {&reference, &exact, &fast}) session->bind(weights);
    std::map<std::pair<std::int64_t, std::int64_t>, Results> before;
    for (const auto& [batch, length] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {1, 7}, {1, 1}, {2, 3}, {1, 40}, {1, 1}, {0, 4}, {3, 1}, {2, 3}, {1, 7}}) {
      const std::string sizes = fmt::format(" for {} x {}", batch, length);
      const std::vector<HostBuffer> inputs = model.inputs(batch, length);
      const Results wanted = on_host(reference.forward(on_cpu(inputs)));
      const Results tight = on_host(exact.forward(on_cpu(inputs)));
      const Results loose = on_host(fast.forward(on_cpu(inputs)));
      counts.runs += 2;
      counts.worst_exact =
          std::max(counts.worst_exact, largest_error("exact" + sizes, tight, wanted, 2e-4));
      counts.worst_fast =
          std::max(counts.worst_fast, largest_error("fast" + sizes, loose, wanted, 0.2));
      const auto [known, added] = before.emplace(std::pair(batch, length), loose);
      if (!added) compare_bits("again" + sizes, loose, known->second);
    }
    ++counts.programs;
  } catch (const Failure& failure) {
    return failure.what;
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::string check_allocations(const RandomModel& model, std::uint64_t seed, int samples,
                              CheckCounts& counts) {
  try {
    const auto bound = std::make_shared<const WeightSet>(on_cpu(model.weights));
    Program program = model.program;
    optimize(program);
    for (const int threads : {1, 4}) {
      const auto call = [&] { static_cast<void>(live(model, program, bound, threads)); };
      const Results wanted = live(model, program, bound, threads);
      std::size_t count = 0;
      {
        const MemoryWatch watch;
        call();
        count = watch.allocations();
      }
      const std::size_t stride =
          std::max<std::size_t>(1, count / static_cast<std::size_t>(samples));
      for (std::size_t k = seed % stride; k < count; k += stride) {
        ++counts.runs;
        if (try_allocation(call, k)) break;
      }
      const Results again = live(model, program, bound, threads);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (std::memcmp(again[i].bytes(), wanted[i].bytes(),
                        static_cast<std::size_t>(wanted[i].shape().bytes())) != 0) {
          throw Failure{"other results after allocations had failed"};
        }
      }
    }
    ++counts.programs;
  } catch (const Failure& failure) {
    return failure.what;
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::string check_model(const RandomModel& model, std::uint64_t seed, CheckCounts& counts) {
  try {
    Checker(model, seed, counts).run();
  } catch (const Failure& failure) {
    return failure.what;
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace tenon::testing
