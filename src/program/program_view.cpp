#include <tenon/error.hpp>
#include <tenon/program_view.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

bool is_op(const Instruction& instruction) { return instruction.kind == Instruction::Kind::op; }

void check_range(std::size_t number, std::size_t limit, const Program& program) {
  if (number < limit) return;
  throw Error(Errc::out_of_range, program.name,
              fmt::format("op {}: the program has {}", number, limit));
}

}  // namespace

std::vector<std::string> op_names(const Program& program) {
  const Program flat = unroll(program);
  std::vector<std::string> names;
  for (const Instruction& instruction : flat.main().body) {
    if (is_op(instruction)) names.push_back(flat.main().values[instruction.result].name);
  }
  return names;
}

ProgramView view(const Program& program, const std::vector<std::size_t>& ops) {
  const std::vector<std::string> names = op_names(program);
  ProgramView result;
  for (const std::size_t op : ops) {
    check_range(op, names.size(), program);
    result.values.push_back(names[op]);
  }
  return result;
}

ProgramView view(const Program& program, std::size_t first, std::size_t last) {
  std::vector<std::size_t> ops;
  for (std::size_t op = first; op < last; ++op) ops.push_back(op);
  return view(program, ops);
}

Program extract(const Program& program, std::size_t first, std::size_t last) {
  if (first >= last) {
    throw Error(Errc::bad_argument, program.name,
                fmt::format("a view needs at least one op: [{}, {}) is empty", first, last));
  }
  Program flat = unroll(program);
  verify(flat);  // infers the types of the new parameters
  const Function& whole = flat.main();
  for (const Instruction& instruction : whole.body) {
    if (instruction.kind != Instruction::Kind::repeat) continue;
    throw Error(Errc::unsupported, program.name,
                "a part of a program with a loop that has a condition");
  }

  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < whole.body.size(); ++i) {
    if (is_op(whole.body[i])) ops.push_back(i);
  }
  check_range(last - 1, ops.size(), program);
  const std::size_t begin = ops[first], end = ops[last - 1] + 1;

  std::vector<const Instruction*> maker(whole.values.size(), nullptr);
  std::vector<bool> inside(whole.values.size(), false);
  for (std::size_t i = 0; i < whole.body.size(); ++i) {
    maker[whole.body[i].result] = &whole.body[i];
    inside[whole.body[i].result] = i >= begin && i < end && is_op(whole.body[i]);
  }

  Function part;
  part.name = whole.name;
  std::vector<std::optional<ValueId>> known(whole.values.size());
  for (std::size_t i = begin; i < end; ++i) {
    for (const ValueId id : whole.body[i].operands) {
      const bool comes_in = maker[id] == nullptr || (is_op(*maker[id]) && !inside[id]);
      if (comes_in && !known[id]) known[id] = part.add_value(whole.values[id]);
    }
  }
  part.parameter_count = static_cast<std::uint32_t>(part.values.size());

  // Constants and scopes are added where they are needed, before their first use.
  const auto take = [&](auto&& self, ValueId id) -> ValueId {
    if (known[id]) return *known[id];
    Instruction copy = *maker[id];
    for (ValueId& operand : copy.operands) operand = self(self, operand);
    copy.result = part.add_value(whole.values[id]);
    part.body.push_back(std::move(copy));
    known[id] = part.body.back().result;
    return *known[id];
  };
  for (std::size_t i = begin; i < end; ++i) {
    if (is_op(whole.body[i])) take(take, whole.body[i].result);
  }

  std::vector<bool> read_outside(whole.values.size(), false);
  for (const ValueId id : whole.results) read_outside[id] = true;
  for (std::size_t i = end; i < whole.body.size(); ++i) {
    for (const ValueId id : whole.body[i].operands) read_outside[id] = true;
  }
  for (std::size_t i = begin; i < end; ++i) {
    const ValueId id = whole.body[i].result;
    if (inside[id] && read_outside[id]) part.results.push_back(*known[id]);
  }
  if (part.results.empty()) part.results.push_back(*known[whole.body[end - 1].result]);

  flat.functions = {std::move(part)};
  verify(flat);
  return flat;
}

}  // namespace tenon
