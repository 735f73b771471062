#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/unary.hpp>

#include <optional>

// Only what agrees on every value, NaN, infinities and zeros included: pow(-0, 0.5) is 0 and
// pow(-inf, 0.5) is inf, while sqrt gives -0 and NaN, so that the sign of x must be known. A cube
// is left alone: two products round twice.

namespace tenon::passes {
namespace {

/// Whether a value is NaN, +0 or above.
bool has_no_sign(const FunctionEditor& editor, ValueId id) {
  return editor.made_by<Abs>(id) != nullptr || editor.made_by<Exp>(id) != nullptr ||
         editor.made_by<Square>(id) != nullptr;
}

std::optional<OpInstance> function_of(const FunctionEditor& editor, ValueId x, double exponent) {
  if (exponent == 2) return OpInstance(Square{});
  if (!is_floating(editor.type(x)->dtype())) return std::nullopt;  // an integer's 1 / 0 is 0
  if (exponent == -1) return OpInstance(Reciprocal{});
  if (exponent == 0.5 && has_no_sign(editor, x)) return OpInstance(Sqrt{});
  return std::nullopt;
}

}  // namespace

int rewrite_power(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Pow>(i) == nullptr || editor.uses(editor.at(i).result) == 0) continue;
    const ValueId x = editor.at(i).operands[0];
    const std::optional<double> exponent = editor.constant_value(editor.at(i).operands[1]);
    if (!exponent || !same_type(editor.type(x), editor.type(editor.at(i).result))) continue;
    const std::optional<OpInstance> op = function_of(editor, x, *exponent);
    if (!op) continue;
    editor.replace(i, *op, {x});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
