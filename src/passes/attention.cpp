#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/softmax.hpp>

#include <array>
#include <cmath>

// Where no score of a query is above -inf, softmax gives NaN and attention does not. The pattern
// has no mask that could make it so: only keys and queries do that are infinite, or whose products overflow.

namespace tenon::passes {
namespace {

struct Scores {
  ValueId queries;     ///< [B, H, S, D]
  ValueId transposed;  ///< [B, H, D, T]
  ValueId keys;        ///< what that is a permutation of
  IntList keys_order;  ///< of the keys' axes, for [B, T, H, D]
  double scale;
};

/// q . k^T of rank 4, with its scale. The transposition may also bring heads to the front, as that
/// of `dot` on tagged axes does; rows of the keys stay rows.
std::optional<Scores> match_scores(const FunctionEditor& editor, ValueId id) {
  double scale = 1;
  // A factor that bf16 does not hold multiplies f32, which is then rounded.
  const auto through_cast = [&](DType to) {
    const Cast* const cast = editor.made_by<Cast>(id);
    if (cast == nullptr || cast->dtype != to || editor.uses(id) != 1) return false;
    id = editor.definition(id)->operands[0];
    return true;
  };
  const bool is_widened = through_cast(bf16);
  if (const bool divided = editor.made_by<Div>(id) != nullptr;
      divided || editor.made_by<Mul>(id) != nullptr) {
    if (editor.uses(id) != 1) return std::nullopt;
    const std::vector<ValueId>& in = editor.definition(id)->operands;
    const std::size_t number = divided || editor.constant_value(in[1]) ? 1 : 0;
    const std::optional<double> factor = editor.constant_value(in[number]);
    // Not where the factor has more axes, or longer ones.
    if (!factor || !same_type(editor.type(in[1 - number]), editor.type(id))) return std::nullopt;
    scale = divided ? 1 / *factor : *factor;
    id = in[1 - number];
  }
  if (is_widened && !through_cast(f32)) return std::nullopt;
  // 0 stands for 1 / sqrt(D) in the attribute.
  if (!std::isfinite(scale) || scale == 0) return std::nullopt;
  if (editor.made_by<Matmul>(id) == nullptr || editor.uses(id) != 1) return std::nullopt;
  const std::vector<ValueId>& in = editor.definition(id)->operands;
  const Permute* transposed = editor.made_by<Permute>(in[1]);
  if (transposed == nullptr || transposed->order.size() != 4 || transposed->order[2] != 3) {
    return std::nullopt;
  }
  const IntList& order = transposed->order;
  return Scores{in[0], in[1], editor.definition(in[1])->operands[0],
                IntList{order[0], order[3], order[1], order[2]}, scale};
}

/// Batch and heads must agree: matmul broadcasts them, attention does not. k: [B, H, D, T].
bool fit(const std::optional<Shape>& q, const std::optional<Shape>& k,
         const std::optional<Shape>& v) {
  if (!q || !k || !v || q->rank() != 4 || k->rank() != 4 || v->rank() != 4) return false;
  if (!is_floating(q->dtype()) || q->dtype() != k->dtype() || k->dtype() != v->dtype())
    return false;
  // Composed scores of f16 overflow where the op's do not.
  if (q->dtype() == f16) return false;
  for (const int axis : {0, 1}) {
    if ((*q)[axis] != (*k)[axis] || (*k)[axis] != (*v)[axis] || (*q)[axis] == unknown_dim)
      return false;
  }
  // Without keys, softmax is over an empty axis.
  return !is_static((*k)[3]) || (*k)[3] > 0;
}

}  // namespace

int rewrite_attention(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<Matmul>(i) == nullptr) continue;
    const ValueId weights = editor.at(i).operands[0];
    const Softmax* softmax = editor.made_by<Softmax>(weights);
    if (softmax == nullptr || softmax->axis != 3 || editor.uses(weights) != 1) continue;
    const std::optional<Scores> scores =
        match_scores(editor, editor.definition(weights)->operands[0]);
    if (!scores) continue;
    std::array operands = {scores->queries, scores->keys, editor.at(i).operands[1]};
    if (!fit(editor.type(operands[0]), editor.type(scores->transposed), editor.type(operands[2])))
      continue;
    if (!editor.type(operands[1])) continue;
    if (!editor.movable(operands[0]) || !editor.movable(operands[1])) continue;

    const OpInstance heads_second(Permute{.order = {0, 2, 1, 3}});
    const OpInstance keys_second(Permute{.order = scores->keys_order});
    for (ValueId& operand : operands) {
      const bool is_keys = &operand == &operands[1];
      operand = editor.insert(i, "heads", is_keys ? keys_second : heads_second, {operand});
    }
    const OpInstance attention(Attention{.scale = scores->scale});
    const ValueId mixed =
        editor.insert(i, "attended", attention, {operands[0], operands[1], operands[2]});
    editor.replace(i, heads_second, {mixed});
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
