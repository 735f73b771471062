#pragma once

#include <tenon/program.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tenon::passes {

/// A function with its def-use information, and changes that keep that up to date.
///
/// Changes do not move instructions, so that an operand that a match found earlier in the function
/// is read later than before. That is correct only if nothing updates its storage in between:
/// `movable`.
///
/// Positions and ids stay what they are: what is inserted lies behind all other instructions until
/// `finish` puts it in its place. Each change takes time that does not grow with the function.
class FunctionEditor {
 public:
  /// `is_called`: by another function of the program, see updated_values().
  FunctionEditor(Function& function, bool is_called);

  Function& function() const noexcept { return function_; }
  /// Instructions, without those that were inserted.
  std::size_t size() const noexcept { return function_.body.size() - inserted_.size(); }
  const Instruction& at(std::size_t i) const noexcept { return function_.body[i]; }

  /// The instruction that makes a value; null for parameters.
  const Instruction* definition(ValueId id) const noexcept;
  /// The attributes of the op that makes a value, when it is an `Op`.
  template <OpStruct Op>
  const Op* made_by(ValueId id) const noexcept {
    const Instruction* instruction = definition(id);
    return instruction != nullptr && instruction->kind == Instruction::Kind::op
               ? instruction->op.as<Op>()
               : nullptr;
  }

  /// Operands and results that name the value.
  std::size_t uses(ValueId id) const noexcept { return uses_[id]; }
  /// Whether the storage of the value is never updated, so that it may be read at any time and may
  /// replace an equal value.
  bool movable(ValueId id) const noexcept { return !updated_[id]; }
  /// The type, where known.
  const std::optional<Shape>& type(ValueId id) const noexcept { return function_.values[id].shape; }
  /// The instruction's op, when it is an `Op`.
  template <OpStruct Op>
  const Op* op_at(std::size_t i) const noexcept {
    return at(i).kind == Instruction::Kind::op ? at(i).op.as<Op>() : nullptr;
  }
  /// The number that all elements of a value have, when `full` wrote it.
  std::optional<double> constant_value(ValueId id) const noexcept;

  /// Instruction i computes its result in another way.
  void replace(std::size_t i, OpInstance op, std::vector<ValueId> operands);
  /// A new instruction before instruction i, and behind those that were inserted there earlier.
  /// Returns the new value, of the type that the op infers.
  ValueId insert(std::size_t i, std::string_view name, OpInstance op,
                 std::vector<ValueId> operands);
  /// Every user of `from` uses `to` instead.
  void forward(ValueId from, ValueId to);
  /// The last call: puts what was inserted in its place and numbers the values anew, so that the
  /// editor no longer describes the function. Rewrites leave it to who calls them.
  void finish();

 private:
  /// An operand of an instruction; of the instruction `results`, a result of the function.
  struct Use {
    std::size_t instruction, operand;
  };
  static constexpr std::size_t results = static_cast<std::size_t>(-1);

  std::vector<ValueId>& operands_of(std::size_t instruction) noexcept {
    return instruction == results ? function_.results : function_.body[instruction].operands;
  }
  /// Notes that the instruction uses its operands.
  void add_uses(std::size_t instruction);
  /// `name`, or the first of name0, name1, ... that no value has.
  std::string unused_name(std::string_view name);

  Function& function_;
  std::vector<std::size_t> uses_;
  std::vector<bool> updated_;
  std::vector<std::vector<Use>> users_;    // by value, some of them former; filled by `forward`
  std::vector<std::size_t> inserted_;      // before which instruction; they are the last ones
  std::unordered_set<std::string> names_;  // of values; filled when the first is asked for
  std::unordered_map<std::string, int> next_number_;
};

/// Whether both are known, and equal for all values of their symbols.
bool same_type(const std::optional<Shape>& a, const std::optional<Shape>& b) noexcept;

/// Whether the op takes these operands and gives just this type: what a replacement must do.
bool gives(const FunctionEditor& editor, const OpInstance& op, const std::vector<ValueId>& operands,
           const std::optional<Shape>& type);

/// The functions that a `call` names, unlike those that are only bodies of loops.
std::unordered_set<std::string> called_functions(const Program& program);
/// Whether the function is one of them.
bool is_called(const Program& program, const Function& function);

/// Values whose storage an update, a call or a loop may overwrite: one entry per value. Calls and
/// loops are assumed to update all their operands, and callers the results of what they call, whose
/// storage they share.
std::vector<bool> updated_values(const Function& function, bool is_called);

/// The work of share_common_subexpressions().
int share_equal_instructions(Function& function, bool is_called);

/// Drops the instructions that `keep` does not name, with their values, and renumbers the rest.
void keep_instructions(Function& function, const std::vector<bool>& keep);

/// Leaves the instructions of this order, with their values, and renumbers those.
void order_instructions(Function& function, const std::vector<std::size_t>& order);

}  // namespace tenon::passes
