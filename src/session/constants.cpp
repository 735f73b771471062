#include "session/constants.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tenon::sessions {
namespace {

void check_type(const Program& program, const ConstantSlot& slot, std::string_view source,
                const Shape& found) {
  if (found == slot.shape) return;
  throw Error(Errc::shape_mismatch, program.name,
              fmt::format("constant '{}' is {}, its {} {}", slot.name, to_string(slot.shape),
                          source, to_string(found)));
}

/// The constants that some steps of a program read, in all iterations of the loops around them.
class ConstantsOfSteps {
 public:
  ConstantsOfSteps(const Lowered& program, std::span<const Step> wanted) : wanted_(wanted) {
    walk(program.steps, {}, false);
  }
  std::vector<std::size_t> list() const { return {found_.begin(), found_.end()}; }

 private:
  bool is_wanted(const Step& step) const {
    const std::less<> before;
    return !before(&step, wanted_.data()) && before(&step, wanted_.data() + wanted_.size());
  }
  void walk(std::span<const Step> steps, LoopSteps counts, bool all) {
    for (const Step& step : steps) {
      const bool inside = all || is_wanted(step);
      if (step.kind == Step::Kind::loop) {
        counts[static_cast<std::size_t>(step.depth)] = step.count;
        walk(step.body, counts, inside);
      } else if (inside) {
        for (const Operand& input : step.inputs) add(input.place, counts, {}, 0);
      }
    }
  }
  void add(const Place& place, const LoopSteps& counts, LoopSteps at, std::size_t depth) {
    if (place.kind != Place::Kind::constant) return;
    if (depth == max_loop_depth) {
      found_.insert(place.entry_in(at));
      return;
    }
    const std::int64_t count = place.entry_step[depth] == 0 ? 1 : counts[depth];
    for (at[depth] = 0; at[depth] < count; ++at[depth]) add(place, counts, at, depth + 1);
  }

  std::span<const Step> wanted_;
  std::set<std::size_t> found_;
};

}  // namespace

ConstantTypes constant_types(const Program& program, const WeightSet* weights) {
  return [&program, weights](const std::string& name) -> std::optional<Shape> {
    if (const auto folded = program.folded.find(name); folded != program.folded.end()) {
      return folded->second.shape();
    }
    const Buffer* weight = weights != nullptr ? weights->find(name) : nullptr;
    return weight != nullptr ? std::optional(weight->shape()) : std::nullopt;
  };
}

Buffer constant_array(const Program& program, const WeightSet& weights, const ConstantSlot& slot,
                      bool on_host) {
  if (const auto folded = program.folded.find(slot.name); folded != program.folded.end()) {
    check_type(program, slot, "folded value", folded->second.shape());
    return folded->second.to_device(cpu_device());
  }
  const Buffer* weight = weights.find(slot.name);
  if (weight == nullptr) {
    throw Error(Errc::bad_reference, program.name,
                fmt::format("no weight is bound to constant '{}'", slot.name));
  }
  check_type(program, slot, "weight", weight->shape());
  return on_host && weight->has_data() ? weights.on_host(slot.name) : *weight;
}

ConstantUse full_use(std::optional<ConstantUse> use, std::span<const Step> steps,
                     const Lowered& program) {
  if (use) return std::move(*use);
  return {ConstantsOfSteps(program, steps).list(), {}};
}

std::string MissingConstant::use() const {
  return key.empty() ? "reads it" : fmt::format("has not packed it as '{}'", key);
}

std::optional<MissingConstant> missing_constant(const Plan& plan, const WeightSet& weights) {
  const auto lacks_data = [&](std::size_t constant) {
    const ConstantSlot& slot = plan.lowered.constants[constant];
    const Buffer* const weight = slot.folded ? nullptr : weights.find(slot.name);
    return weight != nullptr && !weight->has_data();
  };
  bool any = false;
  for (std::size_t i = 0; i < plan.lowered.constants.size(); ++i) any = any || lacks_data(i);
  if (!any) return std::nullopt;
  std::optional<MissingConstant> missing;
  for_each_part(plan.stages, [&](const Stage& stage) {
    const ConstantUse use = full_use(stage.partition->constant_use(), stage.steps, plan.lowered);
    const auto note = [&](std::size_t constant, const std::string& key) {
      if (missing || !lacks_data(constant)) return;
      missing = {stage.backend, plan.lowered.constants[constant].name, key};
    };
    for (const std::size_t constant : use.read) note(constant, "");
    for (const ConstantUse::Kept& kept : use.kept) {
      if (!weights.prepared().kept(kept.key)) note(kept.constant, kept.key);
    }
  });
  return missing;
}

std::vector<PlanReport::Transfer> weight_copies(const Plan& plan, const WeightSet& weights) {
  std::vector<PlanReport::Transfer> copies;
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < plan.lowered.constants.size(); ++i) {
    const ConstantSlot& slot = plan.lowered.constants[i];
    const Buffer* weight =
        slot.folded || !plan.host_constants[i] ? nullptr : weights.find(slot.name);
    if (weight == nullptr || !weight->has_data() || weight->data().has_cptr()) continue;
    if (!seen.insert(slot.name).second) continue;
    copies.push_back({slot.name, weight->region().name(), cpu_device()->default_mem_region().name(),
                      weight->shape().bytes()});
  }
  return copies;
}

}  // namespace tenon::sessions
