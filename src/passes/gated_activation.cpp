#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/glu.hpp>

#include <algorithm>
#include <array>

namespace tenon::passes {
namespace {

/// The op's name, when `glu` knows it: the two use the same words.
std::string_view activation_of(const Instruction* instruction) {
  if (instruction == nullptr || instruction->kind != Instruction::Kind::op) return {};
  const OpDef* def = instruction->op.def();
  const std::array known = {&op_def<Silu>(), &op_def<Gelu>(), &op_def<GeluTanh>(), &op_def<Relu>(),
                            &op_def<Sigmoid>()};
  return std::ranges::find(known, def) != known.end() ? def->name : std::string_view();
}

}  // namespace

int rewrite_gated_activation(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Mul>(i) == nullptr) continue;
    for (const int side : {0, 1}) {
      const ValueId activated = editor.at(i).operands[static_cast<std::size_t>(side)];
      const ValueId up = editor.at(i).operands[static_cast<std::size_t>(1 - side)];
      const std::string_view activation = activation_of(editor.definition(activated));
      if (activation.empty() || editor.uses(activated) != 1) continue;
      const ValueId gate = editor.definition(activated)->operands[0];
      const std::optional<Shape>& type = editor.type(gate);
      if (!same_type(type, editor.type(up)) || !is_floating(type->dtype()) || !editor.movable(gate))
        continue;
      editor.replace(i, OpInstance(Glu{.activation = activation}), {gate, up});
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
