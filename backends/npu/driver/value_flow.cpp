#include "value_flow.hpp"

namespace tenon::npu {
namespace {

bool touches(const Operand& a, const Operand& b) {
  return same_storage(a.place, b.place) && byte_range(a).overlaps(byte_range(b));
}

bool holds(const Operand& outer, const Operand& inner) {
  const ByteRange a = byte_range(outer), b = byte_range(inner);
  return a.begin <= b.begin && b.end <= a.end;
}

}  // namespace

ValueFlow value_flow(const Lowered& program, std::span<const Step> steps) {
  ValueFlow flow;
  flow.inputs.resize(steps.size());
  flow.uses.assign(steps.size(), 0);
  flow.leaves.assign(steps.size(), false);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const Operand& input : steps[i].inputs) {
      Origin origin;
      for (std::size_t j = i; j-- > 0;) {
        if (!touches(steps[j].output, input)) continue;
        if (origin.step == no_step && !origin.mixed && holds(steps[j].output, input)) {
          origin.step = static_cast<int>(j);
          ++flow.uses[j];
          break;
        }
        // Parts of several results: each has to be in memory.
        origin.mixed = true;
        flow.leaves[j] = true;
        if (holds(steps[j].output, input)) break;
      }
      flow.inputs[i].push_back(origin);
    }
  }
  for (const Operand& write : edges(program, steps).writes) {
    for (std::size_t j = steps.size(); j-- > 0;) {
      if (!touches(steps[j].output, write)) continue;
      flow.leaves[j] = true;
      if (holds(steps[j].output, write)) break;
    }
  }
  return flow;
}

OuterValue outer_value(const Lowered& program, std::span<const Step> steps,
                       const Operand& operand) {
  const Step* const end = steps.data();
  for (std::size_t j = program.steps.size(); j-- > 0;) {
    const Step& step = program.steps[j];
    if (&step >= end || step.kind == Step::Kind::loop) continue;
    if (!touches(step.output, operand)) continue;
    return holds(step.output, operand) ? OuterValue{step.value, step.output} : OuterValue{};
  }
  if (operand.place.kind != Place::Kind::input) return {};
  const InputSlot& input = program.inputs[operand.place.index];
  OuterValue value{input.name, {{Place::Kind::input, operand.place.index}, input.shape, {}}};
  value.operand.strides = dense_strides(input.shape);
  return value;
}

}  // namespace tenon::npu
