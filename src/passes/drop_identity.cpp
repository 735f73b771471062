#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/stop_gradient.hpp>

#include <cmath>
#include <optional>

// Only identities that keep every bit: not x + 0, which turns -0 into 0.

namespace tenon::passes {
namespace {

/// Whether a view is the identity: a reshape to the same sizes, a slice of the whole axis. Not
/// `after`, whose other operand says when there is a value.
bool shows_all(const FunctionEditor& editor, const Instruction& instruction) {
  const OpDef& def = *instruction.op.def();
  const std::optional<Shape>& in = editor.type(instruction.operands[0]);
  if (instruction.op.as<StopGradient>() != nullptr) return false;  // gradients end there
  if (def.view == nullptr || instruction.operands.size() != 1 || !in || !in->is_static() ||
      !same_type(in, editor.type(instruction.result)))
    return false;
  HostView dense;
  dense.shape = *in;
  dense.strides = dense_strides(*in);
  ViewPlacement placement;
  if (!def.view(instruction.op.attributes(), dense, *in, placement) || placement.offset_bytes != 0)
    return false;
  for (int i = 0; i < in->rank(); ++i) {
    const auto axis = static_cast<std::size_t>(i);
    if ((*in)[i] > 1 && placement.strides[axis] != dense.strides[axis]) return false;
  }
  return true;
}

/// The operand that the result equals, if there is one.
std::optional<ValueId> equal_operand(const FunctionEditor& editor, const Instruction& instruction) {
  const OpInstance& op = instruction.op;
  const std::vector<ValueId>& in = instruction.operands;
  if (in.empty()) return std::nullopt;
  if (op.as<Cast>() != nullptr || shows_all(editor, instruction)) return in[0];
  const bool mul = op.as<Mul>() != nullptr;
  if (mul && editor.constant_value(in[0]) == 1.0) return in[1];
  const bool by_one = mul || op.as<Div>() != nullptr || op.as<Pow>() != nullptr;
  if (by_one && editor.constant_value(in[1]) == 1.0) return in[0];
  if (op.as<Sub>() != nullptr) {
    // x - (-0) is x + 0.
    const std::optional<double> subtrahend = editor.constant_value(in[1]);
    if (subtrahend == 0.0 && !std::signbit(*subtrahend)) return in[0];
  }
  return std::nullopt;
}

}  // namespace

int rewrite_drop_identity(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const Instruction& instruction = editor.at(i);
    const ValueId result = instruction.result;
    if (instruction.kind != Instruction::Kind::op || editor.uses(result) == 0) continue;
    const std::optional<ValueId> same = equal_operand(editor, instruction);
    if (!same || !same_type(editor.type(result), editor.type(*same))) continue;
    if (!editor.movable(*same) || !editor.movable(result)) continue;
    editor.forward(result, *same);
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
