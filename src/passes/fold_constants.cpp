#include "passes/constant_folder.hpp"
#include "passes/function_editor.hpp"

#include <tenon/error.hpp>
#include <tenon/optimize.hpp>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using Kind = Instruction::Kind;

// Weights of files do not have such names; if one has, nothing is folded.
constexpr std::string_view prefix = "folded:";

bool prefix_is_free(const Program& program) {
  return std::ranges::none_of(program.functions, [&](const Function& function) {
    return std::ranges::any_of(function.body, [&](const Instruction& instruction) {
      return instruction.text.starts_with(prefix) && !program.folded.contains(instruction.text);
    });
  });
}

// So that a text does not cost memory of thousands of times its size.
constexpr std::int64_t most_results = 1024;  ///< of `max_bytes` each, in a program

std::int64_t folded_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const auto& [name, array] : program.folded) {
    if (name.starts_with(prefix)) bytes += array.shape().bytes();
  }
  return bytes;
}

/// The value of an instruction whose inputs are known; empty when it has none, or is too large.
HostBuffer compute(const Instruction& instruction, const std::vector<HostBuffer>& known,
                   std::int64_t max_bytes) {
  const OpDef& def = *instruction.op.def();
  if (def.reference == nullptr || def.traits.updates_input >= 0) return {};
  std::vector<HostView> inputs;
  std::vector<Shape> shapes;
  for (const ValueId id : instruction.operands) {
    if (known[id].is_empty()) return {};
    inputs.push_back(known[id].view());
    shapes.push_back(known[id].shape());
  }
  try {
    const Shape shape = def.infer(instruction.op.attributes(), shapes).without_tags();
    if (!shape.is_static() || shape.bytes() > max_bytes) return {};
    HostBuffer result = HostBuffer::uninitialized(shape);
    def.reference(instruction.op.attributes(), inputs, result.view());
    return result;
  } catch (const Error&) {
    return {};  // such as an index out of range: it then fails when it is run
  }
}

}  // namespace

int fold_constants(Program& program, Function& function, std::int64_t max_bytes) {
  return passes::ConstantFolder(program, max_bytes)
      .fold(function, passes::is_called(program, function));
}

passes::ConstantFolder::ConstantFolder(Program& program, std::int64_t max_bytes)
    : program_(program), max_bytes_(max_bytes), may_fold_(prefix_is_free(program)) {
  const bool is_bounded = max_bytes <= std::numeric_limits<std::int64_t>::max() / most_results;
  left_ = is_bounded ? max_bytes * most_results - folded_bytes(program)
                     : std::numeric_limits<std::int64_t>::max();
}

int passes::ConstantFolder::fold(Function& function, bool is_called) {
  if (!may_fold_) return 0;
  auto& arrays = program_.folded;
  int folded = 0;
  std::vector<HostBuffer> known(function.values.size());
  // A constant cannot be updated in place: values that are stay computed.
  const std::vector<bool> updated = updated_values(function, is_called);
  for (Instruction& instruction : function.body) {
    HostBuffer& value = known[instruction.result];
    if (instruction.kind == Kind::constant && instruction.operands.empty()) {
      if (const auto found = arrays.find(instruction.text); found != arrays.end()) {
        value = found->second;
      }
    }
    if (instruction.kind != Kind::op || updated[instruction.result]) continue;
    value = compute(instruction, known, std::min(max_bytes_, left_));
    if (value.is_empty()) continue;
    left_ -= value.shape().bytes();
    const std::string base =
        fmt::format("{}{}.{}", prefix, function.name, function.values[instruction.result].name);
    std::string name = base;
    for (int i = 1; arrays.contains(name); ++i) name = fmt::format("{}.{}", base, i);
    instruction.kind = Kind::constant;
    instruction.op = {};
    instruction.operands.clear();
    instruction.text = name;
    function.values[instruction.result].shape = value.shape();
    arrays.emplace(std::move(name), value);
    ++folded;
  }
  return folded;
}

}  // namespace tenon
