#include "results.hpp"
#include "ways.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon::testing {

void check_sizes(const RandomModelPlan& plan, CheckCounts& counts) {
  const SizedModel model = make_sized_model(plan);
  std::mt19937_64 engine(plan.seed);
  const auto weights = std::make_shared<const WeightSet>(on_cpu(model.weights));
  Program optimized = model.program;
  optimize(optimized);
  const int threads = std::uniform_int_distribution<int>(1, 4)(engine);
  Session reference(model.program, {.backends = {make_reference_backend({})}});
  Session exact(optimized, {.backends = cpu_backends(threads, true)});
  Session fast(optimized, {.backends = cpu_backends(threads, false), .plan_limit = 2});
  for (Session* session : {&reference, &exact, &fast}) session->bind(weights);
  std::map<SizedModel::Sizes, Results> before;
  for (const auto& sizes : SizedModel::some_sizes()) {
    const std::string what = fmt::format(" for {} x {}", sizes.batch, sizes.length);
    const Results inputs = model.inputs(sizes);
    const Results wanted = on_host(reference.forward(on_cpu(inputs)));
    const Results tight = on_host(exact.forward(on_cpu(inputs)));
    const Results loose = on_host(fast.forward(on_cpu(inputs)));
    counts.runs += 2;
    counts.worst_exact =
        std::max(counts.worst_exact, largest_error("exact" + what, tight, wanted, 2e-4));
    counts.worst_fast =
        std::max(counts.worst_fast, largest_error("fast" + what, loose, wanted, 0.2));
    const auto [known, added] = before.emplace(sizes, loose);
    if (!added) compare_bits("again" + what, loose, known->second);
  }
}

}  // namespace tenon::testing
