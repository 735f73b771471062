#include "passes/norm_patterns.hpp"

#include <tenon/ops/reduce.hpp>

namespace tenon::passes {

std::optional<ValueId> mean_of_rows(const FunctionEditor& editor, ValueId id) {
  const Mean* mean = editor.made_by<Mean>(id);
  if (mean == nullptr || !mean->keep_dims || mean->axes.size() != 1) return std::nullopt;
  const ValueId x = editor.definition(id)->operands[0];
  const std::optional<Shape>& type = editor.type(x);
  if (!type || mean->axes[0] != type->rank() - 1) return std::nullopt;
  return x;
}

bool is_row_parameter(const FunctionEditor& editor, ValueId id, ValueId result) {
  const std::optional<Shape>& parameter = editor.type(id);
  const std::optional<Shape>& type = editor.type(result);
  if (!parameter || !type || parameter->rank() != 1 || type->rank() < 1) return false;
  const std::int64_t size = (*type)[type->rank() - 1];
  return parameter->dtype() == type->dtype() && (*parameter)[0] == size && size != unknown_dim;
}

bool is_composable(const std::optional<Shape>& type) {
  return type && (type->dtype() == f32 || type->dtype() == f64 || type->dtype() == bf16);
}

}  // namespace tenon::passes
