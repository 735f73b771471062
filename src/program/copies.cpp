#include "program/copies.hpp"

#include "program/findings.hpp"
#include "program/unused_names.hpp"

#include <tenon/ops/concat.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using Kind = Instruction::Kind;

class Copier {
 public:
  Copier(const Program& program, const Function& function,
         const std::function<std::string(std::string_view name)>& name_of_copy)
      : program_(program), function_(function), name_of_copy_(name_of_copy) {}

  Function run() {
    find_uses();
    result_.name = function_.name;
    result_.parameter_count = function_.parameter_count;
    holders_.resize(function_.values.size());
    for (ValueId id = 0; id < function_.parameter_count; ++id) {
      const std::optional<Shape>& shape = function_.values[id].shape;
      new_ids_.push_back(result_.add_value(function_.values[id]));
      start_root(id, {.is_object = shape && is_object(shape->dtype())});
    }
    for (std::size_t i = 0; i < function_.body.size(); ++i) step(i);
    for (const ValueId id : function_.results) result_.results.push_back(new_ids_[id]);
    return std::move(result_);
  }

 private:
  /// Storage that values share.
  struct Root {
    bool is_object = false;
    bool is_constant = false;
    std::size_t last_use = 0;  ///< the last instruction that reads one of these values
  };
  struct Holder {
    std::size_t root = 0;
    bool is_view = false;
  };

  void find_uses() {
    last_use_.resize(function_.values.size());
    for (std::size_t i = 0; i < function_.body.size(); ++i) {
      const Instruction& instruction = function_.body[i];
      for (const ValueId id : instruction.operands) last_use_[id] = i;
      if (instruction.kind != Kind::repeat) continue;
      if (updated_.empty()) updated_ = checking::updated_parameters(program_);
      updated_items_[instruction.operands[0]] = &updated_.at(instruction.function);
    }
    for (const ValueId id : function_.results) last_use_[id] = function_.body.size();
  }

  void start_root(ValueId id, Root root) {
    root.last_use = last_use_[id];
    holders_[id] = {roots_.size(), false};
    roots_.push_back(root);
  }
  void share(ValueId id, const Holder& holder) {
    holders_[id] = holder;
    Root& root = roots_[holder.root];
    root.last_use = std::max(root.last_use, last_use_[id]);
  }

  void step(std::size_t i) {
    const Instruction& given = function_.body[i];
    Instruction instruction = given;
    for (ValueId& id : instruction.operands) id = new_ids_[id];
    Root root{.is_constant = given.kind == Kind::constant};
    std::optional<Holder> holder;  // nothing: storage of its own
    if (given.kind == Kind::op && !given.operands.empty()) {
      const OpDef& def = *given.op.def();
      if (def.traits.updates_input >= 0) {
        const auto updated = static_cast<std::size_t>(def.traits.updates_input);
        root.is_object = def.traits.takes_objects;
        if (needs_copy(given, i, updated)) {
          instruction.operands[updated] = copy(given.operands[updated], given.line);
        } else {
          holder = Holder{holders_[given.operands[updated]].root, false};
        }
      } else if (def.traits.view || def.view != nullptr || def.traits.selects) {
        holder = Holder{holders_[given.operands[0]].root, true};
      }
    } else if (const auto loop = updated_items_.find(given.result);
               given.kind == Kind::pack && loop != updated_items_.end()) {
      for (std::size_t k = 0; k < given.operands.size(); ++k) {
        if ((*loop->second)[k] && needs_copy(given, i, k)) {
          instruction.operands[k] = copy(given.operands[k], given.line);
        }
      }
    }
    add(std::move(instruction), function_.values[given.result]);
    new_ids_.push_back(result_.body.back().result);
    holder ? share(given.result, *holder) : start_root(given.result, root);
  }

  /// Whether instruction i, which updates its operand k, would change what others read.
  bool needs_copy(const Instruction& instruction, std::size_t i, std::size_t k) const {
    const ValueId id = instruction.operands[k];
    const Holder& holder = holders_[id];
    const Root& root = roots_[holder.root];
    const std::optional<Shape>& shape = function_.values[id].shape;
    if (root.is_object || (shape && shape->rank() == 0)) return false;
    if (holder.is_view || root.is_constant || root.last_use > i) return true;
    return std::ranges::count_if(instruction.operands, [&](ValueId other) {
             return holders_[other].root == holder.root;
           }) > 1;
  }

  ValueId copy(ValueId id, const SourceLine& line) {
    Instruction concat;
    concat.op = OpInstance(Concat{});
    concat.operands = {new_ids_[id]};
    concat.line = line;
    Value value = function_.values[id];
    value.name = name_of_copy_(value.name);
    add(std::move(concat), std::move(value));
    return result_.body.back().result;
  }

  void add(Instruction instruction, Value value) {
    instruction.result = result_.add_value(std::move(value));
    result_.body.push_back(std::move(instruction));
  }

  const Program& program_;
  const Function& function_;
  const std::function<std::string(std::string_view name)>& name_of_copy_;
  std::map<std::string, std::vector<bool>> updated_;           // parameters, by function
  std::map<ValueId, const std::vector<bool>*> updated_items_;  // of tuples that loops carry
  std::vector<std::size_t> last_use_;                          // by value
  std::vector<Root> roots_;
  std::vector<Holder> holders_;   // by value
  std::vector<ValueId> new_ids_;  // by value: that of the result
  Function result_;
};

}  // namespace

Function with_copies(const Program& program, const Function& function,
                     const std::function<std::string(std::string_view name)>& name_of_copy) {
  return Copier(program, function, name_of_copy).run();
}

void copy_what_is_read_later(Program& program) {
  checking::Findings findings;
  const std::vector<int> order = checking::check_calls(program, findings);
  checking::check_linearity(program, order, findings);
  if (findings.empty()) return;
  for (const int index : order) {  // callees first: what they copy their callers need not
    Function& function = program.functions[static_cast<std::size_t>(index)];
    UnusedNames names;
    for (const Value& value : function.values) names.take(value.name);
    function = with_copies(program, function, [&](std::string_view name) {
      return names.make(fmt::format("copy_of_{}", name));
    });
  }
}

}  // namespace tenon
