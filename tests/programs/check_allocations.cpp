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

/// A call whose inputs, moved in, are there again if it fails.
std::vector<Buffer> forward_or_fail(Session& session, std::vector<Buffer> inputs) {
  const std::size_t count = inputs.size();
  try {
    return session.forward(std::move(inputs));
  } catch (const Error&) {
    const bool all_there = inputs.size() == count && std::ranges::all_of(inputs, &Buffer::has_data);
    if (!all_there) throw Failure{"inputs that were moved in are lost"};
    throw;
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
      forward_or_fail(session, own<std::vector<Buffer>>([&] { return on_cpu(model.inputs); }));
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
    const auto call = [&] { static_cast<void>(live(model, program, bound, threads)); };
    const Results wanted = live(model, program, bound, threads);
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
    compare_bits("after allocations had failed", live(model, program, bound, threads), wanted);
  }
}

}  // namespace tenon::testing
