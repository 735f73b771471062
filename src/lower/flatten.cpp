#include "lower/constant_slots.hpp"
#include "lower/flat.hpp"
#include "lower/flat_builder.hpp"
#include "lower/loop_counters.hpp"
#include "program/reads_value.hpp"
#include "program/type_assertions.hpp"
#include "program/unrolled.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace tenon::lowering {
namespace {

/// Prefixes of constant names, one for each combination of loop iterations around it.
struct Scope {
  std::vector<std::string> prefixes;
  LoopSteps step{};
};

/// What a value of the program stands for.
struct Item;
using Tuple = std::vector<Item>;
struct Item {
  std::variant<Array, Tuple, Scope> value;
};

/// Expands the calls of a program's main function into a Flat. Views and slices that a loop's index
/// picks become arrays with other offsets and strides, constants become slots, and the other ops
/// steps.
class Flattener {
 public:
  Flattener(const Program& program, const ConstantTypes& types,
            const MayBeConstant& may_be_constant, bool constant_numbers)
      : program_(program),
        may_be_constant_(may_be_constant),
        constant_numbers_(constant_numbers),
        constants_(program, types),
        counters_(builder_.flat, program) {}

  Flat run(std::span<const Shape> inputs);

 private:
  Array input(const Value& parameter, const Shape& shape, TypeAssertions& types);
  std::vector<Item> call(const Function& function, std::vector<Item> arguments);
  Item evaluate(const Function& function, const Instruction& instruction,
                std::vector<Item>& values);
  StepOrigin origin(const Function& function, std::string_view value, const SourceLine& line) const;

  Array apply(const Function& function, const Instruction& instruction,
              std::span<const Array> inputs);
  static Shape result_type(const Instruction& instruction, const std::string& value,
                           std::span<const Array> inputs);
  static std::optional<Array> as_view(const OpInstance& op, const Array& input, const Shape& shape);
  bool is_in_branch() const;
  bool may_refuse_in_branch(const FlatStep& step) const;
  std::optional<Array> as_slice(const Instruction& instruction, const std::string& value,
                                std::span<const Array> inputs, const Shape& shape) const;
  Array update(FlatStep step, std::size_t updated);
  Array compute(FlatStep step, const Shape& shape);
  void read_numbers_as_constants(FlatStep& step);

  Array constant(const Function& function, const Instruction& instruction,
                 const std::vector<Item>& values);
  Array constant_array(std::vector<ConstantSlot> slots, const LoopSteps& entry_step);

  Tuple repeat(const Function& function, const Instruction& instruction, std::vector<Item>& values);
  Tuple carry_in(const Function& callee, const Instruction& instruction, const Tuple& carry);
  Scope scopes_of_iterations(const Function& callee, const Instruction& instruction,
                             const Scope& outer) const;
  void carry_out(const Function& callee, const Instruction& instruction, std::vector<Item> results,
                 const Tuple& carried);

  static void check_type(const Value& value, const Shape& actual, TypeAssertions& types, Errc code,
                         const std::string& where) {
    if (value.shape) types.check(value.name, *value.shape, actual, code, where);
  }

  const Program& program_;
  const MayBeConstant& may_be_constant_;
  bool constant_numbers_;
  FlatBuilder builder_;
  ConstantSlots constants_;
  LoopCounters counters_;
  std::unordered_map<std::uint32_t, StorageId> numbers_;  // of constants that are numbers
  std::string path_;  // into the function that is expanded: see Origins
};

StepOrigin Flattener::origin(const Function& function, std::string_view value,
                             const SourceLine& line) const {
  return {std::string(value), &function == &program_.main() ? std::string() : function.name, line};
}

Array Flattener::input(const Value& parameter, const Shape& shape, TypeAssertions& types) {
  const std::string& main = program_.main().name;
  if (!shape.is_static()) {
    throw Error(Errc::bad_input, main,
                fmt::format("input '{}' has open sizes: {}", parameter.name, to_string(shape)));
  }
  const Shape plain = shape.without_tags();
  check_type(parameter, plain, types, Errc::bad_input, main);
  std::vector<InputSlot>& slots = builder_.flat.inputs;
  slots.push_back({parameter.name, plain});
  return builder_.fresh(plain, Place::Kind::input, static_cast<std::uint32_t>(slots.size() - 1));
}

Flat Flattener::run(std::span<const Shape> inputs) {
  const Function& main = program_.main();
  if (inputs.size() != main.parameter_count) {
    throw Error(Errc::bad_input, main.name,
                fmt::format("{} inputs given, {} expected", inputs.size(), main.parameter_count));
  }
  TypeAssertions types;
  std::vector<Item> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    arguments.push_back({input(main.values[i], inputs[i], types)});
  }
  builder_.end_inputs();
  const std::vector<Item> returned = call(main, std::move(arguments));
  std::vector<Array> results;
  for (std::size_t i = 0; i < returned.size(); ++i) {
    const auto* array = std::get_if<Array>(&returned[i].value);
    if (array == nullptr) {
      throw Error(Errc::unsupported, main.name, fmt::format("result {} is no tensor", i));
    }
    results.push_back(*array);
    builder_.flat.result_names.push_back(main.values[main.results[i]].name);
  }
  builder_.end_with(results);
  Flat& flat = builder_.flat;
  if (!flat.fill_constants.empty()) drop_unread_fills(flat, flat.steps);
  return std::move(flat);
}

