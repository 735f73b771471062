#include "passes/function_editor.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tenon::passes {

using Kind = Instruction::Kind;

FunctionEditor::FunctionEditor(Function& function, bool is_called)
    : function_(function),
      uses_(function.values.size()),
      updated_(updated_values(function, is_called)) {
  for (std::size_t i = 0; i < function.body.size(); ++i) add_uses(i);
  add_uses(results);
}

const Instruction* FunctionEditor::definition(ValueId id) const noexcept {
  return id < function_.parameter_count ? nullptr : &function_.body[id - function_.parameter_count];
}

std::optional<double> FunctionEditor::constant_value(ValueId id) const noexcept {
  const Full* full = made_by<Full>(id);
  return full != nullptr ? std::optional(full->value) : std::nullopt;
}

void FunctionEditor::replace(std::size_t i, OpInstance op, std::vector<ValueId> operands) {
  Instruction& instruction = function_.body[i];
  for (const ValueId id : instruction.operands) --uses_[id];
  instruction.op = std::move(op);
  instruction.operands = std::move(operands);
  add_uses(i);
}

ValueId FunctionEditor::insert(std::size_t i, std::string_view name, OpInstance op,
                               std::vector<ValueId> operands) {
  std::vector<Shape> inputs;
  for (const ValueId id : operands) {
    const Value& value = function_.values[id];
    if (!value.shape)
      throw Error(Errc::internal, value.name, "a rewrite of a value without a type");
    inputs.push_back(*value.shape);
  }
  const Shape shape = op.def()->infer(op.attributes(), inputs).without_tags();
  Instruction instruction;
  instruction.op = std::move(op);
  instruction.operands = std::move(operands);
  instruction.result = function_.add_value({unused_name(name), ValueKind::tensor, shape});
  instruction.line = function_.body[i].line;
  const ValueId added = instruction.result;
  function_.body.push_back(std::move(instruction));
  inserted_.push_back(i);
  uses_.push_back(0);
  updated_.push_back(false);
  if (!users_.empty()) users_.emplace_back();
  add_uses(function_.body.size() - 1);
  return added;
}

void FunctionEditor::add_uses(std::size_t instruction) {
  const std::vector<ValueId>& operands = operands_of(instruction);
  for (std::size_t k = 0; k < operands.size(); ++k) {
    ++uses_[operands[k]];
    if (!users_.empty()) users_[operands[k]].push_back({instruction, k});
  }
}

std::string FunctionEditor::unused_name(std::string_view name) {
  if (names_.empty()) {
    for (const Value& value : function_.values) names_.insert(value.name);
  }
  std::string unique(name);
  int& next = next_number_[unique];  // all below are taken
  while (!names_.insert(unique).second) unique = fmt::format("{}{}", name, next++);
  return unique;
}

void FunctionEditor::forward(ValueId from, ValueId to) {
  if (users_.empty()) {
    users_.resize(function_.values.size());
    std::ranges::fill(uses_, 0);
    for (std::size_t i = 0; i < function_.body.size(); ++i) add_uses(i);
    add_uses(results);
  }
  for (const Use& use : std::exchange(users_[from], {})) {
    std::vector<ValueId>& operands = operands_of(use.instruction);
    if (use.operand >= operands.size() || operands[use.operand] != from) continue;
    operands[use.operand] = to;
    users_[to].push_back(use);
  }
  uses_[to] += std::exchange(uses_[from], 0);
}

void FunctionEditor::finish() {
  if (inserted_.empty()) return;
  std::vector<std::pair<std::size_t, std::size_t>> inserted;  // before which, and itself
  for (std::size_t k = 0; k < inserted_.size(); ++k)
    inserted.emplace_back(inserted_[k], size() + k);
  std::ranges::sort(inserted);
  std::vector<std::size_t> order;
  auto next = inserted.begin();
  for (std::size_t i = 0; i < size(); ++i) {
    for (; next != inserted.end() && next->first == i; ++next) order.push_back(next->second);
    order.push_back(i);
  }
  order_instructions(function_, order);
  inserted_.clear();
}

bool same_type(const std::optional<Shape>& a, const std::optional<Shape>& b) noexcept {
  return a && b && *a == *b &&
         std::ranges::none_of(a->dims(), [](std::int64_t dim) { return dim == unknown_dim; });
}

