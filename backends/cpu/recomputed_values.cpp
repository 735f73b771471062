#include "recomputed_values.hpp"

#include "live_range_allocator.hpp"
#include "lower/value_uses.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/softmax.hpp>

#include <algorithm>
#include <cstddef>

namespace tenon::cpu {

using namespace lowering;
namespace {

bool is_cheap(const Step& step) {
  if (step.kind != Step::Kind::op || step.output.shape.elements() > max_recomputed_elements)
    return false;
  return step.op.def()->traits.pointwise || step.op.as<RmsNorm>() != nullptr ||
         step.op.as<LayerNorm>() != nullptr || step.op.as<Rope>() != nullptr ||
         step.op.as<Softmax>() != nullptr;
}

/// One body (see for_each_body). Allocates memory from byte `first` on and returns where it ends.
std::int64_t recompute(std::vector<Step>& steps, std::span<const Operand> leaves,
                       std::int64_t first) {
  const std::vector<WrittenValue> values = trace_values(steps, leaves);
  LiveRangeAllocator memory;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Operand& value = steps[i].output;
    if (!is_cheap(steps[i]) || !values[i].is_private || !value.is_contiguous()) continue;
    std::size_t last_use = i;
    for (const WrittenValue::Use& use : values[i].uses) last_use = std::max(last_use, use.step);
    Place place;
    place.kind = Place::Kind::scratch;
    place.offset = first + memory.allocate(value.shape.bytes(), i, last_use);
    value.place = place;
    for (const WrittenValue::Use& use : values[i].uses) {
      steps[use.step].inputs[use.input].place = place;
    }
  }
  return first + memory.peak();
}

}  // namespace

std::int64_t recompute_small_values(const Lowered& program, std::span<const Step> steps,
                                    std::vector<Step>& own) {
  // Values outside of a loop may be live while it runs.
  std::int64_t bytes = 0;
  for_each_body(program, steps, own,
                [&](auto& body, auto leaves) { bytes = recompute(body, leaves, bytes); });
  return bytes;
}

}  // namespace tenon::cpu