std::vector<Item> Flattener::call(const Function& function, std::vector<Item> arguments) {
  std::vector<Item> values(function.values.size());
  TypeAssertions types;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (const auto* array = std::get_if<Array>(&arguments[i].value)) {
      check_type(function.values[i], array->shape, types, Errc::shape_mismatch, function.name);
    }
    values[i] = std::move(arguments[i]);
  }
  for (const Instruction& instruction : function.body) {
    Item item = evaluate(function, instruction, values);
    if (const auto* array = std::get_if<Array>(&item.value)) {
      const Value& value = function.values[instruction.result];
      check_type(value, array->shape, types, Errc::shape_mismatch,
                 place_text(instruction.line, value.name));
    }
    values[instruction.result] = std::move(item);
  }
  std::vector<Item> results;
  for (const ValueId id : function.results) results.push_back(values[id]);
  return results;
}

Item Flattener::evaluate(const Function& function, const Instruction& instruction,
                         std::vector<Item>& values) {
  const Value& made = function.values[instruction.result];
  switch (instruction.kind) {
    case Instruction::Kind::op: {
      std::vector<Array> inputs;
      for (const ValueId id : instruction.operands)
        inputs.push_back(std::get<Array>(values[id].value));
      return {apply(function, instruction, inputs)};
    }
    case Instruction::Kind::constant:
      return {constant(function, instruction, values)};
    case Instruction::Kind::scope: {
      Scope scope{{instruction.text}, {}};
      if (!instruction.operands.empty()) {
        scope = std::get<Scope>(values[instruction.operands[0]].value);
        for (std::string& prefix : scope.prefixes) prefix += "." + instruction.text;
      }
      return {std::move(scope)};
    }
    case Instruction::Kind::pack: {
      Tuple tuple;
      for (const ValueId id : instruction.operands) tuple.push_back(values[id]);
      return {std::move(tuple)};
    }
    case Instruction::Kind::item:
      return std::get<Tuple>(
          values[instruction.operands[0]].value)[static_cast<std::size_t>(instruction.index)];
    case Instruction::Kind::repeat:
      return {repeat(function, instruction, values)};
    case Instruction::Kind::call: {
      std::vector<Item> arguments;
      for (const ValueId id : instruction.operands) arguments.push_back(values[id]);
      const std::string outer = std::exchange(path_, path_into(path_, made));
      std::vector<Item> results = call(*program_.find(instruction.function), std::move(arguments));
      path_ = outer;
      if (results.size() == 1) return std::move(results[0]);
      return {Tuple(std::move(results))};
    }
  }
  throw Error(Errc::internal, function.name, "an instruction of no kind");
}

Shape Flattener::result_type(const Instruction& instruction, const std::string& value,
                             std::span<const Array> inputs) {
  const OpDef& def = *instruction.op.def();
  std::vector<Shape> types;
  for (const Array& input : inputs) types.push_back(input.shape);
  try {
    return def.infer(instruction.op.attributes(), types).without_tags();
  } catch (const Error& error) {
    throw Error(error.code(), place_text(instruction.line, fmt::format("{}: {}", value, def.name)),
                error.message());
  }
}

