#include "passes/norm_patterns.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/norm.hpp>

namespace tenon::passes {

int rewrite_norm_bias(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Add>(i) == nullptr) continue;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ValueId norm = editor.at(i).operands[side];
      const ValueId bias = editor.at(i).operands[1 - side];
      if (editor.made_by<LayerNorm>(norm) == nullptr || editor.uses(norm) != 1) continue;
      std::vector<ValueId> operands = editor.definition(norm)->operands;
      if (operands.size() != 2 || !is_row_parameter(editor, bias, norm)) continue;
      if (!editor.movable(operands[0]) || !editor.movable(operands[1])) continue;
      operands.push_back(bias);
      const OpInstance op = editor.definition(norm)->op;
      if (!gives(editor, op, operands, editor.type(editor.at(i).result))) continue;
      editor.replace(i, op, std::move(operands));
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
