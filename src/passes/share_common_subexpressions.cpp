#include "passes/function_editor.hpp"
#include "program/same.hpp"

#include <tenon/optimize.hpp>

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

namespace tenon {
namespace {

using Kind = Instruction::Kind;

bool can_be_shared(const Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::op:
      return instruction.op.def()->traits.updates_input < 0;
    case Kind::constant:
    case Kind::scope:
      return true;
    case Kind::pack:
    case Kind::item:
    case Kind::repeat:
    case Kind::call:
      return false;
  }
  return false;
}

std::size_t hash(const Instruction& instruction) {
  std::size_t value = static_cast<std::size_t>(instruction.kind);
  const auto mix = [&](std::size_t part) { value = value * 1099511628211u ^ part; };
  mix(hash_op(instruction.op));
  mix(std::hash<std::string_view>()(instruction.text));
  for (const ValueId id : instruction.operands) mix(id);
  return value;
}

bool computes_the_same(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && a.text == b.text && a.operands == b.operands && same_op(a.op, b.op);
}

}  // namespace

int share_common_subexpressions(const Program& program, Function& function) {
  return passes::share_equal_instructions(function, passes::is_called(program, function));
}

int passes::share_equal_instructions(Function& function, bool is_called) {
  const std::vector<bool> updated = updated_values(function, is_called);
  std::unordered_multimap<std::size_t, ValueId> seen;
  std::vector<ValueId> same(function.values.size());
  for (ValueId id = 0; id < same.size(); ++id) same[id] = id;
  std::vector<bool> keep(function.body.size(), true);
  for (std::size_t i = 0; i < function.body.size(); ++i) {
    Instruction& instruction = function.body[i];
    for (ValueId& id : instruction.operands) id = same[id];
    if (!can_be_shared(instruction) || updated[instruction.result]) continue;
    // Sorted, so that a + b and b + a are equal; the instruction that stays keeps its order.
    Instruction key = instruction;
    if (key.kind == Kind::op && key.op.def()->traits.commutative && key.operands.size() >= 2 &&
        key.operands[0] > key.operands[1]) {
      std::swap(key.operands[0], key.operands[1]);
    }
    const std::size_t bucket = hash(key);
    const auto [first, last] = seen.equal_range(bucket);
    const auto equal = std::find_if(first, last, [&](const auto& entry) {
      const Instruction& other = function.body[entry.second - function.parameter_count];
      if (function.values[entry.second].shape != function.values[instruction.result].shape)
        return false;
      if (computes_the_same(key, other)) return true;
      if (key.kind != Kind::op || !key.op.def()->traits.commutative || other.operands.size() < 2)
        return false;
      Instruction swapped = other;
      std::swap(swapped.operands[0], swapped.operands[1]);
      return computes_the_same(key, swapped);
    });
    if (equal == last) {
      seen.emplace(bucket, instruction.result);
    } else {
      same[instruction.result] = equal->second;
      keep[i] = false;
    }
  }
  for (ValueId& id : function.results) id = same[id];
  const auto shared = static_cast<int>(std::ranges::count(keep, false));
  if (shared > 0) passes::keep_instructions(function, keep);
  return shared;
}

}  // namespace tenon
