#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/pad.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
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
  if (padded_axes != 1 || !is_static(part.size) || part.size == 0) return std::nullopt;
  return part;
}

/// Sums of pads along one axis, and of such sums that nothing else reads.
class Sums {
 public:
  explicit Sums(const FunctionEditor& editor) : editor_(editor) {}

  /// Notes the sum that instruction i is, whose operands have been noted. Returns whether its parts
  /// are as long as its axis: at most one of the sums that make up a longer one is, so that the parts
  /// of all that are take no longer to collect than the function is.
  bool add(std::size_t i) {
    if (editor_.op_at<Add>(i) == nullptr) return false;
    const Instruction& sum = editor_.at(i);
    const auto left = length_of(sum.operands[0]), right = length_of(sum.operands[1]);
    const std::optional<Shape>& type = editor_.type(sum.result);
    if (!left || !right || left->axis != right->axis || !type) return false;
    const Length length{left->axis, left->size + right->size};
    known_.emplace(sum.result, length);
    return length.axis < type->rank() && (*type)[static_cast<int>(length.axis)] == length.size;
  }

  /// The pads that such a sum is made of.
  std::vector<Part> parts(ValueId sum) const {
    std::vector<Part> found;
    std::vector<ValueId> open{sum};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (known_.contains(id)) {
        const std::vector<ValueId>& operands = editor_.definition(id)->operands;
        open.insert(open.end(), operands.begin(), operands.end());
      } else {
        found.push_back(part_of(editor_, id).value());
      }
    }
    return found;
  }

 private:
  /// Of the parts of a value together.
  struct Length {
    std::int64_t axis, size;
  };

  std::optional<Length> length_of(ValueId id) const {
    if (editor_.made_by<Add>(id) == nullptr) {
      const std::optional<Part> part = part_of(editor_, id);
      return part ? std::optional(Length{part->axis, part->size}) : std::nullopt;
    }
    const auto found = known_.find(id);
    const bool is_known = found != known_.end() && editor_.uses(id) == 1;
    return is_known ? std::optional(found->second) : std::nullopt;
  }

  const FunctionEditor& editor_;
  std::unordered_map<ValueId, Length> known_;
};

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
  Sums sums(editor);
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (!sums.add(i)) continue;
    std::vector<Part> parts = sums.parts(editor.at(i).result);
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
