#include "program/findings.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>

#include <unordered_map>

#include <fmt/format.h>

// An op with OpTraits::updates_input overwrites that operand and returns it. In the text that is a
// new value; the old one, and all values that share its storage, must not be read afterwards.
// Storage has a version, which each update increments; every value has the version it belongs to.

namespace tenon::checking {
namespace {

using Kind = Instruction::Kind;

/// Storage that values of a function share.
struct Root {
  enum class Origin : std::uint8_t { parameter, constant, made };

  Origin origin = Origin::made;
  int parameter = -1;
  int version = 0;
  bool is_object = false;        ///< of a linear class: its copies are the object itself
  ValueId latest = 0;            ///< the whole value at this version
  int consumer = Spot::nowhere;  ///< the instruction that made this version
};

struct Holder {
  int root = -1;  ///< -1: a tuple or a scope
  int version = 0;
  bool whole = true;  ///< not a view of it
};

/// What a call does to its arguments, and the storage of its results.
struct Summary {
  std::vector<bool> consumes;  ///< per parameter
  struct Result {
    int parameter = -1;  ///< whose storage it shares; -1: none
    bool whole = true;
    bool constant = false;
    int root = -1;  ///< of the function: results of one root share their storage
    /// No other result has this root. A part of storage that nobody has otherwise counts as a whole.
    bool is_only = true;
  };
  std::vector<Result> results;
};

class LinearityChecker {
 public:
  LinearityChecker(const Function& function, int index,
                   const std::unordered_map<std::string_view, const Summary*>& callees,
                   Findings& findings)
      : function_(function), index_(index), callees_(callees), findings_(findings) {}

  Summary run();

 private:
  using Tuple = std::vector<Holder>;

  void step(const Instruction& instruction, int i);
  void step_op(const Instruction& instruction, int i);
  void step_call(const Instruction& instruction, int i);
  void step_repeat(const Instruction& instruction, int i);

  Holder fresh(ValueId id, Root::Origin origin, int parameter = -1, bool is_object = false) {
    roots_.push_back({origin, parameter, 0, is_object, id, Spot::nowhere});
    return {static_cast<int>(roots_.size() - 1), 0, true};
  }
  bool declares_object(ValueId id) const {
    const std::optional<Shape>& shape = function_.values[id].shape;
    return shape && is_linear_object(shape->dtype());
  }
  Root& root(const Holder& holder) { return roots_[static_cast<std::size_t>(holder.root)]; }
  const std::string& name(ValueId id) const { return function_.values[id].name; }

  /// Reports an error when a value is outdated.
  void read(const Holder& holder, ValueId id, int i, int operand);
  /// Increments the version; false, and reports an error, when the value cannot be overwritten.
  bool consume(const Holder& holder, ValueId id, int i, int operand);
  void complain(int i, int operand, std::string message) {
    findings_.add(Errc::alias, {index_, i, operand}, std::move(message));
  }

