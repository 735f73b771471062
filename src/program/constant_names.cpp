#include "program/constant_names.hpp"

#include "program/reads_value.hpp"

#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using Kind = Instruction::Kind;
/// The prefixes of a scope, one for each combination of enclosing loop iterations. Null: the value
/// is not a scope.
using Prefixes = std::shared_ptr<const std::vector<std::string>>;

std::string join(const std::string& prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

class Walker {
 public:
  Walker(const Program& program,
         const std::function<void(const ConstantPlace&, const std::string&)>& visit)
      : program_(program), visit_(visit) {
    for (std::size_t i = 0; i < program.functions.size(); ++i) {
      indices_.emplace(program.functions[i].name, i);
    }
  }

  void run() { call(program_.entry, {}); }

 private:
  /// Results of calls are tensors, so scopes only go down.
  void call(std::string_view name, std::vector<Prefixes> scopes) {
    const std::size_t index = indices_.at(name);
    const Function& function = program_.functions[index];
    scopes.resize(function.values.size());
    for (std::size_t i = 0; i < function.body.size(); ++i) step({index, i}, scopes);
  }

  void step(const ConstantPlace& use, std::vector<Prefixes>& scopes) {
    const Instruction& instruction = program_.functions[use.function].body[use.instruction];
    const std::vector<ValueId>& operands = instruction.operands;
    switch (instruction.kind) {
      case Kind::constant:
        if (operands.empty()) return visit_(use, instruction.text);
        for (const std::string& prefix : *scopes[operands[0]]) {
          visit_(use, join(prefix, instruction.text));
        }
        return;
      case Kind::scope: {
        std::vector<std::string> prefixes{instruction.text};
        if (!operands.empty()) {
          prefixes = *scopes[operands[0]];
          for (std::string& prefix : prefixes) prefix = join(prefix, instruction.text);
        }
        scopes[instruction.result] =
            std::make_shared<const std::vector<std::string>>(std::move(prefixes));
        return;
      }
      case Kind::call: {
        std::vector<Prefixes> arguments;
        for (const ValueId id : operands) arguments.push_back(scopes[id]);
        return call(instruction.function, std::move(arguments));
      }
      case Kind::repeat:
        return repeat(instruction, scopes);
      case Kind::op:
      case Kind::pack:
      case Kind::item:
        return;
    }
  }

  void repeat(const Instruction& instruction, const std::vector<Prefixes>& scopes) {
    std::vector<std::string> prefixes;
    const Function& callee = program_.functions[indices_.at(instruction.function)];
    for (const std::string& prefix : *scopes[instruction.operands[1]]) {
      if (!reads_scope(callee)) break;
      for (std::int64_t i = 0; i < instruction.count; ++i) {
        prefixes.push_back(join(prefix, std::to_string(instruction.first + i)));
      }
    }
    // Parameters: what is carried, an index, the scope, the extras.
    const std::size_t extras = instruction.operands.size() - 2;
    std::vector<Prefixes> arguments(callee.parameter_count - extras - 1);
    arguments.push_back(std::make_shared<const std::vector<std::string>>(std::move(prefixes)));
    for (std::size_t i = 2; i < instruction.operands.size(); ++i) {
      arguments.push_back(scopes[instruction.operands[i]]);
    }
    call(instruction.function, std::move(arguments));
  }

  const Program& program_;
  const std::function<void(const ConstantPlace&, const std::string&)>& visit_;
  std::unordered_map<std::string_view, std::size_t> indices_;
};

}  // namespace

void for_each_constant(const Program& program,
                       const std::function<void(const ConstantPlace&, const std::string&)>& visit) {
  Walker(program, visit).run();
}

std::vector<std::string> constant_names(const Program& program) {
  Program checked = program;
  verify(checked);
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for_each_constant(checked, [&](const ConstantPlace&, const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  });
  return names;
}

}  // namespace tenon
