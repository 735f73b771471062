#include "own_values.hpp"

#include "value_uses.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/softmax.hpp>

namespace tenon::cpu {
namespace {

/// Computed within about half a microsecond, which is what a barrier costs.
constexpr std::int64_t most_elements = 4096;
constexpr std::int64_t alignment = 64;

bool is_cheap(const Step& step) {
  if (step.kind != Step::Kind::op || step.output.shape.elements() > most_elements) return false;
  return step.op.def()->traits.pointwise || step.op.as<RmsNorm>() != nullptr ||
         step.op.as<LayerNorm>() != nullptr || step.op.as<Rope>() != nullptr ||
         step.op.as<Softmax>() != nullptr;
}

/// Of a straight stretch, `leaves` of which others read afterwards. The first `used` bytes of the
/// memory are taken.
void keep(std::vector<Step>& steps, std::span<const Operand> leaves, std::int64_t& used) {
  const std::vector<WrittenValue> values = trace_values(steps, leaves);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Operand& value = steps[i].output;
    if (!is_cheap(steps[i]) || !values[i].is_private || !value.is_contiguous()) continue;
    Place place;
    place.kind = Place::Kind::scratch;
    place.offset = used;
    used += (value.shape.bytes() + alignment - 1) / alignment * alignment;
    value.place = place;
    for (const WrittenValue::Use& use : values[i].uses) {
      steps[use.step].inputs[use.input].place = place;
    }
  }
}

}  // namespace

std::int64_t keep_own_values(const Lowered& program, std::span<const Step> steps,
                             std::vector<Step>& own) {
  std::int64_t used = 0;
  for_each_stretch(program, steps, own,
                   [&](auto& stretch, auto leaves) { keep(stretch, leaves, used); });
  return used;
}

}  // namespace tenon::cpu