/// The result of an op that only reads its input with other strides, where it can.
std::optional<Array> Flattener::as_view(const OpInstance& op, const Array& input,
                                        const Shape& shape) {
  const OpDef& def = *op.def();
  if (def.view == nullptr) return std::nullopt;
  HostView in;
  in.shape = input.shape;
  in.strides = input.strides;
  ViewPlacement placement;
  if (!def.view(op.attributes(), in, shape, placement)) return std::nullopt;
  Array array = input;
  array.offset += placement.offset_bytes;
  array.shape = shape;
  array.strides = placement.strides;
  return array;
}

/// Whether the steps that are added now may never run. A branch is a loop with a condition, too.
bool Flattener::is_in_branch() const {
  return std::ranges::any_of(builder_.loops(), &FlatBuilder::Loop::has_condition);
}

/// Whether a step is not to run unless its branch does: its op may refuse what it reads, an index that is out of range.
bool Flattener::may_refuse_in_branch(const FlatStep& step) const {
  return is_in_branch() && std::ranges::any_of(step.inputs, [](const Array& input) {
           return is_integer(input.shape.dtype());
         });
}

/// The slice that a loop's index picks: a place that moves with the iterations.
std::optional<Array> Flattener::as_slice(const Instruction& instruction, const std::string& value,
                                         std::span<const Array> inputs, const Shape& shape) const {
  const OpDef& def = *instruction.op.def();
  const auto index = def.traits.selects ? counters_.of(inputs[1].storage) : std::nullopt;
  if (!index) return std::nullopt;
  const Array& stack = inputs[0];
  const std::int64_t count = builder_.counts()[index->loop];
  if (count != 0 && (index->first < 0 || index->first > stack.shape[0] - count)) {
    // A branch may be there so that no other index is read: the op looks at it when it runs.
    if (is_in_branch()) return std::nullopt;
    throw Error(Errc::out_of_range,
                place_text(instruction.line, fmt::format("{}: {}", value, def.name)),
                fmt::format("the loop counts {} times from {}, but {} has {} slices", count,
                            index->first, to_string(stack.shape), stack.shape[0]));
  }
  Array array = stack;
  const std::int64_t stride = array.strides[0];
  if (count != 0) array.offset += stride * index->first;
  array.byte_step[index->loop] += stride;
  array.shape = shape;
  std::copy(stack.strides.begin() + 1, stack.strides.end(), array.strides.begin());
  return array;
}

Array Flattener::apply(const Function& function, const Instruction& instruction,
                       std::span<const Array> inputs) {
  const std::string& value = function.values[instruction.result].name;
  const Shape shape = result_type(instruction, value, inputs);
  if (!inputs.empty()) {
    if (const auto view = as_view(instruction.op, inputs[0], shape)) return *view;
  }
  if (const auto slice = as_slice(instruction, value, inputs, shape)) return *slice;

  StepOrigin from = origin(function, value, instruction.line);
  FlatStep step;
  step.op = instruction.op;
  step.inputs.assign(inputs.begin(), inputs.end());
  step.value = std::move(from.value);
  step.function = std::move(from.function);
  step.path = path_ + value;
  step.line = from.line;
  const int updated = instruction.op.def()->traits.updates_input;
  return updated >= 0 ? update(std::move(step), static_cast<std::size_t>(updated))
                      : compute(std::move(step), shape);
}

/// Adds a step that writes into one of its inputs.
Array Flattener::update(FlatStep step, std::size_t updated) {
  const StepOrigin from{step.value, step.function, step.line};
  const auto replace_by_copy = [&](Array& input) {
    const Array own = builder_.fresh(input.shape);
    builder_.copy(input, own, FlatStep::Join::none, from);
    input = own;
  };
  Flat& flat = builder_.flat;
  Array& target = step.inputs[updated];
  // What is computed of constants alone is kept from run to run: a copy of it changes.
  if (flat.storages[target.storage].kind == Place::Kind::constant) replace_by_copy(target);
  // A view of what is updated is read while it changes: from a copy.
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (i != updated && step.inputs[i].storage == target.storage) replace_by_copy(step.inputs[i]);
  }
  flat.storages[target.storage].updated = true;
  flat.fills.erase(target.storage);
  step.output = target;
  Array output = step.output;
  builder_.add(std::move(step));
  return output;
}

