#include "merged_linear.hpp"

#include "../task.hpp"
#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(merged_linear, MergedLinear);
TENON_DEFINE_OP(linear_argmax, LinearArgmax);

Shape MergedLinear::infer(std::span<const Shape> in) const { return linear.infer(in); }

Shape LinearArgmax::infer(std::span<const Shape> in) const {
  const Shape sums = linear.infer(in);
  const Shape looked_at = sums.with_dim(sums.rank() - 1, columns);
  return argmax.infer({&looked_at, 1});
}

namespace cpu {

using namespace lowering;
namespace {

/// Whether the merged step's output overlaps an input, which other threads may still read. What the
/// layer overwrites itself, it has read element by element.
bool overwrites_input(const Step& linear, const Operand& output) {
  if (output == linear.output) return false;
  return std::ranges::any_of(linear.inputs, [&](const Operand& input) {
    return is_memory(input) && overlap(input, output);
  });
}

/// The layer merged with `next`, if that is an activation of its result.
std::optional<OpInstance> with_activation(const Step& step, const Linear& linear,
                                          const Step& next) {
  const std::optional<UnaryCall> activation = unary_of(next);
  const bool fits = activation && next.inputs[0] == step.output &&
                    next.output.shape == step.output.shape &&
                    next.output.shape.dtype() == DType::f32 && next.output.is_contiguous() &&
                    !overwrites_input(step, next.output);
  if (!fits) return std::nullopt;
  return OpInstance(MergedLinear{linear, *activation});
}

/// The same for an argmax along rows. Its result is written last, so that it may overlap an input.
std::optional<OpInstance> with_argmax(const Step& step, const Linear& linear, const Step& next) {
  const auto* argmax = next.kind == Step::Kind::op ? next.op.as<Argmax>() : nullptr;
  const Shape& sums = step.output.shape;
  const bool fits = argmax != nullptr && argmax->axis == sums.rank() - 1 &&
                    row_count(sums) <= LinearArgmax::max_rows && next.output.is_contiguous();
  if (!fits) return std::nullopt;
  return OpInstance(LinearArgmax{linear, *argmax, row_size(next.inputs[0].shape)});
}

void merge(std::vector<Step>& steps, std::span<const Operand> leaves) {
  const std::vector<WrittenValue> values = trace_values(steps, leaves, ReadAs::first_columns);
  std::vector<bool> gone(steps.size(), false);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto* linear = steps[i].kind == Step::Kind::op ? steps[i].op.as<Linear>() : nullptr;
    const WrittenValue& value = values[i];
    if (linear == nullptr || !value.is_only_in_uses || value.uses.size() != 1) continue;
    Step& next = steps[i + 1];
    if (value.uses[0].step != i + 1) continue;
    std::optional<OpInstance> merged = with_activation(steps[i], *linear, next);
    if (!merged) merged = with_argmax(steps[i], *linear, next);
    if (!merged) continue;
    next.op = *std::move(merged);
    next.inputs = std::move(steps[i].inputs);
    gone[i] = true;
  }
  std::size_t i = 0;
  std::erase_if(steps, [&](const Step&) { return gone[i++]; });
}

}  // namespace

void merge_linears(const Lowered& program, std::span<const Step> steps, std::vector<Step>& own) {
  for_each_body(program, steps, own, merge);
}

}  // namespace cpu
}  // namespace tenon
