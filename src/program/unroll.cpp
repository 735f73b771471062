#include "program/copies.hpp"
#include "program/unrolled.hpp"
#include "program/unused_names.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

/// The value in the result of a value of the original program.
struct Known {
  enum class Kind { value, tuple, index } kind = Kind::value;
  ValueId id = 0;
  std::vector<Known> items;  ///< of a tuple
  std::int64_t number = 0;   ///< of a loop index: it becomes a value only where an op reads it
};

class Unroller {
 public:
  using Leaves = std::function<bool(const Instruction& repeat)>;

  /// `origins`: gets those of the result's values; may be null. `leaves`: whether a loop without a
  /// condition stays; may be null.
  Unroller(const Program& program, std::size_t limit, Origins* origins, const Leaves* leaves)
      : program_(program), limit_(limit), origins_(origins), leaves_(leaves) {}

  Function run() {
    const Function& main = program_.main();
    result_.name = main.name;
    result_.parameter_count = main.parameter_count;
    std::vector<Known> arguments;
    for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
      arguments.push_back({Known::Kind::value, result_.add_value(main.values[i]), {}, 0});
    }
    // Names of the entry function stay; those of inlined functions are changed on a conflict.
    for (const Value& value : main.values) names_.take(value.name);
    for (Known& known : expand(main, std::move(arguments), "", "")) {
      result_.results.push_back(id_of(known));
    }
    return with_copies(program_, result_, [this](std::string_view name) {
      return names_.make(fmt::format("copy_of_{}", name));
    });
  }

  /// Whether a loop that is left calls a function.
  bool keeps(const std::string& function) const { return kept_.contains(function); }

 private:
  std::vector<Known> expand(const Function& function, std::vector<Known> values,
                            const std::string& prefix, const std::string& path) {
    values.resize(function.values.size());
    for (const Instruction& instruction : function.body) {
      values[instruction.result] = expand(function, instruction, values, prefix, path);
    }
    std::vector<Known> results;
    for (const ValueId id : function.results) results.push_back(values[id]);
    return results;
  }

  Known expand(const Function& function, const Instruction& instruction, std::vector<Known>& values,
               const std::string& prefix, const std::string& path) {
    const Value& made = function.values[instruction.result];
    switch (instruction.kind) {
      case Instruction::Kind::pack: {
        Known tuple{Known::Kind::tuple, 0, {}, 0};
        for (const ValueId id : instruction.operands) tuple.items.push_back(values[id]);
        return tuple;
      }
      case Instruction::Kind::item:
        return values[instruction.operands[0]].items[static_cast<std::size_t>(instruction.index)];
      case Instruction::Kind::repeat:
        return is_left(instruction) ? keep(instruction, made, values, prefix, path)
                                    : repeat(instruction, values, prefix, path_into(path, made));
      case Instruction::Kind::call: {
        const Function& callee = *program_.find(instruction.function);
        std::vector<Known> arguments;
        for (const ValueId id : instruction.operands) arguments.push_back(values[id]);
        std::vector<Known> results =
            expand(callee, std::move(arguments), prefix + callee.name + "_", path_into(path, made));
        if (results.size() == 1) return std::move(results[0]);
        return {Known::Kind::tuple, 0, std::move(results), 0};
      }
      case Instruction::Kind::op:
      case Instruction::Kind::constant:
      case Instruction::Kind::scope:
        break;
    }
    if (instruction.op.as<Select>() != nullptr &&
        values[instruction.operands[1]].kind == Known::Kind::index) {
      return select(instruction, made, values, prefix);
    }
    Instruction copy = instruction;
    for (ValueId& operand : copy.operands) operand = id_of(values[operand]);
    const Known result = emit(std::move(copy), prefix.empty() ? made : renamed(made, prefix));
    note_origin(result.id, path + made.name);
    return result;
  }

  bool is_left(const Instruction& repeat) const {
    if (repeat.condition >= 0) return repeat.count > 0;
    return leaves_ != nullptr && (*leaves_)(repeat);
  }

  /// A loop that is left, on values of the result.
  Known keep(const Instruction& instruction, const Value& made, std::vector<Known>& values,
             const std::string& prefix, const std::string& path) {
    Instruction loop = instruction;
    for (ValueId& operand : loop.operands) operand = id_of(values[operand]);
    const std::size_t carried = program_.find(instruction.function)->results.size();
    const ValueId tuple = emit(std::move(loop), prefix.empty() ? made : renamed(made, prefix)).id;
    note_origin(tuple, path + made.name);
    Known result{Known::Kind::tuple, 0, {}, 0};
    for (std::size_t i = 0; i < carried; ++i) {
      Instruction item;
      item.kind = Instruction::Kind::item;
      item.index = static_cast<std::int64_t>(i);
      item.operands = {tuple};
      item.line = instruction.line;
      Value value{.name = "item", .kind = ValueKind::tensor, .shape = {}};
      result.items.push_back(emit(std::move(item), renamed(std::move(value), prefix)));
    }
    keep_function(instruction.function);
    return result;
  }

  void keep_function(const std::string& name) {
    if (!kept_.insert(name).second) return;
    for (const Instruction& inner : program_.find(name)->body) {
      if (!inner.function.empty()) keep_function(inner.function);
    }
  }

  Known repeat(const Instruction& instruction, std::vector<Known>& values,
               const std::string& prefix, const std::string& path) {
    const Function& callee = *program_.find(instruction.function);
    Known carry = values[instruction.operands[0]];
    const ValueId outer = id_of(values[instruction.operands[1]]);
    for (std::int64_t i = 0; i < instruction.count; ++i) {
      const std::int64_t number = instruction.first + i;
      const std::string inner = fmt::format("{}{}_{}_", prefix, callee.name, number);
      Instruction scope;
      scope.kind = Instruction::Kind::scope;
      scope.text = fmt::format("{}", number);
      scope.operands = {outer};
      scope.line = instruction.line;
      const std::size_t scope_parameter = carry.items.size() + 1;
      std::vector<Known> arguments = std::move(carry.items);
      arguments.push_back({Known::Kind::index, 0, {}, number});
      arguments.push_back(emit(std::move(scope), renamed(callee.values[scope_parameter], inner)));
      for (std::size_t extra = 2; extra < instruction.operands.size(); ++extra) {
        arguments.push_back(values[instruction.operands[extra]]);
      }
      carry.items = expand(callee, std::move(arguments), inner, path);
    }
    return carry;
  }

  /// A slice whose number is known: a view.
  Known select(const Instruction& instruction, const Value& made, std::vector<Known>& values,
               const std::string& prefix) {
    const std::int64_t number = values[instruction.operands[1]].number;
    Instruction slice;
    slice.op = OpInstance(Slice{.axis = 0, .begin = number, .end = number + 1});
    slice.operands = {id_of(values[instruction.operands[0]])};
    slice.line = instruction.line;
    Value between = made;
    between.name = "slice_of_" + made.name;
    between.shape.reset();
    Instruction squeeze;
    squeeze.op = OpInstance(Squeeze{.axis = 0});
    squeeze.operands = {id_of(emit(std::move(slice), renamed(std::move(between), prefix)))};
    squeeze.line = instruction.line;
    return emit(std::move(squeeze), renamed(made, prefix));
  }

  ValueId id_of(const Known& known) {
    if (known.kind == Known::Kind::value) return known.id;
    if (known.kind == Known::Kind::index) {
      Instruction number;
      number.op = OpInstance(Full{.value = static_cast<double>(known.number), .dtype = i64});
      return emit(std::move(number),
                  renamed(Value{.name = "index", .kind = ValueKind::tensor, .shape = {}}, ""))
          .id;
    }
    Instruction pack;
    pack.kind = Instruction::Kind::pack;
    for (const Known& item : known.items) pack.operands.push_back(id_of(item));
    return emit(std::move(pack),
                renamed(Value{.name = "tuple", .kind = ValueKind::tuple, .shape = {}}, ""))
        .id;
  }

  void note_origin(ValueId id, std::string path) {
    if (origins_ != nullptr) origins_->emplace(result_.values[id].name, std::move(path));
  }

  /// The value under a name of its own.
  Value renamed(Value value, const std::string& prefix) {
    value.name = names_.make(prefix + value.name);
    // Symbols are local to their function; sizes that depend on the call are inferred again.
    if (!prefix.empty() && value.shape && !value.shape->is_static()) value.shape.reset();
    return value;
  }

  Known emit(Instruction instruction, Value value) {
    if (result_.body.size() == limit_) {
      throw Error(Errc::limit_exceeded, program_.name,
                  fmt::format("unrolled, it has more than {} instructions", limit_));
    }
    instruction.result = result_.add_value(std::move(value));
    result_.body.push_back(std::move(instruction));
    return {Known::Kind::value, result_.body.back().result, {}, 0};
  }

  const Program& program_;
  std::size_t limit_;
  Origins* origins_;
  const Leaves* leaves_;
  Function result_;
  UnusedNames names_;
  std::unordered_set<std::string> kept_;  // functions of loops that are left
};

}  // namespace

std::string path_into(const std::string& path, const Value& called) {
  return path + called.name + "/";
}

std::string origin_of(const Origins& origins, const std::string& path) {
  const std::size_t end = std::min(path.find('/'), path.size());
  const auto found = origins.find(path.substr(0, end));
  return found == origins.end() ? std::string() : found->second + path.substr(end);
}

namespace {

Program unrolled(const Program& program, Unroller unroller) {
  Program result = program;
  Function main = unroller.run();
  std::erase_if(result.functions,
                [&](const Function& function) { return !unroller.keeps(function.name); });
  result.functions.insert(result.functions.begin(), std::move(main));
  result.entry = result.functions[0].name;
  return result;
}

}  // namespace

Program unroll(const Program& program, std::size_t limit) {
  return unroll(program, limit, static_cast<Origins*>(nullptr));
}

Program unroll(const Program& program, std::size_t limit, Origins* origins) {
  return unrolled(program, Unroller(program, limit, origins, nullptr));
}

Program unroll(const Program& program, std::size_t limit,
               const std::function<bool(const Instruction& repeat)>& leaves) {
  return unrolled(program, Unroller(program, limit, nullptr, &leaves));
}

}  // namespace tenon
