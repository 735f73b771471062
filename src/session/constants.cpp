#include "session/constants.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

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
  if (on_host) return weights.on_host(slot.name);
  static_cast<void>(weight->data());  // throws without data
  return *weight;
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
