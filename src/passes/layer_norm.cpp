#include "passes/norm_patterns.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/norm.hpp>

namespace tenon::passes {

int rewrite_layer_norm(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const RmsNorm* norm = editor.op_at<RmsNorm>(i);
    if (norm == nullptr) continue;
    std::vector<ValueId> operands = editor.at(i).operands;
    const ValueId centred = operands[0];
    if (editor.made_by<Sub>(centred) == nullptr || editor.uses(centred) != 1) continue;
    const std::vector<ValueId>& terms = editor.definition(centred)->operands;
    const ValueId x = terms[0];
    if (mean_of_rows(editor, terms[1]) != x || !is_composable(editor.type(x)) || !editor.movable(x))
      continue;
    operands[0] = x;
    const OpInstance layer(LayerNorm{.eps = norm->eps});
    if (!gives(editor, layer, operands, editor.type(editor.at(i).result))) continue;
    editor.replace(i, layer, std::move(operands));
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
