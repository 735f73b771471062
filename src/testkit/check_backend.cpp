#include "backend_trial.hpp"

#include <tenon/error.hpp>

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace tenon::testkit {
namespace {

std::uint64_t used_bytes(const Backend& backend) { return backend.region().usage().used_bytes; }

}  // namespace

BackendCheck check_backend(const BackendPtr& backend, const BackendCheckOptions& options) {
  if (backend == nullptr) fail(Errc::bad_argument, "check_backend", "no backend: null");
  if (!std::isfinite(options.low) || !std::isfinite(options.high) || options.low >= options.high) {
    fail(Errc::bad_argument, "check_backend",
         fmt::format("inputs in [{}, {})", options.low, options.high));
  }
  BackendTrial trial(backend, options);
  if (backend->name().empty()) trial.add("name()", "is empty: reports cannot tell who runs what");
  const bool has_memory = trial.guarded("region()", "region()", [&] { backend->region(); });
  if (!has_memory) return std::move(trial.result);
  if (!backend->region().is_host()) {
    trial.guarded("memory", "reading and writing", [&] { check_backend_memory(trial); });
  }
  check_backend_ops(trial);
  check_backend_models(trial);
  if (backend->region().is_host()) return std::move(trial.result);

  // Whatever it keeps of a program or of weights is there by now.
  const std::uint64_t before = used_bytes(*backend);
  check_backend_models(trial);
  const std::uint64_t after = used_bytes(*backend);
  if (after > before) {
    trial.add("memory",
              fmt::format("{} bytes in use after one round of the models and {} after two, "
                          "with no session left: it keeps {} bytes of each",
                          before, after, after - before));
  }
  return std::move(trial.result);
}

}  // namespace tenon::testkit
