#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>

namespace tenon::passes {

int rewrite_linear_of_matmul(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Matmul>(i) == nullptr) continue;
    const ValueId x = editor.at(i).operands[0];
    const ValueId transposed = editor.at(i).operands[1];
    const Permute* permute = editor.made_by<Permute>(transposed);
    if (permute == nullptr || !(permute->order == IntList{1, 0})) continue;
    const ValueId w = editor.definition(transposed)->operands[0];
    // Only constant weights: backends pack them once. Otherwise matmul is the simpler op.
    const Instruction* definition = editor.definition(w);
    if (definition == nullptr || definition->kind != Instruction::Kind::constant) continue;
    const OpInstance linear(Linear{});
    if (!gives(editor, linear, {x, w}, editor.type(editor.at(i).result))) continue;
    editor.replace(i, linear, {x, w});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
