#include "passes/norm_patterns.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/norm.hpp>

namespace tenon::passes {

int rewrite_norm_weight(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Mul>(i) == nullptr) continue;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ValueId norm = editor.at(i).operands[side];
      const ValueId weight = editor.at(i).operands[1 - side];
      const bool is_norm =
          editor.made_by<RmsNorm>(norm) != nullptr || editor.made_by<LayerNorm>(norm) != nullptr;
      if (!is_norm || editor.uses(norm) != 1 || editor.definition(norm)->operands.size() != 1)
        continue;
      const ValueId x = editor.definition(norm)->operands[0];
      if (!is_row_parameter(editor, weight, norm) || !editor.movable(x)) continue;
      const OpInstance op = editor.definition(norm)->op;
      if (!gives(editor, op, {x, weight}, editor.type(editor.at(i).result))) continue;
      editor.replace(i, op, {x, weight});
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
