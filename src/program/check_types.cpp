#include "program/findings.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

// Types are inferred from the parameters' types by each op's `infer`. A call is typed with the
// types of its operands, so that a function may be used with several; the symbols of its
// annotations are then bound by each call. Only contradictions of known sizes are errors: anything
// that may hold at run time is accepted.

namespace tenon::checking {
namespace {

using Kind = Instruction::Kind;
using MaybeShape = std::optional<Shape>;
using Shapes = std::vector<MaybeShape>;

struct Slot {
  MaybeShape shape;  ///< tensors
  Shapes items;      ///< tuples
};

/// The type of a value, combined from everything that determines it.
class Agreement {
 public:
  void add(const MaybeShape& shape) {
    if (!seen_) {
      seen_ = true;
      shape_ = shape;
    } else if (!shape_ || !shape || shape_->rank() != shape->rank() ||
               shape_->dtype() != shape->dtype()) {
      shape_.reset();
    } else {
      for (int i = 0; i < shape->rank(); ++i) {
        if ((*shape_)[i] != (*shape)[i]) shape_ = shape_->with_dim(i, unknown_dim);
      }
    }
  }
  const MaybeShape& shape() const noexcept { return shape_; }

 private:
  bool seen_ = false;
  MaybeShape shape_;
};

class Typer {
 public:
  Typer(Program& program, Findings& findings) : program_(program), findings_(findings) {
    for (std::size_t i = 0; i < program.functions.size(); ++i) {
      indices_.emplace(program.functions[i].name, static_cast<int>(i));
    }
    arguments_.resize(program.functions.size());
  }

  void run(bool fill);

 private:
  /// One typing of one function.
  struct Frame {
    int function;
    bool outermost;  ///< sizes are the function's own, not a caller's
    std::map<std::int64_t, std::int64_t> sizes;
    std::vector<Slot> slots;
  };

  const Function& function(int index) const {
    return program_.functions[static_cast<std::size_t>(index)];
  }
  Shapes declared_parameters(int index) const;

  /// `caller`: the call that gives the arguments, to which their errors belong; none: declared types.
  Frame type(int index, const Shapes& arguments, std::optional<Spot> caller = std::nullopt);
  Shapes call(int index, const Shapes& arguments, Spot caller);
  Shapes results_of(const Frame& frame) const;
  void step(Frame& frame, const Instruction& instruction, int i);
  MaybeShape infer(Frame& frame, const Instruction& instruction, int i);
  Shapes repeat(Frame& frame, const Instruction& instruction, int i);
  MaybeShape settle(Frame& frame, const Value& value, const MaybeShape& actual, Spot spot,
                    std::string_view where = {});
  Shapes operand_shapes(const Frame& frame, std::span<const ValueId> ids) const;

