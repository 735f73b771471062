#pragma once

#include <tenon/op.hpp>

#include <optional>
#include <string>

namespace tenon {

/// What to say where an op does not take `count` operands: "takes 1 to 3 operands, 4 given". Nothing where it does.
std::optional<std::string> refused_operand_count(const OpDef& op, int count);

}  // namespace tenon
