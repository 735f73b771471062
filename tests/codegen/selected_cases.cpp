#include "selected_cases.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

ValueId add_tensor(Function& function, std::string name, std::optional<Shape> type) {
  return function.add_value({std::move(name), ValueKind::tensor, std::move(type)});
}

}  // namespace

std::vector<OpCase> selected_cases() {
  constexpr std::size_t cases_of_an_op = 3;
  std::map<std::string, std::vector<std::string>> seen;
  std::vector<OpCase> selected;
  for (const auto& file : committed_op_cases()) {
    for (OpCase& one : read_op_cases(file)) {
      std::vector<std::string>& known = seen[std::string(one.op.def()->name)];
      const std::string text = to_string(one.op);
      if (known.size() == cases_of_an_op || std::ranges::find(known, text) != known.end()) continue;
      known.push_back(text);
      selected.push_back(std::move(one));
    }
  }
  return selected;
}

Program program_of(const std::vector<OpCase>& cases) {
  Program program;
  program.name = "every_op";
  Function& entry = program.functions.emplace_back();
  entry.name = program.entry;
  entry.results = {add_tensor(entry, "x", Shape({}, f32))};
  entry.parameter_count = 1;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Function function;
    function.name = fmt::format("op{}", i);
    Instruction instruction;
    instruction.op = cases[i].op;
    for (const HostBuffer& input : cases[i].inputs) {
      const std::string name = fmt::format("x{}", instruction.operands.size());
      instruction.operands.push_back(add_tensor(function, name, input.shape().without_tags()));
    }
    function.parameter_count = static_cast<std::uint32_t>(instruction.operands.size());
    instruction.result = add_tensor(function, "y", std::nullopt);
    function.results = {instruction.result};
    function.body.push_back(std::move(instruction));
    program.functions.push_back(std::move(function));
  }
  return program;
}

}  // namespace tenon::testing
