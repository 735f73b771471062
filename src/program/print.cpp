#include "program/literals.hpp"
#include "program/same.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <string>

#include <fmt/format.h>

namespace tenon {
namespace {

using Kind = Instruction::Kind;

/// A type as an annotation: a scalar is "f32", since Python has no empty index.
std::string type_text(const Shape& shape) {
  return shape.rank() == 0 ? std::string(name(shape.dtype())) : to_string(shape.without_tags());
}

class Printer {
 public:
  std::string run(const Program& program);

 private:
  void header(const Program& program);
  void function(const Function& function);
  void statement(const Function& function, const Instruction& instruction);
  void arguments(const Function& function, const Instruction& instruction);
  void attributes(const OpInstance& op);

  const Value& value(const Function& function, ValueId id) const {
    if (id < function.values.size()) return function.values[id];
    throw Error(Errc::bad_reference, "print",
                fmt::format("'{}' has no value {}", function.name, id));
  }
  void argument(std::string_view text) {
    if (!first_) text_ += ", ";
    first_ = false;
    text_ += text;
  }

  std::string text_;
  bool first_ = true;  ///< nothing has been written between the parentheses
};

std::string Printer::run(const Program& program) {
  header(program);
  for (const Function& f : program.functions) function(f);
  return std::move(text_);
}

void Printer::header(const Program& program) {
  text_ = "# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n";
  text_ += fmt::format("module({}, opset={}", string_literal(program.name), program.opset);
  const auto optional = [&](std::string_view name, std::string_view value,
                            std::string_view unless) {
    if (value != unless) text_ += fmt::format(", {}={}", name, string_literal(value));
  };
  optional("weights", program.weights_file, "");
  optional("sha256", program.weights_sha256, "");
  optional("entry", program.entry, "forward");
  text_ += ")\n";
}

void Printer::function(const Function& function) {
  text_ += fmt::format("\ndef {}(", function.name);
  first_ = true;
  for (ValueId id = 0; id < function.parameter_count; ++id) {
    const Value& parameter = value(function, id);
    if (parameter.kind == ValueKind::scope) {
      argument(parameter.name + ": Scope");
    } else {
      argument(parameter.shape ? fmt::format("{}: {}", parameter.name, type_text(*parameter.shape))
                               : parameter.name + ": Tensor");
    }
  }
  text_ += "):\n";
  for (const Instruction& instruction : function.body) statement(function, instruction);
  text_ += "    return ";
  first_ = true;
  for (const ValueId id : function.results) argument(value(function, id).name);
  text_ += '\n';
}

void Printer::statement(const Function& function, const Instruction& instruction) {
  const Value& result = value(function, instruction.result);
  text_ += "    " + result.name;
  if (result.shape) text_ += ": " + type_text(*result.shape);
  text_ += " = ";
  switch (instruction.kind) {
    case Kind::op:
      if (instruction.op.def() == nullptr) {
        throw Error(Errc::unknown_op, "print", fmt::format("'{}' is made by no op", result.name));
      }
      text_ += instruction.op.def()->name;
      break;
    case Kind::constant:
      text_ += "const";
      break;
    case Kind::scope:
      text_ += "scope";
      break;
    case Kind::pack:
      text_ += "pack";
      break;
    case Kind::item:
      text_ += "item";
      break;
    case Kind::repeat:
      text_ += "repeat";
      break;
    case Kind::call:
      text_ += instruction.function;
      break;
  }
  text_ += '(';
  first_ = true;
  arguments(function, instruction);
  text_ += ")\n";
}

void Printer::arguments(const Function& function, const Instruction& instruction) {
  if (instruction.kind == Kind::repeat) {
    argument(instruction.function);
    argument(fmt::format("{}", instruction.count));
  }
  for (const ValueId id : instruction.operands) argument(value(function, id).name);
  switch (instruction.kind) {
    case Kind::op:
      attributes(instruction.op);
      break;
    case Kind::constant:
    case Kind::scope:
      argument(string_literal(instruction.text));
      break;
    case Kind::item:
      argument(fmt::format("{}", instruction.index));
      break;
    case Kind::repeat:
      if (instruction.first != 0) argument(fmt::format("first={}", instruction.first));
      if (instruction.condition >= 0) argument(fmt::format("condition={}", instruction.condition));
      break;
    case Kind::pack:
    case Kind::call:
      break;
  }
}

void Printer::attributes(const OpInstance& op) {
  for (const AttributeField& field : op.def()->fields) {
    const AttributeValue held = field.get(op.attributes());
    if (same_attribute(held, field.get(op.def()->defaults))) continue;
    argument(fmt::format("{}={}", field.name, literal(held)));
  }
}

}  // namespace

std::string print(const Program& program) { return Printer().run(program); }

}  // namespace tenon
