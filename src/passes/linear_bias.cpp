#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/linear.hpp>

namespace tenon::passes {
namespace {

/// Whether `bias` is one number for each column of `result`.
bool is_bias(const FunctionEditor& editor, ValueId bias, ValueId result) {
  const std::optional<Shape>& b = editor.type(bias);
  const std::optional<Shape>& y = editor.type(result);
  if (!b || !y || b->rank() != 1 || y->rank() < 1 || b->dtype() != y->dtype()) return false;
  const std::int64_t columns = (*y)[y->rank() - 1];
  return (*b)[0] == columns && columns != unknown_dim;
}

}  // namespace

int rewrite_linear_bias(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Add>(i) == nullptr) continue;
    for (const int side : {0, 1}) {
      const ValueId product = editor.at(i).operands[static_cast<std::size_t>(side)];
      const ValueId bias = editor.at(i).operands[static_cast<std::size_t>(1 - side)];
      const Linear* linear = editor.made_by<Linear>(product);
      if (linear == nullptr || linear->has_bias || linear->has_residual ||
          editor.uses(product) != 1)
        continue;
      const std::vector<ValueId> in = editor.definition(product)->operands;
      if (!is_bias(editor, bias, product) ||
          !same_type(editor.type(product), editor.type(editor.at(i).result)))
        continue;
      if (!editor.movable(in[0]) || !editor.movable(in[1])) continue;
      editor.replace(i, OpInstance(Linear{.has_bias = true}), {in[0], in[1], bias});
      ++applied;
      break;
    }
  }
  return applied;
}

}  // namespace tenon::passes
