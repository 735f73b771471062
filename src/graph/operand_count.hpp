#pragma once

#include <tenon/op.hpp>

#include <optional>
#include <string>

namespace tenon {

/// What to say where `least` to `most` operands are taken and `count` are given: "takes 1 to 3 operands, 4 given". Nothing where
/// `count` is among them.
std::optional<std::string> refused_operand_count(int least, int most, int count);

inline std::optional<std::string> refused_operand_count(const OpDef& op, int count) {
  return refused_operand_count(op.min_inputs, op.max_inputs, count);
}

}  // namespace tenon
