#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/reshape.hpp>

#include <algorithm>
#include <array>

namespace tenon::passes {
namespace {

/// Ops that keep the elements in row-major order and change the sizes only.
bool only_reshapes(const Instruction* instruction) {
  if (instruction == nullptr || instruction->kind != Instruction::Kind::op) return false;
  const std::array defs = {&op_def<Reshape>(), &op_def<SplitAxis>(), &op_def<MergeAxes>(),
                           &op_def<Squeeze>(), &op_def<Unsqueeze>()};
  return std::ranges::find(defs, instruction->op.def()) != defs.end();
}

}  // namespace

int rewrite_reshape_of_reshape(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const Instruction& instruction = editor.at(i);
    if (!only_reshapes(&instruction) || !only_reshapes(editor.definition(instruction.operands[0])))
      continue;
    const ValueId x = editor.definition(instruction.operands[0])->operands[0];
    const std::optional<Shape>& type = editor.type(instruction.result);
    // The inner ops support symbolic sizes, reshape does not.
    if (!type || !type->is_static() || !editor.movable(x)) continue;
    const OpInstance reshape(Reshape{.dims = IntList(type->dims())});
    if (!gives(editor, reshape, {x}, type)) continue;
    editor.replace(i, reshape, {x});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