bool gives(const FunctionEditor& editor, const OpInstance& op, const std::vector<ValueId>& operands,
           const std::optional<Shape>& type) {
  std::vector<Shape> inputs;
  for (const ValueId id : operands) {
    if (!editor.type(id)) return false;
    inputs.push_back(*editor.type(id));
  }
  try {
    return same_type(op.def()->infer(op.attributes(), inputs), type);
  } catch (const Error&) {
    return false;
  }
}

std::unordered_set<std::string> called_functions(const Program& program) {
  std::unordered_set<std::string> called;
  for (const Function& function : program.functions) {
    for (const Instruction& instruction : function.body) {
      if (instruction.kind == Kind::call) called.insert(instruction.function);
    }
  }
  return called;
}

bool is_called(const Program& program, const Function& function) {
  return std::ranges::any_of(program.functions, [&](const Function& caller) {
    return std::ranges::any_of(caller.body, [&](const Instruction& instruction) {
      return instruction.kind == Kind::call && instruction.function == function.name;
    });
  });
}

std::vector<bool> updated_values(const Function& function, bool is_called) {
  // Values of one storage form a tree; its root says whether anything updates it.
  std::vector<ValueId> parent(function.values.size());
  std::iota(parent.begin(), parent.end(), ValueId{0});
  std::vector<bool> updated(function.values.size());
  const auto root = [&](ValueId id) {
    while (parent[id] != id) id = parent[id] = parent[parent[id]];
    return id;
  };
  const auto join = [&](ValueId a, ValueId b) {
    a = root(a);
    b = root(b);
    if (a == b) return;
    parent[a] = b;
    updated[b] = updated[a] || updated[b];
  };
  for (const Instruction& instruction : function.body) {
    switch (instruction.kind) {
      case Kind::op: {
        const OpDef& def = *instruction.op.def();
        if (instruction.operands.empty()) break;
        if (const int input = def.traits.updates_input; input >= 0) {
          join(instruction.result, instruction.operands[static_cast<std::size_t>(input)]);
          updated[root(instruction.result)] = true;
        } else if (def.traits.view || def.view != nullptr || def.traits.selects) {
          join(instruction.result, instruction.operands[0]);
        }
        break;
      }
      case Kind::pack:
      case Kind::call:
        for (const ValueId id : instruction.operands) join(instruction.result, id);
        updated[root(instruction.result)] = true;
        break;
      case Kind::item: {
        const Instruction* tuple =
            instruction.operands[0] < function.parameter_count
                ? nullptr
                : &function.body[instruction.operands[0] - function.parameter_count];
        // What a loop returns is storage of its own.
        if (tuple == nullptr || tuple->kind != Kind::repeat)
          join(instruction.result, instruction.operands[0]);
        break;
      }
      case Kind::constant:
      case Kind::scope:
      case Kind::repeat:
        break;
    }
  }
  // A caller gets the results' own storage, and may update it.
  for (const ValueId id : function.results) updated[root(id)] = updated[root(id)] || is_called;
  std::vector<bool> result(function.values.size());
  for (ValueId id = 0; id < result.size(); ++id) result[id] = updated[root(id)];
  return result;
}

void keep_instructions(Function& function, const std::vector<bool>& keep) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) order.push_back(i);
  }
  order_instructions(function, order);
}

void order_instructions(Function& function, const std::vector<std::size_t>& order) {
  const std::size_t parameters = function.parameter_count;
  std::vector<ValueId> number(function.values.size());
  std::iota(number.begin(), number.begin() + function.parameter_count, ValueId{0});
  std::vector<Value> values(
      std::make_move_iterator(function.values.begin()),
      std::make_move_iterator(function.values.begin() + static_cast<std::ptrdiff_t>(parameters)));
  std::vector<Instruction> body;
  values.reserve(parameters + order.size());
  body.reserve(order.size());
  for (const std::size_t i : order) {
    Instruction& instruction = body.emplace_back(std::move(function.body[i]));
    number[instruction.result] = static_cast<ValueId>(values.size());
    values.push_back(std::move(function.values[instruction.result]));
    instruction.result = number[instruction.result];
    for (ValueId& id : instruction.operands) id = number[id];
  }
  function.values = std::move(values);
  function.body = std::move(body);
  for (ValueId& id : function.results) id = number[id];
}

}  // namespace tenon::passes
