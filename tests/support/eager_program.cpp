#include "support/eager_program.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <variant>

namespace tenon::testing {
namespace {

using Arrays = std::vector<EagerArray>;
using Item = std::variant<EagerArray, EagerScope, Arrays>;

class Interpreter {
 public:
  Interpreter(Eager& eager, const Program& program) : eager_(eager), program_(program) {}

  Arrays call(const Function& function, std::vector<Item> arguments) {
    std::vector<Item> values = std::move(arguments);
    values.resize(function.values.size());
    for (std::size_t i = 0; i < function.body.size(); ++i) {
      values[function.body[i].result] = evaluate(function, i, values);
    }
    Arrays results;
    for (const ValueId id : function.results) results.push_back(std::get<EagerArray>(values[id]));
    return results;
  }

 private:
  static bool is_last_use(const Function& function, std::size_t at, ValueId id) {
    const auto reads = [id](const Instruction& other) {
      return std::ranges::find(other.operands, id) != other.operands.end();
    };
    const bool is_once = std::ranges::count(function.body[at].operands, id) == 1;
    return is_once && std::ranges::find(function.results, id) == function.results.end() &&
           std::none_of(function.body.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                        function.body.end(), reads);
  }

  /// A value for an instruction, moved out by its last use.
  static Item take(const Function& function, std::size_t at, ValueId id,
                   std::vector<Item>& values) {
    return is_last_use(function, at, id) ? std::move(values[id]) : values[id];
  }

  Item evaluate(const Function& function, std::size_t at, std::vector<Item>& values) {
    const Instruction& instruction = function.body[at];
    const std::vector<ValueId>& operands = instruction.operands;
    switch (instruction.kind) {
      case Instruction::Kind::op: {
        std::vector<EagerInput> inputs;
        for (const ValueId id : operands) {
          auto& array = std::get<EagerArray>(values[id]);
          inputs.push_back(is_last_use(function, at, id) ? EagerInput(std::move(array))
                                                         : EagerInput(array));
        }
        return eager_.run(instruction.op, inputs);
      }
      case Instruction::Kind::constant:
        if (operands.empty()) return eager_.weight(instruction.text);
        return eager_.weight(std::get<EagerScope>(values[operands[0]]), instruction.text);
      case Instruction::Kind::scope:
        if (operands.empty()) return EagerScope{instruction.text};
        return std::get<EagerScope>(values[operands[0]]).inner(instruction.text);
      case Instruction::Kind::pack: {
        Arrays tuple;
        for (const ValueId id : operands) {
          tuple.push_back(std::get<EagerArray>(take(function, at, id, values)));
        }
        return tuple;
      }
      case Instruction::Kind::item: {
        auto& tuple = std::get<Arrays>(values[operands[0]]);
        EagerArray& array = tuple[static_cast<std::size_t>(instruction.index)];
        return takes_last_item(function, at) ? std::move(array) : array;
      }
      case Instruction::Kind::call: {
        std::vector<Item> arguments;
        for (const ValueId id : operands) arguments.push_back(take(function, at, id, values));
        Arrays results = call(*program_.find(instruction.function), std::move(arguments));
        if (results.size() == 1) return std::move(results[0]);
        return results;
      }
      case Instruction::Kind::repeat:
        return repeat(function, at, values);
    }
    throw std::logic_error("an instruction of no kind");
  }

  static bool takes_last_item(const Function& function, std::size_t at) {
    const Instruction& item = function.body[at];
    for (std::size_t i = 0; i < function.body.size(); ++i) {
      const Instruction& other = function.body[i];
      if (std::ranges::find(other.operands, item.operands[0]) == other.operands.end()) continue;
      if (other.kind != Instruction::Kind::item) return false;
      if (i > at && other.index == item.index) return false;
    }
    return true;
  }

  Item repeat(const Function& function, std::size_t at, std::vector<Item>& values) {
    const Instruction& instruction = function.body[at];
    const Function& body = *program_.find(instruction.function);
    Arrays carry = std::get<Arrays>(take(function, at, instruction.operands[0], values));
    for (std::int64_t i = 0; i < instruction.count; ++i) {
      const std::int64_t index = instruction.first + i;
      if (instruction.condition >= 0 &&
          carry[static_cast<std::size_t>(instruction.condition)].to_int() == 0) {
        break;
      }
      std::vector<Item> arguments;
      for (EagerArray& array : carry) arguments.emplace_back(std::move(array));
      arguments.emplace_back(EagerArray(index));
      arguments.emplace_back(std::get<EagerScope>(values[instruction.operands[1]]).at(index));
      for (std::size_t k = 2; k < instruction.operands.size(); ++k) {
        arguments.push_back(values[instruction.operands[k]]);
      }
      carry = call(body, std::move(arguments));
    }
    return carry;
  }

  Eager& eager_;
  const Program& program_;
};

}  // namespace

std::vector<EagerArray> run_eagerly(Eager& eager, const Program& program,
                                    std::vector<EagerArray> inputs) {
  std::vector<Item> arguments;
  for (EagerArray& input : inputs) arguments.emplace_back(std::move(input));
  inputs.clear();
  return Interpreter(eager, program).call(program.main(), std::move(arguments));
}

}  // namespace tenon::testing
