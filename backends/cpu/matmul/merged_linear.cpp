#include "merged_linear.hpp"

#include "../touch.hpp"
#include "../value_uses.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(merged_linear, MergedLinear);

Shape MergedLinear::infer(std::span<const Shape> in) const { return linear.infer(in); }

namespace cpu {
namespace {

/// Whether other threads may still read what the merged step writes.
bool overwrites_input(const Step& linear, const Operand& output) {
  return std::ranges::any_of(linear.inputs, [&](const Operand& input) {
    return is_memory(input) && overlap(input, output);
  });
}

void merge(std::vector<Step>& steps, std::span<const Operand> leaves) {
  const std::vector<WrittenValue> values = trace_values(steps, leaves);
  std::vector<bool> gone(steps.size(), false);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto* linear = steps[i].kind == Step::Kind::op ? steps[i].op.as<Linear>() : nullptr;
    const WrittenValue& value = values[i];
    if (linear == nullptr || !value.is_private || value.uses.size() != 1) continue;
    Step& next = steps[i + 1];
    const std::optional<UnaryCall> activation = unary_of(next);
    const bool fits = activation && value.uses[0].step == i + 1 &&
                      next.output.shape == steps[i].output.shape &&
                      next.output.shape.dtype() == DType::f32 && next.output.is_contiguous() &&
                      !overwrites_input(steps[i], next.output);
    if (!fits) continue;
    next.op = OpInstance(MergedLinear{*linear, *activation});
    next.inputs = std::move(steps[i].inputs);
    gone[i] = true;
  }
  std::size_t i = 0;
  std::erase_if(steps, [&](const Step&) { return gone[i++]; });
}

}  // namespace

void merge_linears(const Lowered& program, std::span<const Step> steps, std::vector<Step>& own) {
  for_each_stretch(program, steps, own, merge);
}

}  // namespace cpu
}  // namespace tenon
