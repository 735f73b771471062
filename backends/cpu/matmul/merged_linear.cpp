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

void add_reads(const Step& step, std::vector<Operand>& reads) {
  reads.insert(reads.end(), step.inputs.begin(), step.inputs.end());
  for (const Step& inner : step.body) add_reads(inner, reads);
}

/// What an iteration reads of an earlier one, or of what came before the loop.
void add_carried(std::span<const Step> body, std::vector<Operand>& reads) {
  std::vector<Operand> live;
  for (const Step& step : body) {
    if (step.kind == Step::Kind::loop) {
      add_reads(step, reads);
      continue;
    }
    for (const Operand& input : step.inputs) {
      if (std::ranges::find(live, input) == live.end()) reads.push_back(input);
    }
    std::erase_if(live, [&](const Operand& value) { return overlap(value, step.output); });
    live.push_back(step.output);
  }
}

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

void merge_linears(std::vector<Step>& steps, std::span<const Operand> leaves) {
  std::vector<Operand> read_later(leaves.begin(), leaves.end());
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (steps[i].kind == Step::Kind::loop) {
      std::vector<Operand> read = read_later;
      add_carried(steps[i].body, read);
      merge_linears(steps[i].body, read);
    }
    add_reads(steps[i], read_later);
  }
  merge(steps, leaves);
}

}  // namespace cpu
}  // namespace tenon