  Program& program_;
  Findings& findings_;
  std::unordered_map<std::string_view, int> indices_;
  std::vector<std::vector<Agreement>> arguments_;  ///< per function and parameter
};

Shapes Typer::declared_parameters(int index) const {
  const Function& f = function(index);
  Shapes shapes;
  for (std::uint32_t k = 0; k < f.parameter_count; ++k) shapes.push_back(f.values[k].shape);
  return shapes;
}

void Typer::run(bool fill) {
  // Errors are reported for the declared types; the callers' types are collected on the way.
  for (int i = 0; i < static_cast<int>(program_.functions.size()); ++i) {
    arguments_[static_cast<std::size_t>(i)].resize(function(i).parameter_count);
  }
  const int entry = indices_.at(program_.entry);
  type(entry, declared_parameters(entry));
  for (int i = 0; i < static_cast<int>(program_.functions.size()); ++i) {
    if (findings_.full()) return;
    if (i == entry && !fill) continue;
    Shapes parameters = declared_parameters(i);
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      const MaybeShape& passed = arguments_[static_cast<std::size_t>(i)][k].shape();
      if (!parameters[k] && i != entry) parameters[k] = passed;
    }
    const Frame frame = type(i, parameters);
    if (!fill || !findings_.empty()) continue;
    Function& f = program_.functions[static_cast<std::size_t>(i)];
    for (std::size_t id = 0; id < f.values.size(); ++id) {
      Value& value = f.values[id];
      if (value.kind == ValueKind::tensor && !value.shape) value.shape = frame.slots[id].shape;
    }
  }
}

Typer::Frame Typer::type(int index, const Shapes& arguments, std::optional<Spot> caller) {
  const Function& f = function(index);
  Frame frame{index, !caller, {}, std::vector<Slot>(f.values.size())};
  const std::string where = caller ? fmt::format(" of '{}'", f.name) : std::string();
  for (std::uint32_t k = 0; k < f.parameter_count; ++k) {
    const Spot spot = caller.value_or(Spot{index, Spot::nowhere, static_cast<int>(k)});
    frame.slots[k].shape = settle(frame, f.values[k], arguments[k], spot, where);
    const MaybeShape& found = frame.slots[k].shape;
    if (caller && !f.values[k].shape && found && is_linear_object(found->dtype())) {
      findings_.add(Errc::bad_type, spot,
                    fmt::format("'{}'{} is a {}, which a parameter must declare", f.values[k].name,
                                where, to_string(*found)));
    }
  }
  for (std::size_t i = 0; i < f.body.size() && !findings_.full(); ++i)
    step(frame, f.body[i], static_cast<int>(i));
  return frame;
}

Shapes Typer::results_of(const Frame& frame) const {
  return operand_shapes(frame, function(frame.function).results);
}

Shapes Typer::operand_shapes(const Frame& frame, std::span<const ValueId> ids) const {
  Shapes shapes;
  for (const ValueId id : ids) shapes.push_back(frame.slots[id].shape);
  return shapes;
}

void Typer::step(Frame& frame, const Instruction& instruction, int i) {
  Slot& slot = frame.slots[instruction.result];
  switch (instruction.kind) {
    case Kind::op:
      slot.shape = infer(frame, instruction, i);
      break;
    case Kind::constant:
    case Kind::scope:
      break;
    case Kind::pack:
      slot.items = operand_shapes(frame, instruction.operands);
      return;
    case Kind::item: {
      const Shapes& items = frame.slots[instruction.operands[0]].items;
      if (static_cast<std::size_t>(instruction.index) < items.size()) {
        slot.shape = items[static_cast<std::size_t>(instruction.index)];
      }
      break;
    }
    case Kind::repeat:
      slot.items = repeat(frame, instruction, i);
      return;
    case Kind::call: {
      Shapes results =
          call(indices_.at(instruction.function), operand_shapes(frame, instruction.operands),
               {frame.function, i, Spot::nowhere});
      if (results.size() != 1) {
        slot.items = std::move(results);
        return;
      }
      slot.shape = results[0];
      break;
    }
  }
  const Function& f = function(frame.function);
  slot.shape =
      settle(frame, f.values[instruction.result], slot.shape, {frame.function, i, Spot::nowhere});
}

Shapes Typer::call(int index, const Shapes& arguments, Spot caller) {
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    // A caller's symbols have no meaning in the callee, unless it uses the same name.
    MaybeShape shape = arguments[k];
    for (int i = 0; shape && i < shape->rank(); ++i) {
      if (!is_static((*shape)[i])) shape = shape->with_dim(i, unknown_dim);
    }
    arguments_[static_cast<std::size_t>(index)][k].add(shape);
  }
  return results_of(type(index, arguments, caller));
}

MaybeShape Typer::infer(Frame& frame, const Instruction& instruction, int i) {
  std::vector<Shape> inputs;
  for (const ValueId id : instruction.operands) {
    const MaybeShape& shape = frame.slots[id].shape;
    if (!shape) return std::nullopt;
    inputs.push_back(*shape);
  }
  try {
    return instruction.op.def()->infer(instruction.op.attributes(), inputs).without_tags();
  } catch (const Error& error) {
    findings_.add(error.code(), {frame.function, i, Spot::nowhere}, error.message());
    return std::nullopt;
  }
}

