#include "base/utf8.hpp"
#include "graph/operand_count.hpp"
#include "program/findings.hpp"
#include "program/words.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace tenon::checking {
namespace {

using Kind = Instruction::Kind;
using Functions = std::unordered_map<std::string_view, const Function*>;

std::string_view kind_name(ValueKind kind) noexcept {
  switch (kind) {
    case ValueKind::tensor:
      return "a tensor";
    case ValueKind::tuple:
      return "a tuple";
    case ValueKind::scope:
      return "a scope";
  }
  return "no value";
}

class FunctionChecker {
 public:
  FunctionChecker(const Functions& functions, const Function& function, int index,
                  Findings& findings)
      : functions_(functions), function_(function), index_(index), findings_(findings) {}

  void run();

 private:
  template <class... Args>
  void add(Errc code, int instruction, int operand, fmt::format_string<Args...> format,
           Args&&... args) {
    findings_.add(code, {index_, instruction, operand},
                  fmt::format(format, std::forward<Args>(args)...));
  }

  void check_values();
  void check_type(const Value& value, int instruction, int operand);
  void check_instruction(const Instruction& instruction, int i);
  bool check_operands(const Instruction& instruction, int i);
  void check_op(const Instruction& instruction, int i);
  void check_text(const Instruction& instruction, int i);
  void check_item(const Instruction& instruction, int i);
  void check_repeat(const Instruction& instruction, int i);
  void check_call(const Instruction& instruction, int i);
  void check_argument(const Function& callee, std::size_t parameter, ValueKind given, int i,
                      int operand);
  void check_result_kind(const Instruction& instruction, int i, ValueKind kind);
  void check_results();
  const Function* callee(const Instruction& instruction, int i);

  /// How many values a tuple holds; the tuple comes from pack, repeat or call.
  std::size_t tuple_size(ValueId id) const { return tuple_sizes_[id]; }
  ValueKind kind(ValueId id) const { return function_.values[id].kind; }
  const std::string& name(ValueId id) const { return function_.values[id].name; }

