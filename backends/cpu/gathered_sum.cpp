#include "gathered_sum.hpp"

#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(gathered_sum, GatheredSum);

Shape GatheredSum::infer(std::span<const Shape> in) const {
  const Shape slices = gather.infer(in);
  return sum.infer({&slices, 1});
}

namespace cpu {

using namespace lowering;
namespace {

/// Whether every slice of the operand along its first axis is dense.
bool has_dense_slices(const Operand& x) {
  std::int64_t step = block_bytes(x.shape.dtype());
  for (int i = x.shape.rank() - 1; i > 0; --i) {
    if (x.shape[i] != 1 && x.strides[static_cast<std::size_t>(i)] != step) return false;
    step *= x.shape[i];
  }
  return true;
}

/// The gather merged with `next`, if that folds the last axis of the index alone.
std::optional<GatheredSum> with_sum(const Step& step, const Gather& gather, const Step& next) {
  if (next.kind != Step::Kind::op) return std::nullopt;
  const auto* sum = next.op.as<Sum>();
  const auto* mean = next.op.as<Mean>();
  if (sum == nullptr && mean == nullptr) return std::nullopt;
  const IntList& axes = sum != nullptr ? sum->axes : mean->axes;
  const DType dtype = step.output.shape.dtype();
  const Shape& index = step.inputs[1].shape;
  const int last = index.rank() - 1;
  // Threads share bags: a single one would be summed by one of them.
  if (last < 1 || (index[last] > 0 && index.elements() == index[last])) return std::nullopt;
  const bool fits = gather.axis == 0 && axes.size() == 1 && axes[0] == last &&
                    (dtype == DType::f32 || dtype == DType::f64) &&
                    has_dense_slices(step.inputs[0]) && next.output.is_contiguous() &&
                    std::ranges::none_of(step.inputs, [&](const Operand& input) {
                      return is_memory(input) && overlap(input, next.output);
                    });
  if (!fits) return std::nullopt;
  const Sum folded = sum != nullptr ? *sum : Sum{{mean->axes, mean->keep_dims}};
  return GatheredSum{gather, folded, mean != nullptr};
}

/// Whether step i is a gather before a fold.
bool may_merge(std::span<const Step> steps, std::size_t i) {
  const auto is_op = [&](std::size_t step) { return steps[step].kind == Step::Kind::op; };
  return i + 1 < steps.size() && is_op(i) && is_op(i + 1) && steps[i].op.as<Gather>() != nullptr &&
         (steps[i + 1].op.as<Sum>() != nullptr || steps[i + 1].op.as<Mean>() != nullptr);
}

void merge(std::vector<Step>& steps, std::span<const Operand> leaves) {
  std::size_t first = 0;
  while (first < steps.size() && !may_merge(steps, first)) ++first;
  if (first == steps.size()) return;
  const std::vector<WrittenValue> values = trace_values(steps, leaves);
  std::vector<bool> gone(steps.size(), false);
  for (std::size_t i = first; i < steps.size(); ++i) {
    const WrittenValue& value = values[i];
    if (!may_merge(steps, i) || !value.is_only_in_uses || value.uses.size() != 1) continue;
    Step& next = steps[i + 1];
    if (value.uses[0].step != i + 1) continue;
    const std::optional<GatheredSum> merged = with_sum(steps[i], *steps[i].op.as<Gather>(), next);
    if (!merged) continue;
    next.op = OpInstance(*merged);
    next.inputs = std::move(steps[i].inputs);
    gone[i] = true;
  }
  std::size_t i = 0;
  std::erase_if(steps, [&](const Step&) { return gone[i++]; });
}

}  // namespace

void merge_gathered_sums(const Lowered& program, std::span<const Step> steps,
                         std::vector<Step>& own) {
  for_each_body(program, steps, own, merge);
}

}  // namespace cpu
}  // namespace tenon
