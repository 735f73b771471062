#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/kernel.hpp>
#include <tenon/memory_errors.hpp>

#include <atomic>
#include <mutex>

#include <fmt/format.h>

namespace tenon {
namespace {

struct RegisteredKernel {
  std::string backend;
  KernelPtr kernel;
};

struct Kernels {
  ForkLockedMutex mutex;
  std::vector<RegisteredKernel> entries;
};

constinit std::atomic<bool> any_kernels{false};

Kernels& kernels() {
  return process_wide([] { return Kernels(); });
}

/// Those of a backend for an op, newest first: outside the lock their constraints may be called.
std::vector<KernelPtr> kernels_for(std::string_view backend, const OpDef* op) {
  std::vector<KernelPtr> found;
  Kernels& all = kernels();
  const std::scoped_lock lock(all.mutex);
  for (auto entry = all.entries.rbegin(); entry != all.entries.rend(); ++entry) {
    if (entry->backend == backend && same_op(entry->kernel->op, op)) {
      found.push_back(entry->kernel);
    }
  }
  return found;
}

}  // namespace

void register_kernel(std::string_view backend, KernelDef kernel) {
  if (kernel.op == nullptr || !kernel.run) {
    throw Error(Errc::bad_argument, "register_kernel", "a kernel needs an op and `run`");
  }
  const OpTraits& traits = kernel.op->traits;
  if (traits.view || (traits.updates_input >= 0 && !traits.takes_objects)) {
    throw Error(Errc::unsupported, "register_kernel",
                fmt::format("{} {}: backends have their own ways with those", kernel.op->name,
                            traits.view ? "is a view" : "updates an input in place"));
  }
  with_memory_errors("register_kernel", [&] {
    auto shared = std::make_shared<const KernelDef>(std::move(kernel));
    Kernels& all = kernels();
    const std::scoped_lock lock(all.mutex);
    all.entries.push_back({std::string(backend), std::move(shared)});
    any_kernels.store(true, std::memory_order_release);
  });
}

KernelPtr find_kernel(std::string_view backend, const Step& step, std::optional<std::string>* why) {
  if (step.kind != Step::Kind::op || !any_kernels.load(std::memory_order_acquire)) return nullptr;
  bool is_newest = true;
  for (KernelPtr& kernel : kernels_for(backend, step.op.def())) {
    std::optional<std::string> refusal;
    if (kernel->constraint) refusal = kernel->constraint(step);
    if (!refusal) return std::move(kernel);
    if (is_newest && why != nullptr) *why = std::move(refusal);
    is_newest = false;
  }
  return nullptr;
}

}  // namespace tenon