  const Functions& functions_;
  const Function& function_;
  int index_;
  Findings& findings_;
  std::vector<std::size_t> tuple_sizes_;
};

void FunctionChecker::run() {
  const Function& f = function_;
  if (!is_identifier(f.name) || is_keyword(f.name)) {
    add(Errc::bad_reference, Spot::nowhere, Spot::nowhere, "'{}' is no name for a function",
        f.name);
  } else if (is_builtin(f.name)) {
    add(Errc::duplicate_name, Spot::nowhere, Spot::nowhere,
        "a function cannot be called '{}', which is {}", f.name,
        find_op(f.name) != nullptr ? "an op" : "a word of the language");
  }
  if (f.parameter_count > program_limits::operands) {
    add(Errc::limit_exceeded, Spot::nowhere, Spot::nowhere, "{} parameters; at most {} are allowed",
        f.parameter_count, program_limits::operands);
    return;
  }
  bool in_order = f.values.size() == f.parameter_count + f.body.size();
  for (std::size_t i = 0; in_order && i < f.body.size(); ++i) {
    in_order = f.body[i].result == f.parameter_count + i;
  }
  if (!in_order) {
    add(Errc::bad_reference, Spot::nowhere, Spot::nowhere,
        "values of '{}' are not its parameters followed by its results in order", f.name);
    return;
  }
  check_values();
  tuple_sizes_.resize(f.values.size());
  for (std::size_t i = 0; i < f.body.size() && !findings_.full(); ++i) {
    check_instruction(f.body[i], static_cast<int>(i));
  }
  check_results();
}

void FunctionChecker::check_values() {
  std::unordered_map<std::string_view, std::size_t> first;
  for (std::size_t i = 0; i < function_.values.size() && !findings_.full(); ++i) {
    const Value& value = function_.values[i];
    const bool parameter = i < function_.parameter_count;
    const int instruction =
        parameter ? Spot::nowhere : static_cast<int>(i - function_.parameter_count);
    const int operand = parameter ? static_cast<int>(i) : Spot::nowhere;
    if (!is_identifier(value.name) || is_keyword(value.name)) {
      add(Errc::bad_reference, instruction, operand, "'{}' is no name for a value", value.name);
    }
    const auto [other, added] = first.emplace(value.name, i);
    if (!added) {
      const std::size_t before = other->second;
      const int line = before < function_.parameter_count
                           ? 0
                           : function_.body[before - function_.parameter_count].line.line;
      add(Errc::duplicate_name, instruction, operand, "'{}' is already {}", value.name,
          before < function_.parameter_count ? std::string("a parameter")
          : line > 0                         ? fmt::format("defined at line {}", line)
                                             : std::string("defined"));
    }
    if (parameter && value.kind == ValueKind::tuple) {
      add(Errc::bad_type, instruction, operand, "parameter '{}' is a tuple; pass its items",
          value.name);
    }
    check_type(value, instruction, operand);
  }
}

void FunctionChecker::check_type(const Value& value, int instruction, int operand) {
  if (!value.shape) return;
  if (value.kind != ValueKind::tensor) {
    add(Errc::bad_type, instruction, operand, "'{}' is {} and has no tensor type", value.name,
        kind_name(value.kind));
    return;
  }
  std::int64_t elements = 1;
  for (const std::int64_t dim : value.shape->dims()) {
    if (is_static(dim) &&
        (__builtin_mul_overflow(elements, dim, &elements) || elements > program_limits::elements)) {
      add(Errc::limit_exceeded, instruction, operand, "'{}' is {}, of more than 2^40 elements",
          value.name, to_string(*value.shape));
      return;
    }
  }
}

void FunctionChecker::check_instruction(const Instruction& instruction, int i) {
  if (!check_operands(instruction, i)) return;
  const std::size_t count = instruction.operands.size();
  switch (instruction.kind) {
    case Kind::op:
      return check_op(instruction, i);
    case Kind::constant:
    case Kind::scope:
      return check_text(instruction, i);
    case Kind::pack:
      check_result_kind(instruction, i, ValueKind::tuple);
      if (count == 0) add(Errc::bad_argument, i, Spot::nowhere, "nothing to pack");
      for (std::size_t k = 0; k < count; ++k) {
        if (kind(instruction.operands[k]) != ValueKind::tensor) {
          add(Errc::bad_type, i, static_cast<int>(k), "'{}' is {}; only tensors can be packed",
              name(instruction.operands[k]), kind_name(kind(instruction.operands[k])));
        }
      }
      tuple_sizes_[instruction.result] = count;
      return;
    case Kind::item:
      return check_item(instruction, i);
    case Kind::repeat:
      return check_repeat(instruction, i);
    case Kind::call:
      return check_call(instruction, i);
  }
  add(Errc::internal, i, Spot::nowhere, "an instruction of no kind");
}

bool FunctionChecker::check_operands(const Instruction& instruction, int i) {
  if (instruction.operands.size() > program_limits::operands) {
    add(Errc::limit_exceeded, i, Spot::nowhere, "{} operands; at most {} are allowed",
        instruction.operands.size(), program_limits::operands);
    return false;
  }
  for (std::size_t k = 0; k < instruction.operands.size(); ++k) {
    const ValueId id = instruction.operands[k];
    if (id < instruction.result) continue;
    if (id < function_.values.size()) {
      add(Errc::bad_reference, i, static_cast<int>(k), "'{}' is used before it is defined",
          name(id));
    } else {
      add(Errc::bad_reference, i, static_cast<int>(k), "operand {} is value {} of {}", k, id,
          function_.values.size());
    }
    return false;
  }
  return true;
}

void FunctionChecker::check_op(const Instruction& instruction, int i) {
  const OpDef* def = instruction.op.def();
  if (def == nullptr) {
    add(Errc::unknown_op, i, Spot::nowhere, "an instruction without an op");
    return;
  }
  check_result_kind(instruction, i, ValueKind::tensor);
  const std::size_t count = instruction.operands.size();
  if (const auto refused = refused_operand_count(*def, static_cast<int>(count))) {
    add(Errc::bad_argument, i, Spot::nowhere, "{}", *refused);
  }
  for (std::size_t k = 0; k < count; ++k) {
    if (kind(instruction.operands[k]) == ValueKind::tensor) continue;
    add(Errc::bad_type, i, static_cast<int>(k), "'{}' is {}, not a tensor",
        name(instruction.operands[k]), kind_name(kind(instruction.operands[k])));
  }
  for (const AttributeField& field : def->fields) {
    const AttributeValue value = field.get(instruction.op.attributes());
    if (const auto* word = std::get_if<Name>(&value); word != nullptr && !is_utf8(word->text())) {
      add(Errc::bad_encoding, i, Spot::nowhere, "attribute {} is not UTF-8", field.name);
    }
  }
}

void FunctionChecker::check_text(const Instruction& instruction, int i) {
  const bool scope = instruction.kind == Kind::scope;
  check_result_kind(instruction, i, scope ? ValueKind::scope : ValueKind::tensor);
  if (instruction.text.empty()) add(Errc::bad_reference, i, Spot::nowhere, "an empty name");
  if (!is_utf8(instruction.text))
    add(Errc::bad_encoding, i, Spot::nowhere, "a name that is not UTF-8");
  if (instruction.operands.size() > 1) {
    add(Errc::bad_argument, i, 1, "takes one scope and one name");
  } else if (instruction.operands.size() == 1 &&
             kind(instruction.operands[0]) != ValueKind::scope) {
    add(Errc::bad_type, i, 0, "'{}' is {}, not a scope", name(instruction.operands[0]),
        kind_name(kind(instruction.operands[0])));
  }
}

void FunctionChecker::check_item(const Instruction& instruction, int i) {
  check_result_kind(instruction, i, ValueKind::tensor);
  if (instruction.operands.size() != 1) {
    add(Errc::bad_argument, i, Spot::nowhere, "takes one tuple and one index");
    return;
  }
  const ValueId tuple = instruction.operands[0];
  if (kind(tuple) != ValueKind::tuple) {
    add(Errc::bad_type, i, 0, "'{}' is {}, not a tuple", name(tuple), kind_name(kind(tuple)));
    return;
  }
  const auto size = static_cast<std::int64_t>(tuple_size(tuple));
  if (size > 0 && (instruction.index < 0 || instruction.index >= size)) {
    add(Errc::out_of_range, i, Spot::nowhere, "item {} of '{}', which has {}", instruction.index,
        name(tuple), size);
  }
}

const Function* FunctionChecker::callee(const Instruction& instruction, int i) {
  const auto found = functions_.find(instruction.function);
  if (found != functions_.end()) return found->second;
  add(Errc::bad_reference, i, Spot::nowhere, "there is no function '{}'", instruction.function);
  return nullptr;
}

void FunctionChecker::check_argument(const Function& callee, std::size_t parameter, ValueKind given,
                                     int i, int operand) {
  const Value& wanted = callee.values[parameter];
  if (wanted.kind == given) return;
  add(Errc::bad_type, i, operand, "parameter '{}' of '{}' is {}, not {}", wanted.name, callee.name,
      kind_name(wanted.kind), kind_name(given));
}

void FunctionChecker::check_call(const Instruction& instruction, int i) {
  const Function* f = callee(instruction, i);
  if (f == nullptr) return;
  const std::size_t results = f->results.size();
  check_result_kind(instruction, i, results == 1 ? ValueKind::tensor : ValueKind::tuple);
  if (results > 1) tuple_sizes_[instruction.result] = results;
  const auto parameters = static_cast<int>(f->parameter_count);
  if (const auto refused = refused_operand_count(parameters, parameters,
                                                 static_cast<int>(instruction.operands.size()))) {
    add(Errc::bad_argument, i, Spot::nowhere, "{}", *refused);
    return;
  }
  if (f->values.size() < f->parameter_count) return;  // it has findings of its own
  for (std::size_t k = 0; k < instruction.operands.size(); ++k) {
    check_argument(*f, k, kind(instruction.operands[k]), i, static_cast<int>(k));
  }
}

void FunctionChecker::check_repeat(const Instruction& instruction, int i) {
  check_result_kind(instruction, i, ValueKind::tuple);
  const std::vector<ValueId>& operands = instruction.operands;
  if (operands.size() < 2 || kind(operands[0]) != ValueKind::tuple ||
      kind(operands[1]) != ValueKind::scope) {
    add(Errc::bad_argument, i, Spot::nowhere,
        "takes a function, a count, a tuple, a scope and extras");
    return;
  }
  const std::size_t carried = tuple_size(operands[0]);
  tuple_sizes_[instruction.result] = carried;
  if (instruction.count < 0 || instruction.first < 0 ||
      instruction.count > program_limits::constants ||
      instruction.first > (std::int64_t{1} << 32)) {
    add(Errc::out_of_range, i, Spot::nowhere, "cannot count {} times from {}", instruction.count,
        instruction.first);
  }
  if (instruction.condition < -1 ||
      (carried > 0 && instruction.condition >= static_cast<std::int64_t>(carried))) {
    add(Errc::out_of_range, i, Spot::nowhere, "condition {}: {} values are carried",
        instruction.condition, carried);
    return;
  }
  const Function* f = callee(instruction, i);
  if (f == nullptr) return;
  if (carried == 0) return;  // the error of the tuple is already reported
  const std::size_t wanted = carried + 2 + (operands.size() - 2);
  if (f->parameter_count != wanted || f->values.size() < wanted) {
    add(Errc::bad_argument, i, Spot::nowhere,
        "'{}' takes {} parameters, but {} carried values, an index, a scope and {} extras are {}",
        f->name, f->parameter_count, carried, operands.size() - 2, wanted);
    return;
  }
  if (f->results.size() != carried) {
    add(Errc::bad_argument, i, Spot::nowhere, "'{}' returns {} values, but {} are carried", f->name,
        f->results.size(), carried);
  }
  for (std::size_t k = 0; k <= carried; ++k) check_argument(*f, k, ValueKind::tensor, i, 0);
  check_argument(*f, carried + 1, ValueKind::scope, i, 1);
  for (std::size_t k = 2; k < operands.size(); ++k) {
    check_argument(*f, carried + k, kind(operands[k]), i, static_cast<int>(k));
  }
  const std::optional<Shape>& index = f->values[carried].shape;
  if (index && (index->dtype() != i64 || index->rank() != 0)) {
    add(Errc::bad_type, i, Spot::nowhere,
        "parameter '{}' of '{}' counts the repetitions: it is {}, not {}", f->values[carried].name,
        f->name, to_string(Shape({}, i64)), to_string(*index));
  }
}

void FunctionChecker::check_result_kind(const Instruction& instruction, int i, ValueKind wanted) {
  if (kind(instruction.result) == wanted) return;
  add(Errc::bad_type, i, Spot::nowhere, "'{}' is declared as {}, but this makes {}",
      name(instruction.result), kind_name(kind(instruction.result)), kind_name(wanted));
}

void FunctionChecker::check_results() {
  if (function_.results.empty() || function_.results.size() > program_limits::operands) {
    add(Errc::bad_argument, Spot::in_return, Spot::nowhere,
        "'{}' returns {} values; 1 to {} are possible", function_.name, function_.results.size(),
        program_limits::operands);
    return;
  }
  for (std::size_t k = 0; k < function_.results.size(); ++k) {
    const ValueId id = function_.results[k];
    if (id >= function_.values.size()) {
      add(Errc::bad_reference, Spot::in_return, static_cast<int>(k), "'{}' returns value {} of {}",
          function_.name, id, function_.values.size());
    } else if (kind(id) != ValueKind::tensor) {
      add(Errc::bad_type, Spot::in_return, static_cast<int>(k),
          "'{}' is {}; functions return tensors", name(id), kind_name(kind(id)));
    }
  }
}

}  // namespace

