#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/permute.hpp>

namespace tenon::passes {

int rewrite_permute_of_permute(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const Permute* outer = editor.op_at<Permute>(i);
    if (outer == nullptr) continue;
    const ValueId between = editor.at(i).operands[0];
    const Permute* inner = editor.made_by<Permute>(between);
    if (inner == nullptr) continue;
    const ValueId x = editor.definition(between)->operands[0];
    if (!editor.movable(x)) continue;
    Permute both;
    for (const std::int64_t axis : outer->order)
      both.order.push_back(inner->order[static_cast<std::size_t>(axis)]);
    editor.replace(i, OpInstance(both), {x});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