  const Function& function_;
  int index_;
  const std::unordered_map<std::string_view, const Summary*>& callees_;
  Findings& findings_;
  std::vector<Root> roots_;
  std::vector<Holder> holders_;
  std::unordered_map<ValueId, Tuple> tuples_;
};

void LinearityChecker::read(const Holder& holder, ValueId id, int i, int operand) {
  if (holder.root < 0) return;
  const Root& storage = root(holder);
  if (holder.version == storage.version) return;
  const Instruction& consumer = function_.body[static_cast<std::size_t>(storage.consumer)];
  const std::string at =
      consumer.line.line > 0 ? fmt::format(" at line {}", consumer.line.line) : std::string();
  const bool in_tuple = function_.values[storage.latest].kind == ValueKind::tuple;
  complain(i, operand,
           fmt::format("'{}' was consumed{} by {}; use {}'{}'", name(id), at, spelling(consumer),
                       in_tuple ? "an item of " : "", name(storage.latest)));
}

bool LinearityChecker::consume(const Holder& holder, ValueId id, int i, int operand) {
  Root& storage = root(holder);
  if (holder.version != storage.version) return false;  // reported by `read`
  if (storage.origin == Root::Origin::constant) {
    complain(i, operand, fmt::format("'{}' is a constant and cannot be updated", name(id)));
    return false;
  }
  if (!holder.whole) {
    complain(i, operand,
             fmt::format("'{}' is a view of '{}'; only a whole value can be updated", name(id),
                         name(storage.latest)));
    return false;
  }
  ++storage.version;
  storage.consumer = i;
  return true;
}

Summary LinearityChecker::run() {
  holders_.resize(function_.values.size());
  for (ValueId id = 0; id < function_.parameter_count; ++id) {
    if (function_.values[id].kind == ValueKind::tensor) {
      holders_[id] = fresh(id, Root::Origin::parameter, static_cast<int>(id), declares_object(id));
    }
  }
  for (std::size_t i = 0; i < function_.body.size(); ++i)
    step(function_.body[i], static_cast<int>(i));
  Summary summary;
  summary.consumes.resize(function_.parameter_count);
  for (const Root& storage : roots_) {
    if (storage.parameter >= 0 && storage.version > 0) {
      summary.consumes[static_cast<std::size_t>(storage.parameter)] = true;
    }
  }
  for (std::size_t k = 0; k < function_.results.size(); ++k) {
    const ValueId id = function_.results[k];
    const Holder& holder = holders_[id];
    read(holder, id, Spot::in_return, static_cast<int>(k));
    const Root& storage = root(holder);
    for (std::size_t j = 0; j < k && storage.is_object; ++j) {
      if (holders_[function_.results[j]].root != holder.root) continue;
      complain(Spot::in_return, static_cast<int>(k),
               fmt::format("'{}' is returned twice: it is one object", name(id)));
    }
    summary.results.push_back(
        {storage.parameter, holder.whole, storage.origin == Root::Origin::constant, holder.root});
  }
  std::unordered_map<int, int> of_root;
  for (const Summary::Result& result : summary.results) ++of_root[result.root];
  for (Summary::Result& result : summary.results) result.is_only = of_root[result.root] == 1;
  return summary;
}

void LinearityChecker::step(const Instruction& instruction, int i) {
  for (std::size_t k = 0; k < instruction.operands.size(); ++k) {
    const ValueId id = instruction.operands[k];
    read(holders_[id], id, i, static_cast<int>(k));
  }
  switch (instruction.kind) {
    case Kind::op:
      return step_op(instruction, i);
    case Kind::constant:
      holders_[instruction.result] = fresh(instruction.result, Root::Origin::constant);
      if (declares_object(instruction.result)) {
        complain(i, Spot::nowhere,
                 fmt::format("'{}' is a {}, which changes: an input, not a constant",
                             name(instruction.result),
                             to_string(*function_.values[instruction.result].shape)));
      }
      return;
    case Kind::scope:
      return;
    case Kind::pack: {
      Tuple& tuple = tuples_[instruction.result];
      for (const ValueId id : instruction.operands) tuple.push_back(holders_[id]);
      return;
    }
    case Kind::item: {
      const Holder& holder =
          tuples_[instruction.operands[0]][static_cast<std::size_t>(instruction.index)];
      read(holder, instruction.operands[0], i, 0);
      holders_[instruction.result] = holder;
      Root& storage = root(holder);
      if (holder.version == storage.version && holder.whole) storage.latest = instruction.result;
      return;
    }
    case Kind::repeat:
      return step_repeat(instruction, i);
    case Kind::call:
      return step_call(instruction, i);
  }
}

void LinearityChecker::step_op(const Instruction& instruction, int i) {
  const OpDef& def = *instruction.op.def();
  Holder& result = holders_[instruction.result];
  const int updated = def.traits.updates_input;
  if (updated >= 0 && static_cast<std::size_t>(updated) < instruction.operands.size()) {
    const ValueId id = instruction.operands[static_cast<std::size_t>(updated)];
    for (std::size_t k = 0; k < instruction.operands.size(); ++k) {
      if (static_cast<int>(k) == updated ||
          holders_[instruction.operands[k]].root != holders_[id].root)
        continue;
      complain(i, static_cast<int>(k),
               fmt::format("'{}' is updated here and read as well", name(instruction.operands[k])));
      result = fresh(instruction.result, Root::Origin::made);
      return;
    }
    if (consume(holders_[id], id, i, updated)) {
      Root& storage = root(holders_[id]);
      storage.latest = instruction.result;
      result = {holders_[id].root, storage.version, true};
      return;
    }
  } else if ((def.traits.view || def.view != nullptr || def.traits.selects) &&
             !instruction.operands.empty()) {
    result = holders_[instruction.operands[0]];
    result.whole = false;
    return;
  }
  result = fresh(instruction.result, Root::Origin::made);
}

void LinearityChecker::step_call(const Instruction& instruction, int i) {
  const Summary& callee = *callees_.at(instruction.function);
  const std::vector<ValueId>& operands = instruction.operands;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (!callee.consumes[k]) continue;
    for (std::size_t j = 0; j < operands.size(); ++j) {
      if (j == k || holders_[operands[j]].root < 0 ||
          holders_[operands[j]].root != holders_[operands[k]].root)
        continue;
      complain(i, static_cast<int>(j),
               fmt::format("'{}' shares its storage with '{}', which '{}' updates",
                           name(operands[j]), name(operands[k]), instruction.function));
    }
    if (consume(holders_[operands[k]], operands[k], i, static_cast<int>(k))) {
      root(holders_[operands[k]]).latest = instruction.result;
    }
  }
  Tuple results;
  std::unordered_map<int, Holder> made;  // by the callee's root
  for (const Summary::Result& result : callee.results) {
    if (result.parameter < 0) {
      const auto origin = result.constant ? Root::Origin::constant : Root::Origin::made;
      const auto [known, is_first] = made.try_emplace(result.root);
      if (is_first) known->second = fresh(instruction.result, origin);
      results.push_back(known->second);
      if (!result.is_only) results.back().whole = result.whole;
      continue;
    }
    const Holder& argument = holders_[operands[static_cast<std::size_t>(result.parameter)]];
    results.push_back({argument.root, root(argument).version, argument.whole && result.whole});
  }
  if (results.size() == 1) {
    holders_[instruction.result] = results[0];
  } else {
    tuples_[instruction.result] = std::move(results);
  }
}

void LinearityChecker::step_repeat(const Instruction& instruction, int i) {
  const Summary& callee = *callees_.at(instruction.function);
  const Tuple carry = tuples_[instruction.operands[0]];
  for (const Holder& carried : carry) read(carried, instruction.operands[0], i, 0);
  for (std::size_t k = 0; k < carry.size(); ++k) {
    // The loop has its own storage: a value that cannot be overwritten is copied there, and so is
    // one that the loop carries twice.
    const Root& storage = root(carry[k]);
    if (storage.is_object) {
      for (std::size_t j = 0; j < k; ++j) {
        if (carry[j].root != carry[k].root) continue;
        complain(i, 0, fmt::format("'{}' has one object twice", name(instruction.operands[0])));
      }
    } else if (!callee.consumes[k] || !carry[k].whole || storage.origin == Root::Origin::constant ||
               storage.consumer == i) {
      continue;
    }
    consume(carry[k], storage.latest, i, 0);
    root(carry[k]).latest = instruction.result;
  }
  for (std::size_t k = carry.size(); k < callee.consumes.size(); ++k) {
    if (!callee.consumes[k]) continue;
    const std::size_t operand = k - carry.size();
    const bool is_branch = instruction.condition >= 0 && instruction.count == 1;
    complain(i, operand >= 2 ? static_cast<int>(operand) : Spot::nowhere,
             fmt::format("'{}' updates a value {}; carry it", instruction.function,
                         is_branch ? "from outside of a branch" : "that every repetition reads"));
  }
  for (const Summary::Result& result : callee.results) {
    const auto at = static_cast<std::size_t>(result.parameter);
    if (result.parameter < 0 || at < carry.size() + 2) continue;
    const ValueId extra = instruction.operands[at - carry.size()];
    if (!root(holders_[extra]).is_object) continue;
    complain(i, static_cast<int>(at - carry.size()),
             fmt::format("'{}' carries '{}', an object that every repetition reads",
                         instruction.function, name(extra)));
  }
  Tuple& results = tuples_[instruction.result];
  for (const Holder& carried : carry) {
    results.push_back(fresh(instruction.result, Root::Origin::made, -1, root(carried).is_object));
  }
}

/// The functions' summaries by name, callees first, in `order`; those of callees only once there are
/// too many findings.
std::unordered_map<std::string_view, Summary> summaries(const Program& program,
                                                        const std::vector<int>& order,
                                                        Findings& findings) {
  std::unordered_map<std::string_view, Summary> made;
  std::unordered_map<std::string_view, const Summary*> callees;
  for (const int index : order) {
    if (findings.full()) break;
    const Function& function = program.functions[static_cast<std::size_t>(index)];
    const auto at =
        made.emplace(function.name, LinearityChecker(function, index, callees, findings).run());
    callees.emplace(function.name, &at.first->second);
  }
  return made;
}

}  // namespace

void check_linearity(const Program& program, const std::vector<int>& order, Findings& findings) {
  summaries(program, order, findings);
}

std::map<std::string, std::vector<bool>> updated_parameters(const Program& program) {
  Findings findings;
  const std::vector<int> order = check_calls(program, findings);
  std::map<std::string, std::vector<bool>> updated;
  for (auto& [function, summary] : summaries(program, order, findings)) {
    updated.emplace(function, std::move(summary.consumes));
  }
  return updated;
}

}  // namespace tenon::checking
