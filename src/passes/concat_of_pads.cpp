#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/pad.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tenon::passes {
namespace {

/// A value with zeros before and after it along one axis.
struct Part {
  ValueId value = 0;
  std::int64_t axis = 0, before = 0, after = 0, size = 0;
};

/// What a pad adds zeros to, if it does so along one axis.
std::optional<Part> part_of(const FunctionEditor& editor, ValueId padded) {
  const Pad* const pad = editor.made_by<Pad>(padded);
  if (pad == nullptr || editor.uses(padded) != 1 || pad->value != 0 ||
      pad->padding() != Pad::Mode::constant) {
    return std::nullopt;
  }
  Part part{.value = editor.definition(padded)->operands[0]};
  const std::optional<Shape>& type = editor.type(part.value);
  if (!type || !editor.movable(part.value)) return std::nullopt;
  int padded_axes = 0;
  for (int axis = 0; axis < type->rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t before = pad->before[at], after = pad->after[at];
    if (before == 0 && after == 0) continue;
    if (before < 0 || after < 0 || ++padded_axes > 1) return std::nullopt;
    part = {part.value, axis, before, after, (*type)[axis]};
  }
  if (padded_axes != 1 || !is_static(part.size)) return std::nullopt;
  return part;
}

/// The pads that a sum is made of, through sums that nothing else reads.
bool collect_parts(const FunctionEditor& editor, const Instruction& sum, std::vector<Part>& parts) {
  std::vector<ValueId> sums;
  for (const ValueId operand : sum.operands) {
    if (editor.made_by<Add>(operand) != nullptr && editor.uses(operand) == 1) {
      sums.push_back(operand);
    } else if (const std::optional<Part> part = part_of(editor, operand)) {
      parts.push_back(*part);
    } else {
      return false;  // before a long sum is followed down to its first operands
    }
  }
  return std::ranges::all_of(
      sums, [&](ValueId inner) { return collect_parts(editor, *editor.definition(inner), parts); });
}

/// Whether each part begins where the one before ends, and all of them fill the axis.
bool fill_axis(const std::vector<Part>& parts) {
  std::int64_t end = 0;
  for (const Part& part : parts) {
    if (part.axis != parts[0].axis || part.before != end) return false;
    end += part.size;
  }
  return parts.back().after == 0;
}

}  // namespace

int rewrite_concat_of_pads(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    std::vector<Part> parts;
    if (editor.op_at<Add>(i) == nullptr || !collect_parts(editor, editor.at(i), parts)) continue;
    std::ranges::sort(parts, {},
                      [](const Part& part) { return std::pair(part.before, part.size); });
    if (!fill_axis(parts)) continue;
    std::vector<ValueId> operands;
    for (const Part& part : parts) operands.push_back(part.value);
    const OpInstance op(Concat{.axis = parts[0].axis});
    if (!gives(editor, op, operands, editor.type(editor.at(i).result))) continue;
    editor.replace(i, op, std::move(operands));
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