Shapes Typer::repeat(Frame& frame, const Instruction& instruction, int i) {
  Shapes carry = frame.slots[instruction.operands[0]].items;
  if (instruction.condition >= 0 &&
      static_cast<std::size_t>(instruction.condition) < carry.size()) {
    const MaybeShape& condition = carry[static_cast<std::size_t>(instruction.condition)];
    if (condition && (condition->dtype() != DType::boolean || condition->rank() != 0)) {
      findings_.add(Errc::bad_type, {frame.function, i, Spot::nowhere},
                    fmt::format("its condition, value {} of the carry, is {}, not bool[]",
                                instruction.condition, to_string(*condition)));
    }
  }
  Shapes arguments = carry;
  arguments.push_back(Shape(std::span<const Axis>(), i64));
  arguments.emplace_back();  // the scope
  for (std::size_t k = 2; k < instruction.operands.size(); ++k) {
    arguments.push_back(frame.slots[instruction.operands[k]].shape);
  }
  const Shapes results =
      call(indices_.at(instruction.function), arguments, {frame.function, i, Spot::nowhere});
  for (std::size_t k = 0; k < carry.size() && k < results.size(); ++k) {
    if (!carry[k] || !results[k]) {
      if (!carry[k]) carry[k] = results[k];
      continue;
    }
    bool fits = carry[k]->rank() == results[k]->rank() && carry[k]->dtype() == results[k]->dtype();
    for (int d = 0; fits && d < carry[k]->rank(); ++d) {
      fits = !is_static((*carry[k])[d]) || !is_static((*results[k])[d]) ||
             (*carry[k])[d] == (*results[k])[d];
    }
    if (fits) continue;
    findings_.add(Errc::shape_mismatch, {frame.function, i, Spot::nowhere},
                  fmt::format("carries {} as value {}, but '{}' returns {}", to_string(*carry[k]),
                              k, instruction.function, to_string(*results[k])));
  }
  return carry;
}

/// The type of a value that is declared and found: what is known from either. `where`: behind its
/// name in messages.
MaybeShape Typer::settle(Frame& frame, const Value& value, const MaybeShape& actual, Spot spot,
                         std::string_view where) {
  if (!value.shape) return actual;
  const Shape& declared = *value.shape;
  if (actual && (actual->rank() != declared.rank() || actual->dtype() != declared.dtype())) {
    findings_.add(Errc::shape_mismatch, spot,
                  fmt::format("'{}'{} is {}, declared {}", value.name, where, to_string(*actual),
                              to_string(declared)));
    return declared.without_tags();
  }
  std::vector<std::int64_t> dims;
  for (int i = 0; i < declared.rank(); ++i) {
    const std::int64_t found = actual ? (*actual)[i] : unknown_dim;
    std::int64_t known = declared[i];
    if (is_symbol(known)) {
      const auto [bound, added] = frame.sizes.emplace(known, found);
      if (added && found == unknown_dim && frame.outermost) bound->second = known;
      if (!is_static(bound->second) && is_static(found)) bound->second = found;
      known = bound->second;
    }
    if (is_static(known) && is_static(found) && known != found) {
      findings_.add(
          Errc::shape_mismatch, spot,
          fmt::format("'{}'{} is {}, declared {}{}", value.name, where, to_string(*actual),
                      to_string(declared),
                      is_symbol(declared[i])
                          ? fmt::format(" with {} = {}", symbol_name(declared[i]).text(), known)
                          : std::string()));
      return declared.without_tags();
    }
    dims.push_back(is_static(known) || found == unknown_dim ? known : found);
  }
  try {
    return Shape(dims, declared.dtype());
  } catch (const Error& error) {
    findings_.add(error.code(), spot, fmt::format("'{}': {}", value.name, error.message()));
    return std::nullopt;
  }
}

}  // namespace

void check_types(Program& program, bool fill, Findings& findings) {
  Typer(program, findings).run(fill);
}

}  // namespace tenon::checking
