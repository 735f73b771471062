#include "results.hpp"
#include "support/memory_watch.hpp"
#include "ways.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr std::size_t samples = 40;  // of a program, with each number of threads

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

/// A call that gives its inputs up, or that keeps handles of them.
std::vector<Buffer> forward_or_fail(Session& session, const RandomModel& model, bool keeps) {
  auto inputs = own<std::vector<Buffer>>([&] { return on_cpu(model.inputs); });
  const auto kept =
      own<std::vector<Buffer>>([&] { return keeps ? inputs : std::vector<Buffer>(); });
  const auto before = own<Untouched>([&] { return Untouched(inputs); });
  try {
    return session.forward(std::move(inputs));
  } catch (const Error& error) {
    before.check("a run without memory", inputs, keeps ? std::set<std::size_t>() : model.states,
                 keeps ? std::nullopt : std::optional(error.code()));
    throw;
  }
}

/// The whole life of a session.
Results live(const RandomModel& model, const Program& program,
             const std::shared_ptr<const WeightSet>& weights, int threads, bool keeps) {
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
  const std::vector<Buffer> outputs = forward_or_fail(session, model, keeps);
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

void check_allocations(const RandomModelPlan& plan, CheckCounts& counts) {
  const RandomModel model = make_random_model(plan);
  const auto bound = std::make_shared<const WeightSet>(on_cpu(model.weights));
  Program program = model.program;
  optimize(program);
  for (const int threads : {1, 4}) {
    const bool keeps = threads == 4;
    const auto run = [&] { return live(model, program, bound, threads, keeps); };
    const auto call = [&] { static_cast<void>(run()); };
    const Results wanted = run();
    std::size_t count = 0;
    {
      const MemoryWatch watch;
      call();
      count = watch.allocations();
    }
    const std::size_t stride = std::max<std::size_t>(1, count / samples);
    for (std::size_t k = plan.seed % stride; k < count; k += stride) {
      ++counts.runs;
      if (try_allocation(call, k)) break;
    }
    compare_bits("after allocations had failed", run(), wanted);
  }
}

}  // namespace tenon::testing
