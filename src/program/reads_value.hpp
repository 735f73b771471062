#pragma once

#include <tenon/program.hpp>

#include <algorithm>

namespace tenon {

/// Whether an instruction of a function has the value as an operand.
inline bool reads_value(const Function& function, ValueId value) {
  return std::ranges::any_of(function.body, [&](const Instruction& instruction) {
    return std::ranges::find(instruction.operands, value) != instruction.operands.end();
  });
}

/// Whether a repeated function names something by its scope, which follows what it carries and the
/// index.
inline bool reads_scope(const Function& repeated) {
  return reads_value(repeated, static_cast<ValueId>(repeated.results.size() + 1));
}

}  // namespace tenon