/// Adds a step that writes a new array, or the constant that stands for it.
Array Flattener::compute(FlatStep step, const Shape& shape) {
  Flat& flat = builder_.flat;
  step.output.shape = shape;
  if (LoopSteps entry_step{};
      may_be_constant_ && may_be_constant_(step.path) && !may_refuse_in_branch(step)) {
    auto made = make_constants(flat, step, builder_.counts(), entry_step);
    if (!made.empty()) return constant_array(std::move(made), entry_step);
  }
  if (constant_numbers_) read_numbers_as_constants(step);
  step.output = builder_.fresh(shape);
  flat.activation_bytes =
      checked_add(flat.activation_bytes, checked_multiply(shape.bytes(), builder_.runs()));
  if (step.inputs.empty()) {
    MadeConstant fill{.op = step.op,
                      .inputs = {},
                      .shape = shape,
                      .value = step.value,
                      .function = step.function,
                      .line = step.line,
                      .path = step.path};
    flat.fills.emplace(step.output.storage, std::move(fill));
  }
  if (shape == Shape(std::span<const Axis>(), i64) && !builder_.loops().empty()) {
    counters_.note(step);
  }
  Array output = step.output;
  builder_.add(std::move(step));
  return output;
}

/// Numbers beside what is computed: constants in the place of the steps that write them.
void Flattener::read_numbers_as_constants(FlatStep& step) {
  const auto is_number = [&](const Array& input) {
    const auto found = builder_.flat.fills.find(input.storage);
    return found != builder_.flat.fills.end() && found->second.op.as<Full>() != nullptr &&
           found->second.shape.elements() == 1 && is_floating(found->second.shape.dtype());
  };
  const auto is_computed = [&](const Array& input) {
    return !is_number(input) && builder_.flat.storages[input.storage].kind != Place::Kind::constant;
  };
  if (!std::ranges::any_of(step.inputs, is_computed)) return;
  for (Array& input : step.inputs) {
    if (!is_number(input)) continue;
    const std::uint32_t number = constant_of_fill(builder_.flat, input.storage);
    const auto [found, added] = numbers_.try_emplace(number);
    if (added) {
      const std::int64_t bytes = builder_.flat.storages[input.storage].bytes;
      found->second = builder_.add_storage(Place::Kind::constant, number, bytes);
    }
    input.storage = found->second;
  }
}

Array Flattener::constant(const Function& function, const Instruction& instruction,
                          const std::vector<Item>& values) {
  Scope scope{{std::string()}, {}};
  if (!instruction.operands.empty()) scope = std::get<Scope>(values[instruction.operands[0]].value);
  std::vector<std::string> names;
  for (const std::string& prefix : scope.prefixes) {
    names.push_back(prefix.empty() ? instruction.text : prefix + "." + instruction.text);
  }
  const Value& value = function.values[instruction.result];
  return constant_array(constants_.slots(std::move(names), value, instruction.line), scope.step);
}

/// An array in these slots of one type, of which `entry_step` tells each iteration's.
Array Flattener::constant_array(std::vector<ConstantSlot> slots, const LoopSteps& entry_step) {
  const Shape type = slots.front().shape;
  const std::uint32_t first = constants_.place(builder_.flat, std::move(slots));
  Array array = builder_.fresh(type, Place::Kind::constant, first);
  array.entry_step = entry_step;
  return array;
}

/// Carried arrays get places of their own, which the loop updates.
Tuple Flattener::carry_in(const Function& callee, const Instruction& instruction,
                          const Tuple& carry) {
  Tuple carried;
  for (const Item& item : carry) {
    const auto* init = std::get_if<Array>(&item.value);
    if (init == nullptr) {
      throw Error(Errc::unsupported, place_text(instruction.line, "repeat"),
                  "carries something that is no tensor");
    }
    const Array own = builder_.fresh(init->shape);
    builder_.copy(*init, own, FlatStep::Join::enter_loop,
                  origin(callee, callee.values[carried.size()].name, instruction.line));
    carried.push_back({own});
  }
  return carried;
}

