#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/binary.hpp>

namespace tenon::passes {

int rewrite_silu(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Mul>(i) == nullptr) continue;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ValueId gate = editor.at(i).operands[side];
      const ValueId x = editor.at(i).operands[1 - side];
      if (editor.made_by<Sigmoid>(gate) == nullptr || editor.definition(gate)->operands[0] != x)
        continue;
      editor.replace(i, OpInstance(Silu{}), {x});
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