void check_structure(const Program& program, Findings& findings) {
  std::int64_t instructions = 0;
  for (const Function& function : program.functions) instructions += std::ssize(function.body) + 1;
  if (instructions > program_limits::instructions) {
    findings.add(Errc::limit_exceeded, {},
                 fmt::format("{} instructions; at most {} are allowed", instructions,
                             program_limits::instructions));
    return;
  }
  for (const std::string* text : {&program.name, &program.weights_file, &program.weights_sha256}) {
    if (!is_utf8(*text)) findings.add(Errc::bad_encoding, {}, "a name of the module is not UTF-8");
  }
  Functions functions;
  for (std::size_t i = 0; i < program.functions.size(); ++i) {
    const Function& function = program.functions[i];
    if (!functions.emplace(function.name, &function).second) {
      findings.add(Errc::duplicate_name, {static_cast<int>(i), Spot::nowhere, Spot::nowhere},
                   fmt::format("there is another function '{}'", function.name));
    }
  }
  for (std::size_t i = 0; i < program.functions.size() && !findings.full(); ++i) {
    FunctionChecker(functions, program.functions[i], static_cast<int>(i), findings).run();
  }
  const auto entry = functions.find(program.entry);
  if (entry == functions.end()) {
    findings.add(Errc::bad_reference, {},
                 fmt::format("there is no function '{}' to start with", program.entry));
    return;
  }
  const Function& main = *entry->second;
  const auto index = static_cast<int>(&main - program.functions.data());
  for (std::uint32_t k = 0; k < main.parameter_count && k < main.values.size(); ++k) {
    if (main.values[k].kind == ValueKind::tensor) continue;
    findings.add(Errc::bad_type, {index, Spot::nowhere, static_cast<int>(k)},
                 fmt::format("parameter '{}' of '{}' is {}; a program takes tensors",
                             main.values[k].name, main.name, kind_name(main.values[k].kind)));
  }
}

}  // namespace tenon::checking
