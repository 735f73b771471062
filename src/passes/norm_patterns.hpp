#pragma once

#include "passes/function_editor.hpp"

#include <optional>

namespace tenon::passes {

/// x, when the value is mean(x) along the last axis, which stays with size 1.
std::optional<ValueId> mean_of_rows(const FunctionEditor& editor, ValueId id);

/// Whether the value is one number for each element along the last axis of `result`.
bool is_row_parameter(const FunctionEditor& editor, ValueId id, ValueId result);

/// Types in which composed norms are replaced by rms_norm and layer_norm; in f16 a composed norm
/// overflows where the op does not.
bool is_composable(const std::optional<Shape>& type);

}  // namespace tenon::passes
