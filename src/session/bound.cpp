// A session's plans bound to weights.
#include "base/digest.hpp"
#include "lower/constant_paths.hpp"
#include "session/constants.hpp"
#include "session/run.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace tenon {

using namespace sessions;

namespace {

std::string content_digest(const HostBuffer& array) {
  return digest_of(array.bytes(), static_cast<std::size_t>(array.shape().bytes()));
}

}  // namespace

std::shared_ptr<const BoundPlan> Session::Bound::find(const Plan& plan) {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(plans_, [&](const auto& p) { return p->plan.get() == &plan; });
  return found == plans_.end() ? nullptr : *found;
}

std::vector<std::shared_ptr<const Buffer>> Session::Bound::computed_constants(const Shared& shared,
                                                                              const Plan& plan) {
  const std::vector<ConstantSlot>& slots = plan.lowered.constants;
  std::vector<std::shared_ptr<const Buffer>> arrays(slots.size());
  if (!plan.lowered.constant_part) return arrays;
  const std::vector<bool> needed = constants_needed(plan, weights->prepared());
  std::vector<std::size_t> made, outputs;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].computed || !needed[i]) continue;
    arrays[i] = slots[i].folded ? own_computed(slots[i].name) : weights->computed(slots[i].name);
    if (arrays[i]) continue;
    made.push_back(i);
    outputs.push_back(*slots[i].computed);
  }
  if (made.empty()) return arrays;
  const std::vector<Buffer> results =
      compute(shared, part_for(*plan.lowered.constant_part, outputs));
  // Outputs keep their order, constants have none.
  std::ranges::sort(outputs);
  for (const std::size_t i : made) {
    const auto at = std::ranges::lower_bound(outputs, *slots[i].computed) - outputs.begin();
    arrays[i] = std::make_shared<const Buffer>(results[static_cast<std::size_t>(at)]);
    if (slots[i].folded) {
      own_computed_.insert_or_assign(slots[i].name, arrays[i]);
    } else {
      weights->keep_computed(slots[i].name, arrays[i]);
    }
  }
  return arrays;
}

std::shared_ptr<const Buffer> Session::Bound::own_computed(const std::string& name) const {
  const auto found = own_computed_.find(name);
  return found == own_computed_.end() ? nullptr : found->second.lock();
}

void Session::Bound::forget_unused() {
  std::erase_if(own_computed_, [&](const auto& entry) {
    if (!entry.second.expired()) return false;
    own_keys_.erase(entry.first);
    return true;
  });
}

const std::string& Session::Bound::key_of(const ConstantSlot& slot, const Buffer& array) {
  if (!slot.folded) return slot.name;
  std::string& key = own_keys_[slot.name];
  if (key.empty()) key = fmt::format("{} {}", slot.name, content_digest(array.to_host()));
  return key;
}

BoundConstants Session::Bound::constants_of(const Lowered& lowered, std::span<const Buffer> arrays,
                                            PreparedCache& prepared) {
  return {arrays, prepared, [this, &lowered, arrays](std::size_t constant) -> const std::string& {
            return key_of(lowered.constants[constant], arrays[constant]);
          }};
}

std::vector<Buffer> Session::Bound::compute(const Shared& shared, Lowered part) {
  auto plan = std::make_shared<Plan>();
  plan->merged = false;  // so that numbers are those of runs that are watched, too
  plan->lowered = std::move(part);
  const std::vector<BackendPtr> backends = shared.constant_backends(plan->lowered.steps);
  partition(
      *plan, backends, [&](const Step& step) { return first_that_takes(backends, step); },
      [&](std::size_t backend, const Lowered& lowered, std::span<const Step> together,
          std::span<const Step> steps) {
        return compile_stage(*backends[backend], lowered, together, steps);
      });
  const auto bound = std::make_shared<BoundPlan>();
  bound->constants.resize(plan->lowered.constants.size());
  bound->addresses.resize(plan->lowered.constants.size(), nullptr);
  for (const std::size_t i : constants_read(plan->lowered, plan->lowered.steps)) {
    Buffer array = constant_array(shared.program, *weights, plan->lowered.constants[i], false);
    if (plan->host_constants[i]) {
      if (!array.data().has_cptr()) array = array.to(cpu_device()->default_mem_region());
      bound->addresses[i] = array.host_view().data;
    }
    bound->constants[i] = std::move(array);
  }
  PreparedCache prepared;
  bound->stages =
      bind_stages(plan->stages, constants_of(plan->lowered, bound->constants, prepared));
  bound->plan = std::move(plan);
  State state;
  std::vector<Buffer> inputs;
  Run run(bound, shared, state, inputs, {}, {});
  run.run();
  return std::move(run).results();
}

std::shared_ptr<const BoundPlan> Session::Bound::bind(const Shared& shared,
                                                      std::shared_ptr<const Plan> plan) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(plans_, [&](const auto& p) { return p->plan == plan; });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return plans_.front();
  }
  auto bound = std::make_shared<BoundPlan>();
  if (const auto missing = missing_constant(*plan, *weights)) {
    throw Error(Errc::call_order, shared.program.name,
                fmt::format("weight '{}' has no data, and {} {}", missing->weight,
                            shared.backends[missing->backend]->name(), missing->use()));
  }
  const auto computed = computed_constants(shared, *plan);
  for (std::size_t i = 0; i < plan->lowered.constants.size(); ++i) {
    const ConstantSlot& slot = plan->lowered.constants[i];
    const bool on_host = plan->host_constants[i];
    const Buffer& array = bound->constants.emplace_back(
        !slot.computed ? constant_array(shared.program, *weights, slot, on_host)
        : computed[i]  ? *computed[i]
                       : Buffer());
    const bool is_read = on_host && array.has_data();
    bound->addresses.push_back(is_read ? array.host_view().data : nullptr);
  }
  bound->stages =
      bind_stages(plan->stages, constants_of(plan->lowered, bound->constants, weights->prepared()));
  weights->prepared().save();
  if (plan->lowered.constant_part) {
    const std::vector<bool> kept = constants_kept(*plan);
    for (std::size_t i = 0; i < computed.size(); ++i) {
      if (!computed[i]) continue;
      if (kept[i]) {
        bound->computed.push_back(computed[i]);
      } else {
        bound->constants[i] = Buffer();
        bound->addresses[i] = nullptr;
      }
    }
  }
  bound->plan = std::move(plan);
  plans_.push_front(bound);
  const auto plan_in = [](const auto& one) -> const Plan& { return *one->plan; };
  if (drop_oldest_plans(plans_, shared.plan_limit, plan_in)) forget_unused();
  return bound;
}

}  // namespace tenon
