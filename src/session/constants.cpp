#include "session/constants.hpp"

#include "base/suggestion.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/object.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace

HostBuffer stored(const Buffer& weight) {
  return is_object(weight.shape().dtype()) ? save_object(weight) : weight.to_host();
}

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
    std::vector<std::string_view> names;
    for (const auto& [name, bound] : weights.all()) names.push_back(name);
    if (slot.name.starts_with("folded:")) {
      throw Error(Errc::bad_reference, program.name,
                  fmt::format("the array '{}' is missing: it was a program's own, and a program's "
                              "text has no arrays; save_network() and `tenon graph --save` keep it",
                              slot.name));
    }
    throw Error(
        Errc::bad_reference, program.name,
        fmt::format("no weight is bound to constant '{}'{}", slot.name,
                    names.empty() ? ": bind() was given none" : suggestion(slot.name, names)));
  }
  if (is_object(slot.shape.dtype()) && !is_object(weight->shape().dtype())) {
    return weights.as_object(slot.name, slot.shape.dtype());
  }
  check_type(program, slot, "weight", weight->shape());
  return on_host && weight->has_data() ? weights.on_host(slot.name) : *weight;
}

ConstantUse full_use(std::optional<ConstantUse> use, std::span<const Step> steps,
                     const Lowered& program) {
  if (use) return std::move(*use);
  return {constants_read(program, steps), {}};
}

std::vector<bool> constants_needed(const Plan& plan, const PreparedCache& prepared) {
  std::vector<bool> needed = constants_kept(plan);
  for_each_part(plan.stages, [&](const Stage& stage) {
    const ConstantUse use = full_use(stage.partition->constant_use(), stage.steps, plan.lowered);
    for (const ConstantUse::Kept& kept : use.kept) {
      if (!prepared.kept(kept.key)) needed[kept.constant] = true;
    }
  });
  return needed;
}

std::vector<bool> constants_kept(const Plan& plan) {
  std::vector<bool> marks(plan.lowered.constants.size());
  for_each_part(plan.stages, [&](const Stage& stage) {
    const ConstantUse use = full_use(stage.partition->constant_use(), stage.steps, plan.lowered);
    for (const std::size_t constant : use.read) marks[constant] = true;
  });
  return marks;
}

std::vector<std::size_t> sources_of(const Lowered& constant_part, std::size_t output) {
  const Lowered part = part_for(constant_part, {&output, 1});
  return constants_read(part, part.steps);
}

std::string MissingConstant::use() const {
  return key.empty() ? "reads it" : fmt::format("has not packed it as '{}'", key);
}

std::optional<MissingConstant> missing_constant(const Plan& plan, const WeightSet& weights) {
  const auto lacks_data = [&](const ConstantSlot& slot) {
    const Buffer* const weight = slot.folded ? nullptr : weights.find(slot.name);
    return weight != nullptr && !weight->has_data();
  };
  const Lowered* const part = plan.lowered.constant_part.get();
  if (std::ranges::none_of(plan.lowered.constants, lacks_data) &&
      (part == nullptr || std::ranges::none_of(part->constants, lacks_data))) {
    return std::nullopt;
  }
  // By constant: the weight without data that it is or that it is computed from; else null.
  std::vector<const std::string*> lacking(plan.lowered.constants.size(), nullptr);
  for (std::size_t i = 0; i < lacking.size(); ++i) {
    const ConstantSlot& slot = plan.lowered.constants[i];
    if (!slot.computed) {
      if (lacks_data(slot)) lacking[i] = &slot.name;
      continue;
    }
    for (const std::size_t source : sources_of(*part, *slot.computed)) {
      if (lacks_data(part->constants[source])) lacking[i] = &part->constants[source].name;
    }
  }
  std::optional<MissingConstant> missing;
  for_each_part(plan.stages, [&](const Stage& stage) {
    const ConstantUse use = full_use(stage.partition->constant_use(), stage.steps, plan.lowered);
    const auto note = [&](std::size_t constant, const std::string& key) {
      if (missing || lacking[constant] == nullptr) return;
      missing = {stage.backend, *lacking[constant], key};
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
  const auto note = [&](const ConstantSlot& slot) {
    const Buffer* weight = slot.folded || slot.computed ? nullptr : weights.find(slot.name);
    if (weight == nullptr || !weight->has_data() || weight->data().has_cptr()) return;
    if (!seen.insert(slot.name).second) return;
    copies.push_back({slot.name, weight->region().name(), cpu_device()->default_mem_region().name(),
                      weight->shape().bytes()});
  };
  for (std::size_t i = 0; i < plan.lowered.constants.size(); ++i) {
    if (plan.host_constants[i]) note(plan.lowered.constants[i]);
  }
  if (plan.lowered.constant_part) {
    std::ranges::for_each(plan.lowered.constant_part->constants, note);
  }
  return copies;
}

}  // namespace tenon::sessions
