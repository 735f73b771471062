#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/linear.hpp>

namespace tenon::passes {

int rewrite_linear_residual(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Add>(i) == nullptr) continue;
    for (const int side : {1, 0}) {
      const ValueId product = editor.at(i).operands[static_cast<std::size_t>(side)];
      const ValueId residual = editor.at(i).operands[static_cast<std::size_t>(1 - side)];
      const Linear* linear = editor.made_by<Linear>(product);
      if (linear == nullptr || linear->has_residual || editor.uses(product) != 1) continue;
      if (!same_type(editor.type(product), editor.type(residual))) continue;
      std::vector<ValueId> operands = editor.definition(product)->operands;
      bool movable = true;
      for (const ValueId id : operands) movable = movable && editor.movable(id);
      if (!movable) continue;
      operands.push_back(residual);
      editor.replace(i, OpInstance(Linear{.has_bias = linear->has_bias, .has_residual = true}),
                     std::move(operands));
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
