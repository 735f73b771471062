#include "program/same.hpp"

#include <tenon/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <variant>

namespace tenon {

bool same_attribute(const AttributeValue& a, const AttributeValue& b) noexcept {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return std::isnan(*x) ? std::isnan(*y) : *x == *y && std::signbit(*x) == std::signbit(*y);
}

bool same_op(const OpInstance& a, const OpInstance& b) noexcept {
  if (a.def() != b.def()) return false;
  return a.def() == nullptr ||
         std::ranges::all_of(a.def()->fields, [&](const AttributeField& field) {
           return same_attribute(field.get(a.attributes()), field.get(b.attributes()));
         });
}

std::size_t hash_op(const OpInstance& op) noexcept {
  std::size_t value = std::hash<const void*>()(op.def());
  if (op.def() == nullptr) return value;
  const auto mix = [&](std::size_t part) { value = value * 1099511628211u ^ part; };
  for (const AttributeField& field : op.def()->fields) {
    const AttributeValue attribute = field.get(op.attributes());
    if (const auto* number = std::get_if<double>(&attribute)) {
      mix(std::isnan(*number) ? 1 : std::hash<double>()(*number));
    } else if (const auto* integer = std::get_if<std::int64_t>(&attribute)) {
      mix(std::hash<std::int64_t>()(*integer));
    } else if (const auto* list = std::get_if<IntList>(&attribute)) {
      for (const std::int64_t element : *list) mix(std::hash<std::int64_t>()(element));
    }
  }
  return value;
}

namespace {

bool same_value(const Value& a, const Value& b) {
  return a.name == b.name && a.kind == b.kind && a.shape == b.shape;
}

bool same_instruction(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && same_op(a.op, b.op) && a.text == b.text && a.function == b.function &&
         a.index == b.index && a.count == b.count && a.first == b.first &&
         a.condition == b.condition && a.operands == b.operands && a.result == b.result;
}

bool same_function(const Function& a, const Function& b) {
  return a.name == b.name && a.parameter_count == b.parameter_count && a.results == b.results &&
         std::ranges::equal(a.values, b.values, same_value) &&
         std::ranges::equal(a.body, b.body, same_instruction);
}

}  // namespace

bool same_program(const Program& a, const Program& b) {
  return a.name == b.name && a.opset == b.opset && a.weights_file == b.weights_file &&
         a.weights_sha256 == b.weights_sha256 && a.entry == b.entry &&
         std::ranges::equal(a.functions, b.functions, same_function);
}

}  // namespace tenon
