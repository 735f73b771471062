#pragma once

#include "program/cursor.hpp"

#include <tenon/program.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// An instruction as a line spells it, and where its operands stand in that line.
struct Statement {
  Instruction instruction;
  ValueKind kind = ValueKind::tensor;  ///< of the result; of a call: not known yet
  std::vector<std::size_t> operand_offsets;
};

/// The value that a name means; throws Fault.
using Resolve = std::function<ValueId(const Token& name)>;

/// `callee(arguments)` as an instruction, without result and line. Throws Fault.
Statement make_statement(const Token& callee, const std::vector<Argument>& arguments,
                         const Resolve& resolve, WordBudget& words);

/// Names like this one of ops and of `functions`, as a part of a message; nothing where none is close.
std::string op_suggestion(std::string_view wanted, std::span<const Function> functions = {});

/// The text of a string token; throws Fault for a bad escape.
std::string string_of(const Token& token);

}  // namespace tenon
