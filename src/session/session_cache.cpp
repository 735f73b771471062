
#include <tenon/exe.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <mutex>

namespace tenon::detail {

namespace {
constexpr std::size_t max_sessions = 64;
constexpr std::size_t max_plans = 4;  // of one session: by the inputs that calls give up
}  // namespace

SessionCache::SessionCache(Trace trace, CompileOptions options)
    : trace_(std::move(trace)), options_(std::move(options)) {
  if (options_.backends.empty()) options_.backends = default_backends(options_.backend);
}

CompileOptions on_device(const DevicePtr& device, CompileOptions options) {
  return with_memory_errors("compile", [&] {
    options.results_on_device = true;
    if (!options.backends.empty()) return std::move(options);
    options.backends = device_backends(device, options.backend);
    if (options.cpu_fallback && device != cpu_device()) {
      const std::vector<BackendPtr> others = default_backends(options.backend);
      options.backends.insert(options.backends.end(), others.begin(), others.end());
    }
    return std::move(options);
  });
}

SessionCache::Entry SessionCache::session(std::span<const Shape> inputs) {
  return with_memory_errors("compile", [&] { return find_or_make(inputs); });
}

SessionCache::Entry SessionCache::find_or_make(std::span<const Shape> inputs) {
  const std::scoped_lock lock(mutex_);
  for (auto known = sessions_.begin(); known != sessions_.end(); ++known) {
    if (!std::ranges::equal(known->first, inputs)) continue;
    sessions_.splice(sessions_.begin(), sessions_, known);
    return known->second;
  }
  Traced traced = trace_(inputs);
  if (options_.optimize) optimize(traced.program);
  Entry entry{Session(std::move(traced.program), {.backends = options_.backends,
                                                  .plan_limit = max_plans,
                                                  .forbid_fallback = options_.forbid_fallback,
                                                  .results_on_device = options_.results_on_device}),
              std::move(traced.form)};
  if (sessions_.size() == max_sessions) sessions_.pop_back();
  sessions_.emplace_front(std::vector<Shape>(inputs.begin(), inputs.end()), entry);
  return entry;
}

}  // namespace tenon::detail
