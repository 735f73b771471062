#include "passes/norm_patterns.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/unary.hpp>

namespace tenon::passes {
namespace {

/// x, when the value is x * x.
std::optional<ValueId> squared(const FunctionEditor& editor, ValueId id) {
  const Instruction* definition = editor.definition(id);
  if (editor.made_by<Square>(id) != nullptr) return definition->operands[0];
  if (editor.made_by<Mul>(id) != nullptr && definition->operands[0] == definition->operands[1]) {
    return definition->operands[0];
  }
  return std::nullopt;
}

/// eps, when the value is mean(x * x) + eps along rows.
std::optional<double> mean_square(const FunctionEditor& editor, ValueId id, ValueId x) {
  double eps = 0;
  if (editor.made_by<Add>(id) != nullptr) {
    const std::vector<ValueId>& terms = editor.definition(id)->operands;
    const std::size_t number = editor.constant_value(terms[1]) ? 1 : 0;
    const std::optional<double> added = editor.constant_value(terms[number]);
    const std::optional<Shape>& type = editor.type(terms[number]);
    if (!added || !(*added >= 0) || !type || type->rank() > 1) return std::nullopt;
    eps = *added;
    id = terms[1 - number];
  }
  const std::optional<ValueId> squares = mean_of_rows(editor, id);
  return squares && squared(editor, *squares) == x ? std::optional(eps) : std::nullopt;
}

/// eps, when instruction i is x over its root mean square.
std::optional<double> normalises(const FunctionEditor& editor, std::size_t i, ValueId x,
                                 ValueId by) {
  const bool product = editor.op_at<Mul>(i) != nullptr && editor.made_by<Rsqrt>(by) != nullptr;
  const bool quotient = editor.op_at<Div>(i) != nullptr && editor.made_by<Sqrt>(by) != nullptr;
  if (!product && !quotient) return std::nullopt;
  return mean_square(editor, editor.definition(by)->operands[0], x);
}

}  // namespace

int rewrite_rms_norm(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Mul>(i) == nullptr && editor.op_at<Div>(i) == nullptr) continue;
    const std::vector<ValueId> in = editor.at(i).operands;
    std::optional<double> eps = normalises(editor, i, in[0], in[1]);
    const bool swapped = !eps && editor.op_at<Mul>(i) != nullptr;
    if (swapped) eps = normalises(editor, i, in[1], in[0]);
    const ValueId x = swapped ? in[1] : in[0];
    if (!eps || !is_composable(editor.type(x))) continue;
    const OpInstance norm(RmsNorm{.eps = *eps});
    if (!gives(editor, norm, {x}, editor.type(editor.at(i).result))) continue;
    editor.replace(i, norm, {x});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
