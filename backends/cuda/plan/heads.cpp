#include "plan/heads.hpp"

#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"
#include "plan/planners.hpp"

#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/rope.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(heads_into_cache, HeadsIntoCache);

Shape HeadsIntoCache::infer(std::span<const Shape>) const { return steps->queries.output.shape; }

namespace cuda {
namespace {

constexpr std::size_t merged_steps = 4;

template <class Op>
bool is_step_of(const Step& step) {
  return step.kind == Step::Kind::op && step.op.as<Op>() != nullptr && !plan_step(step, nullptr);
}

bool updates_in_place(const Step& step) {
  return is_step_of<CacheUpdate>(step) && step.inputs[0].place == step.output.place &&
         is_real(step.output.shape.dtype());
}

bool overlap_any(std::span<const Operand> operands, const Operand& written) {
  return std::ranges::any_of(
      operands, [&](const Operand& operand) { return lowering::overlap(operand, written); });
}

/// Whether all may run at once, where the rotated keys are nowhere but in their cache.
bool can_run_at_once(const HeadSteps& heads) {
  const Operand &queries = heads.queries.output, &keys = heads.key_cache.output,
                &values = heads.value_cache.output;
  std::vector<Operand> of_keys = heads.keys.inputs, of_values = heads.value_cache.inputs;
  for (std::size_t i = 1; i < heads.key_cache.inputs.size(); ++i) {
    if (i != 2) of_keys.push_back(heads.key_cache.inputs[i]);  // 0: the cache, 2: rotated keys
  }
  const bool is_in_place = heads.queries.inputs[0] == queries;
  if (!is_in_place && overlap_any(heads.queries.inputs, queries)) return false;
  if (overlap_any(of_keys, queries) || overlap_any(of_values, queries)) return false;
  if (overlap_any(heads.queries.inputs, keys) || overlap_any(of_keys, keys)) return false;
  if (overlap_any(of_values, keys) || overlap_any(heads.queries.inputs, values)) return false;
  return !overlap_any(of_keys, values) && !lowering::overlap(keys, queries);
}

/// Kernels count items in 32 bits, and nothing is launched for an output without elements.
bool can_be_counted(const HeadSteps& heads) {
  const auto elements = [](const Operand& operand) { return operand.shape.elements(); };
  const std::int64_t queries = elements(heads.queries.output);
  return queries > 0 &&
         queries + elements(heads.keys.output) + elements(heads.value_cache.inputs[2]) <=
             std::numeric_limits<std::int32_t>::max();
}

/// The four steps from `first` on, where they can be one.
std::optional<HeadSteps> heads_at(std::span<const Step> body, std::size_t first,
                                  std::span<const lowering::WrittenValue> values) {
  if (first + merged_steps > body.size()) return std::nullopt;
  const std::span<const Step> steps = body.subspan(first, merged_steps);
  if (!is_step_of<Rope>(steps[0]) || !is_step_of<Rope>(steps[1])) return std::nullopt;
  if (!updates_in_place(steps[2]) || !updates_in_place(steps[3])) return std::nullopt;
  const lowering::WrittenValue& keys = values[first + 1];
  if (keys.uses.size() != 1 || !keys.is_only_in_uses) return std::nullopt;
  if (keys.uses[0].step != first + 2 || keys.uses[0].input != 2) return std::nullopt;
  HeadSteps heads{steps[0], steps[1], steps[2], steps[3]};
  if (!can_run_at_once(heads) || !can_be_counted(heads)) return std::nullopt;
  return heads;
}

Step merged_step(const HeadSteps& heads) {
  Step whole = heads.queries;
  whole.op = OpInstance(HeadsIntoCache{.steps = &heads});
  for (const Step* step : {&heads.keys, &heads.key_cache, &heads.value_cache}) {
    whole.inputs.insert(whole.inputs.end(), step->inputs.begin(), step->inputs.end());
  }
  return whole;
}

}  // namespace

std::vector<std::unique_ptr<const HeadSteps>> merge_heads(const Lowered& program,
                                                          std::span<const Step> steps,
                                                          std::vector<Step>& own) {
  std::vector<std::unique_ptr<const HeadSteps>> all;
  lowering::for_each_body(program, steps, own,
                          [&](std::vector<Step>& body, std::span<const Operand> leaves) {
                            const auto values = lowering::trace_values(body, leaves);
                            std::vector<Step> merged;
                            for (std::size_t i = 0; i < body.size(); ++i) {
                              std::optional<HeadSteps> heads = heads_at(body, i, values);
                              if (!heads) {
                                merged.push_back(std::move(body[i]));
                                continue;
                              }
                              all.push_back(std::make_unique<const HeadSteps>(std::move(*heads)));
                              merged.push_back(merged_step(*all.back()));
                              i += merged_steps - 1;
                            }
                            body = std::move(merged);
                          });
  return all;
}

}  // namespace cuda
}  // namespace tenon
