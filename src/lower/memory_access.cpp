#include "lower/memory_access.hpp"

#include "lower/point_groups.hpp"

#include <algorithm>

namespace tenon::lowering {

bool is_memory(const Operand& operand) noexcept {
  return operand.place.kind != Place::Kind::constant &&
         operand.place.kind != Place::Kind::loop_index &&
         operand.place.kind != Place::Kind::scratch;
}

Access access_of(const Operand& operand) {
  const Place& place = operand.place;
  const bool moves = place.byte_step != LoopSteps{} || place.entry_step != LoopSteps{};
  const ByteRange everything{0, std::int64_t{1} << 62};
  return {place.kind, place.kind == Place::Kind::slab ? 0 : place.index,
          moves ? everything : byte_range(operand)};
}

bool overlap(const Access& a, const Access& b) noexcept {
  return a.kind == b.kind && a.index == b.index && a.bytes.overlaps(b.bytes);
}

bool overlap(const Operand& a, const Operand& b) {
  return is_memory(a) && overlap(access_of(a), access_of(b));
}

std::vector<Operand> outputs_of(const Step& step) {
  const auto* fused = step.kind == Step::Kind::op ? step.op.as<FusedPoints>() : nullptr;
  if (fused == nullptr) return {step.output};
  std::vector<Operand> outputs;
  for (const PointGroup::Member& member : fused->group->members) {
    if (member.is_stored) outputs.push_back(member.output);
  }
  outputs.back() = step.output;  // where passes have put it
  return outputs;
}

bool writes_to(const Step& step, const Access& access) {
  if (step.kind != Step::Kind::loop) {
    if (step.op.as<FusedPoints>() == nullptr) return overlap(access_of(step.output), access);
    return std::ranges::any_of(outputs_of(step), [&](const Operand& output) {
      return overlap(access_of(output), access);
    });
  }
  return std::ranges::any_of(step.body,
                             [&](const Step& inner) { return writes_to(inner, access); });
}

bool accesses(const Step& step, const Access& access) {
  const bool reads = std::ranges::any_of(step.inputs, [&](const Operand& input) {
    return is_memory(input) && overlap(access_of(input), access);
  });
  if (reads || step.kind != Step::Kind::loop) return reads || writes_to(step, access);
  return std::ranges::any_of(step.body, [&](const Step& inner) { return accesses(inner, access); });
}

}  // namespace tenon::lowering
