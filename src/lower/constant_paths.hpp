#pragma once

#include <tenon/lowered.hpp>

#include <optional>
#include <set>
#include <span>
#include <string>

namespace tenon::lowering {

/// The paths (Origins) of the values that lower() moves to the constant part. Nothing where the
/// program cannot be lowered as it is.
std::optional<std::set<std::string>> constant_paths(const Program& program,
                                                    std::span<const Shape> inputs,
                                                    const ConstantTypes& types);

/// As lower(), but numbers (`full` of one element) beside what is computed are constants of the ops
/// that read them: for devices which take operands of constants, and have no way to fill.
Lowered lower_with_constant_numbers(const Program& program, std::span<const Shape> inputs,
                                    const ConstantTypes& types, const LowerOptions& options);

}  // namespace tenon::lowering
