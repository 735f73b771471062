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

}  // namespace tenon::lowering