/// The prefixes of the names that each iteration reads, for each prefix outside of the loop.
Scope Flattener::scopes_of_iterations(const Function& callee, const Instruction& instruction,
                                      const Scope& outer) const {
  const std::size_t depth = builder_.loops().size();
  Scope scope;
  scope.step = outer.step;
  for (std::size_t d = 0; d < depth; ++d) scope.step[d] *= instruction.count;
  scope.step[depth] = 1;
  if (!reads_scope(callee)) return scope;
  for (const std::string& prefix : outer.prefixes) {
    for (std::int64_t i = 0; i < instruction.count; ++i) {
      const std::int64_t number = instruction.first + i;
      scope.prefixes.push_back(prefix.empty() ? fmt::format("{}", number)
                                              : fmt::format("{}.{}", prefix, number));
    }
  }
  return scope;
}

/// Results become the next carry, all at once: one that sits in another's place, or is a view of its
/// own, moves out first.
void Flattener::carry_out(const Function& callee, const Instruction& instruction,
                          std::vector<Item> results, const Tuple& carried) {
  const auto place = [&](std::size_t i) -> const Array& {
    return std::get<Array>(carried[i].value);
  };
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < results.size(); ++i) {
    arrays.push_back(std::get<Array>(results[i].value));
    if (arrays[i].shape == place(i).shape) continue;
    throw Error(Errc::shape_mismatch, place_text(instruction.line, "repeat"),
                fmt::format("'{}' is carried as {}, but '{}' returns {}", callee.values[i].name,
                            to_string(place(i).shape), callee.name, to_string(arrays[i].shape)));
  }
  const auto origin_of = [&](std::size_t i) {
    return origin(callee, callee.values[i].name, instruction.line);
  };
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (std::size_t j = 0; j < arrays.size(); ++j) {
      if (arrays[i].storage != place(j).storage) continue;
      if (j == i && fills_storage(builder_.flat, arrays[i])) continue;
      const Array moved = builder_.fresh(arrays[i].shape);
      builder_.copy(arrays[i], moved, FlatStep::Join::none, origin_of(i));
      arrays[i] = moved;
      break;
    }
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    builder_.copy(arrays[i], place(i), FlatStep::Join::next_iteration, origin_of(i));
  }
}

Tuple Flattener::repeat(const Function& function, const Instruction& instruction,
                        std::vector<Item>& values) {
  if (builder_.loops().size() == max_loop_depth) {
    throw Error(Errc::unsupported, place_text(instruction.line, "repeat"),
                fmt::format("more than {} loops inside each other, of which a condition is one",
                            max_loop_depth));
  }
  const Function& callee = *program_.find(instruction.function);
  Tuple carried =
      carry_in(callee, instruction, std::get<Tuple>(values[instruction.operands[0]].value));
  // A loop that never runs is only that: its body's constants have no names, and so no slots.
  if (instruction.count == 0) return carried;

  FlatStep loop;
  loop.value = callee.name;
  loop.line = instruction.line;
  loop.first = instruction.first;
  loop.count = instruction.count;
  if (instruction.condition >= 0) {
    const auto at = static_cast<std::size_t>(instruction.condition);
    loop.inputs.push_back(std::get<Array>(carried[at].value));
    for (const Item& item : carried) loop.inputs.push_back(std::get<Array>(item.value));
  }
  Scope scope = scopes_of_iterations(callee, instruction,
                                     std::get<Scope>(values[instruction.operands[1]].value));
  std::vector<Item> arguments = carried;
  arguments.push_back({builder_.begin_loop(loop)});
  arguments.push_back({std::move(scope)});
  for (std::size_t i = 2; i < instruction.operands.size(); ++i) {
    arguments.push_back(values[instruction.operands[i]]);
  }
  const std::string outer_path =
      std::exchange(path_, path_into(path_, function.values[instruction.result]));
  std::vector<Item> results = call(callee, std::move(arguments));
  path_ = outer_path;
  carry_out(callee, instruction, std::move(results), carried);
  builder_.end_loop(loop);
  return carried;
}

}  // namespace

bool fills_storage(const Flat& flat, const Array& array) {
  return array.offset == 0 && array.byte_step == LoopSteps{} && array.entry_step == LoopSteps{} &&
         is_contiguous(array.shape, array.strides) &&
         array.shape.bytes() == flat.storages[array.storage].bytes;
}

Flat flatten(const Program& program, std::span<const Shape> inputs, const ConstantTypes& types,
             const MayBeConstant& may_be_constant, bool constant_numbers) {
  return Flattener(program, types, may_be_constant, constant_numbers).run(inputs);
}

}  // namespace tenon::lowering
