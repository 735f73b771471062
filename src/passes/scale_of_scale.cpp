#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>

#include <cmath>

namespace tenon::passes {
namespace {

struct Scale {
  ValueId x;
  double factor;
};

/// mul(x, number), in either order.
std::optional<Scale> scale_of(const FunctionEditor& editor, const Instruction* instruction) {
  if (instruction == nullptr || instruction->kind != Instruction::Kind::op ||
      instruction->op.as<Mul>() == nullptr) {
    return std::nullopt;
  }
  for (const std::size_t side : {std::size_t{1}, std::size_t{0}}) {
    const std::optional<double> factor = editor.constant_value(instruction->operands[side]);
    if (factor) return Scale{instruction->operands[1 - side], *factor};
  }
  return std::nullopt;
}

/// Both factors grow or both shrink: the intermediate value over- or underflows only if the result
/// does.
bool may_combine(double a, double b) {
  const double product = std::abs(a * b);
  if (!std::isfinite(product) || product == 0.0) return false;
  return (std::abs(a) >= 1 && std::abs(b) >= 1 && product < 1e30) ||
         (std::abs(a) <= 1 && std::abs(b) <= 1 && product > 1e-30);
}

}  // namespace

int rewrite_scale_of_scale(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    const std::optional<Scale> outer = scale_of(editor, &editor.at(i));
    if (!outer) continue;
    const std::optional<Scale> inner = scale_of(editor, editor.definition(outer->x));
    if (!inner || !may_combine(inner->factor, outer->factor)) continue;
    const std::optional<Shape>& type = editor.type(editor.at(i).result);
    if (!same_type(editor.type(inner->x), type) || !editor.movable(inner->x)) continue;
    // f16 represents large and small factors inaccurately.
    if (type->dtype() != f32 && type->dtype() != f64 && type->dtype() != bf16) continue;
    const Full number{.value = inner->factor * outer->factor, .dims = {}, .dtype = type->dtype()};
    const ValueId factor = editor.insert(i, "scale", OpInstance(number), {});
    editor.replace(i, OpInstance(Mul{}), {inner->x, factor});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
