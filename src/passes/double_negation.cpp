#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/unary.hpp>

namespace tenon::passes {

int rewrite_double_negation(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const ValueId result = editor.at(i).result;
    if (editor.op_at<Neg>(i) == nullptr || editor.uses(result) == 0) continue;
    const ValueId inner = editor.at(i).operands[0];
    if (editor.made_by<Neg>(inner) == nullptr) continue;
    const ValueId x = editor.definition(inner)->operands[0];
    if (!editor.movable(x) || !editor.movable(result)) continue;
    editor.forward(result, x);
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
