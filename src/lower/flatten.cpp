#include "lower/flat.hpp"
#include "program/reads_value.hpp"
#include "program/type_assertions.hpp"
#include "program/unrolled.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
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

struct Item;
using Tuple = std::vector<Item>;
struct Item {
  std::variant<Array, Tuple, Scope> value;
};

std::string place_text(const SourceLine& line, std::string_view name) {
  return line.file.empty() ? std::string(name)
                           : fmt::format("{}:{}: {}", line.file, line.line, name);
}

class Flattener {
 public:
  Flattener(const Program& program, const ConstantTypes& types,
            const MayBeConstant& may_be_constant, bool constant_numbers)
      : program_(program),
        types_(types),
        may_be_constant_(may_be_constant),
        constant_numbers_(constant_numbers) {}

  Flat run(std::span<const Shape> inputs);

 private:
  std::vector<Item> call(const Function& function, std::vector<Item> arguments);
  Item evaluate(const Function& function, const Instruction& instruction,
                std::vector<Item>& values);
  Item apply(const Function& function, const Instruction& instruction,
             std::span<const Array> inputs);
  Item repeat(const Function& function, const Instruction& instruction, std::vector<Item>& values);
  Item constant(const Function& function, const Instruction& instruction,
                std::vector<Item>& values);
  Shape constant_type(const Value& value, const Instruction& instruction,
                      std::span<const std::string> names) const;
  Array constant_array(std::vector<ConstantSlot> slots, const LoopSteps& entry_step);
  void note_constant(const std::string& name, const Shape& type, const Value& value,
                     const SourceLine& line);
  static void check_type(const Value& value, const Shape& actual, TypeAssertions& types, Errc code,
                         const std::string& where);

  /// What an i64 scalar counts: a loop's iterations, from a number of its own.
  struct Counter {
    std::uint32_t loop = 0;  // how many loops are around it
    std::int64_t first = 0;
  };
  std::optional<Counter> counter_of(StorageId id) const;
  std::optional<std::int64_t> number_of(const Array& array) const;
  void read_numbers_as_constants(FlatStep& step);
  void note_counter(const FlatStep& step);

  StorageId add_storage(Place::Kind kind, std::uint32_t index, std::int64_t bytes);
  Array fresh(const Shape& shape);
  void read(const Array& array, std::int64_t time);
  void emit(FlatStep step);
  void copy(const Array& from, const Array& to, FlatStep::Join join, const Function& function,
            std::string_view value, const SourceLine& line);
  std::string name_of(const Function& function) const;

  const Program& program_;
  const ConstantTypes& types_;
  const MayBeConstant& may_be_constant_;
  bool constant_numbers_;
  Flat flat_;
  std::int64_t clock_ = 0;
  std::vector<FlatStep>* steps_ = nullptr;

  struct Loop {
    std::uint32_t id;
    bool has_condition;
    std::vector<StorageId> outer_uses;
  };
  std::vector<Loop> loops_;
  std::vector<std::int64_t> counts_;  // of the enclosing loops
  std::uint32_t loops_made_ = 0;
  std::unordered_map<std::uint32_t, StorageId> numbers_;  // of constants that are numbers
  std::unordered_map<StorageId, Counter> counters_;  // those that steps compute of a loop's index
  std::string path_;  // into the function that is expanded: see Origins
  std::map<std::string, std::uint32_t> constant_runs_;  // first slot by joined names
  std::unordered_map<std::string, Shape> noted_;        // types of constants so far
};

StorageId Flattener::add_storage(Place::Kind kind, std::uint32_t index, std::int64_t bytes) {
  Storage storage;
  storage.kind = kind;
  storage.index = index;
  storage.bytes = bytes;
  storage.begin = storage.end = clock_;
  for (const Loop& loop : loops_) storage.loops.push_back(loop.id);
  flat_.storages.push_back(std::move(storage));
  return static_cast<StorageId>(flat_.storages.size() - 1);
}

Array Flattener::fresh(const Shape& shape) {
  Array array;
  array.storage = add_storage(Place::Kind::slab, 0, shape.bytes());
  array.shape = shape;
  array.strides = dense_strides(shape);
  return array;
}

std::optional<Flattener::Counter> Flattener::counter_of(StorageId id) const {
  const Storage& storage = flat_.storages[id];
  if (storage.kind == Place::Kind::loop_index) {
    return Counter{storage.index, storage.bytes};  // which are its first number
  }
  const auto found = counters_.find(id);
  return found == counters_.end() ? std::nullopt : std::optional(found->second);
}

/// The i64 number that an array is, where the program has it: filled, or folded.
std::optional<std::int64_t> Flattener::number_of(const Array& array) const {
  if (!(array.shape == Shape(std::span<const Axis>(), i64))) return std::nullopt;
  const Storage& storage = flat_.storages[array.storage];
  if (storage.kind == Place::Kind::constant) {
    const ConstantSlot& slot = flat_.constants[storage.index];
    const auto found = program_.folded.find(slot.name);
    if (slot.computed || found == program_.folded.end() || array.entry_step != LoopSteps{}) {
      return std::nullopt;
    }
    return found->second.values<std::int64_t>()[0];
  }
  const auto found = flat_.fills.find(array.storage);
  const Full* const full = found == flat_.fills.end() ? nullptr : found->second.op.as<Full>();
  constexpr double largest = 1e15;  // doubles have all whole numbers up to it
  if (full == nullptr || !(std::fabs(full->value) <= largest)) return std::nullopt;
  return static_cast<std::int64_t>(full->value);
}

/// An index plus or minus a number that the program has counts, too: layers that share a stack with
/// others have their places in it so.
void Flattener::note_counter(const FlatStep& step) {
  const bool is_sum = step.op.as<Add>() != nullptr;
  if (!is_sum && step.op.as<Sub>() == nullptr) return;
  const Array &left = step.inputs[0], &right = step.inputs[1];
  const auto keep = [&](const std::optional<Counter>& counter, std::optional<std::int64_t> number) {
    if (!counter || !number) return;
    counters_.insert_or_assign(step.output.storage,
                               Counter{counter->loop, counter->first + *number});
  };
  const auto number = number_of(right);
  if (is_sum) {
    keep(counter_of(left.storage), number);
    keep(counter_of(right.storage), number_of(left));
  } else if (number) {
    keep(counter_of(left.storage), -*number);
  }
}

void Flattener::read(const Array& array, std::int64_t time) {
  Storage& storage = flat_.storages[array.storage];
  storage.reads.push_back(time);
  storage.end = std::max(storage.end, time);
  // Inside a loop that does not contain the definition, the value must last until the loop's end.
  const std::size_t shared = storage.loops.size();
  if (loops_.size() > shared) loops_[shared].outer_uses.push_back(array.storage);
}

void Flattener::emit(FlatStep step) {
  step.time = clock_++;
  for (const Array& input : step.inputs) read(input, step.time);
  Storage& written = flat_.storages[step.output.storage];
  written.end = std::max(written.end, step.time);
  if (loops_.size() > written.loops.size()) {
    loops_[written.loops.size()].outer_uses.push_back(step.output.storage);
  }
  steps_->push_back(std::move(step));
}

std::string Flattener::name_of(const Function& function) const {
  return &function == &program_.main() ? std::string() : function.name;
}

void Flattener::copy(const Array& from, const Array& to, FlatStep::Join join,
                     const Function& function, std::string_view value, const SourceLine& line) {
  FlatStep step;
  step.kind = Step::Kind::copy;
  step.inputs = {from};
  step.output = to;
  step.join = join;
  step.value = value;
  step.function = name_of(function);
  step.line = line;
  if (is_linear_object(from.shape.dtype())) {  // what is copied is the object's address
    flat_.storages[from.storage].updated = flat_.storages[to.storage].updated = true;
  }
  emit(std::move(step));
}

void Flattener::check_type(const Value& value, const Shape& actual, TypeAssertions& types,
                           Errc code, const std::string& where) {
  if (value.shape) types.check(value.name, *value.shape, actual, code, where);
}

Flat Flattener::run(std::span<const Shape> inputs) {
  const Function& main = program_.main();
  if (inputs.size() != main.parameter_count) {
    throw Error(Errc::bad_input, main.name,
                fmt::format("{} inputs given, {} expected", inputs.size(), main.parameter_count));
  }
  TypeAssertions types;
  std::vector<Item> arguments;
  for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
    const Value& parameter = main.values[i];
    if (!inputs[i].is_static()) {
      throw Error(
          Errc::bad_input, main.name,
          fmt::format("input '{}' has open sizes: {}", parameter.name, to_string(inputs[i])));
    }
    const Shape shape = inputs[i].without_tags();
    check_type(parameter, shape, types, Errc::bad_input, main.name);
    flat_.inputs.push_back({parameter.name, shape});
    Array array;
    array.storage = add_storage(Place::Kind::input, i, shape.bytes());
    array.shape = shape;
    array.strides = dense_strides(shape);
    arguments.push_back({array});
  }
  steps_ = &flat_.steps;
  clock_ = 1;
  const std::vector<Item> results = call(main, std::move(arguments));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto* array = std::get_if<Array>(&results[i].value);
    if (array == nullptr) {
      throw Error(Errc::unsupported, main.name, fmt::format("result {} is no tensor", i));
    }
    read(*array, clock_);
    if (is_linear_object(array->shape.dtype())) flat_.storages[array->storage].updated = true;
    flat_.results.push_back(*array);
    flat_.result_names.push_back(main.values[main.results[i]].name);
  }
  flat_.end_time = clock_;
  if (!flat_.fill_constants.empty()) drop_unread_fills(flat_, flat_.steps);
  return std::move(flat_);
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
      return apply(function, instruction, inputs);
    }
    case Instruction::Kind::constant:
      return constant(function, instruction, values);
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
      return repeat(function, instruction, values);
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

Item Flattener::apply(const Function& function, const Instruction& instruction,
                      std::span<const Array> inputs) {
  const OpDef& def = *instruction.op.def();
  const std::string& value = function.values[instruction.result].name;
  std::vector<Shape> types;
  for (const Array& input : inputs) types.push_back(input.shape);
  Shape shape;
  try {
    shape = def.infer(instruction.op.attributes(), types).without_tags();
  } catch (const Error& error) {
    throw Error(error.code(), place_text(instruction.line, fmt::format("{}: {}", value, def.name)),
                error.message());
  }

  if (def.view != nullptr) {
    HostView in;
    in.shape = inputs[0].shape;
    in.strides = inputs[0].strides;
    ViewPlacement placement;
    if (def.view(instruction.op.attributes(), in, shape, placement)) {
      Array array = inputs[0];
      array.offset += placement.offset_bytes;
      array.shape = shape;
      array.strides = placement.strides;
      return {array};
    }
  }
  if (const auto index = def.traits.selects ? counter_of(inputs[1].storage) : std::nullopt) {
    const std::int64_t count = counts_[index->loop], end = index->first + count;
    const bool fits = count == 0 || (index->first >= 0 && end <= inputs[0].shape[0]);
    // A branch is a loop with a condition, too: it may be there so that no other index is read.
    const bool may_be_left_out = std::ranges::any_of(loops_, &Loop::has_condition);
    if (!fits && !may_be_left_out) {
      throw Error(Errc::out_of_range,
                  place_text(instruction.line, fmt::format("{}: {}", value, def.name)),
                  fmt::format("the loop counts from {} to {}, but {} has {} slices", index->first,
                              end - 1, to_string(inputs[0].shape), inputs[0].shape[0]));
    }
    if (fits) {  // else the op looks at the index when it runs
      Array array = inputs[0];
      const std::int64_t stride = array.strides[0];
      array.offset += stride * index->first;
      array.byte_step[index->loop] += stride;
      array.shape = shape;
      std::copy(inputs[0].strides.begin() + 1, inputs[0].strides.end(), array.strides.begin());
      return {array};
    }
  }

  FlatStep step;
  step.op = instruction.op;
  step.inputs.assign(inputs.begin(), inputs.end());
  step.value = value;
  step.function = name_of(function);
  step.path = path_ + value;
  step.line = instruction.line;
  if (def.traits.updates_input >= 0) {
    Array& updated = step.inputs[static_cast<std::size_t>(def.traits.updates_input)];
    if (flat_.storages[updated.storage].kind == Place::Kind::constant) {
      // What is computed of constants alone is kept from run to run: a copy of it changes.
      const Array own = fresh(updated.shape);
      copy(updated, own, FlatStep::Join::none, function, value, instruction.line);
      updated = own;
    }
    step.output = updated;
    // A view of what is updated is read while it changes: from a copy.
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const bool is_updated = static_cast<int>(i) == def.traits.updates_input;
      if (is_updated || step.inputs[i].storage != step.output.storage) continue;
      const Array moved = fresh(step.inputs[i].shape);
      copy(step.inputs[i], moved, FlatStep::Join::none, function, value, instruction.line);
      step.inputs[i] = moved;
    }
    flat_.storages[step.output.storage].updated = true;
    flat_.fills.erase(step.output.storage);
  } else {
    step.output.shape = shape;
    if (LoopSteps entry_step{}; may_be_constant_ && may_be_constant_(step.path)) {
      auto made = make_constants(flat_, step, counts_, entry_step);
      if (!made.empty()) return {constant_array(std::move(made), entry_step)};
    }
    if (constant_numbers_) read_numbers_as_constants(step);
    step.output = fresh(shape);
    std::int64_t runs = 1;
    for (std::size_t d = 0; d < counts_.size(); ++d) {
      if (!loops_[d].has_condition) runs *= std::max<std::int64_t>(counts_[d], 1);
    }
    flat_.activation_bytes += shape.bytes() * runs;
  }
  if (step.inputs.empty()) {
    MadeConstant fill{.op = step.op,
                      .inputs = {},
                      .shape = shape,
                      .value = step.value,
                      .function = step.function,
                      .line = step.line,
                      .path = step.path};
    flat_.fills.emplace(step.output.storage, std::move(fill));
  }
  if (shape == Shape(std::span<const Axis>(), i64) && !loops_.empty()) note_counter(step);
  Array output = step.output;
  emit(std::move(step));
  return {output};
}

/// Numbers beside what is computed: constants in the place of the steps that write them.
void Flattener::read_numbers_as_constants(FlatStep& step) {
  const auto is_number = [&](const Array& input) {
    const auto found = flat_.fills.find(input.storage);
    return found != flat_.fills.end() && found->second.op.as<Full>() != nullptr &&
           found->second.shape.elements() == 1 && is_floating(found->second.shape.dtype());
  };
  const auto is_computed = [&](const Array& input) {
    return !is_number(input) && flat_.storages[input.storage].kind != Place::Kind::constant;
  };
  if (!std::ranges::any_of(step.inputs, is_computed)) return;
  for (Array& input : step.inputs) {
    if (!is_number(input)) continue;
    const std::uint32_t number = constant_of_fill(flat_, input.storage);
    const auto [found, added] = numbers_.try_emplace(number);
    if (added) {
      const std::int64_t bytes = flat_.storages[input.storage].bytes;
      found->second = add_storage(Place::Kind::constant, number, bytes);
    }
    input.storage = found->second;
  }
}

Item Flattener::constant(const Function& function, const Instruction& instruction,
                         std::vector<Item>& values) {
  Scope scope{{std::string()}, {}};
  if (!instruction.operands.empty()) scope = std::get<Scope>(values[instruction.operands[0]].value);
  std::vector<std::string> names;
  for (const std::string& prefix : scope.prefixes) {
    names.push_back(prefix.empty() ? instruction.text : prefix + "." + instruction.text);
  }
  const Value& value = function.values[instruction.result];
  const Shape type = constant_type(value, instruction, names);
  if (is_linear_object(type.dtype())) {
    throw Error(Errc::alias, place_text(instruction.line, value.name),
                fmt::format("a {} changes and is no constant", to_string(type)));
  }
  for (const std::string& name : names) note_constant(name, type, value, instruction.line);
  std::vector<ConstantSlot> slots;
  for (std::string& name : names) {
    const bool folded = program_.folded.contains(name);
    slots.push_back({std::move(name), type, folded});
  }
  return {constant_array(std::move(slots), scope.step)};
}

/// An array in these slots of one type, one after the other, or in equal ones that are there.
Array Flattener::constant_array(std::vector<ConstantSlot> slots, const LoopSteps& entry_step) {
  std::string joined;
  for (const ConstantSlot& slot : slots) {
    joined += slot.computed ? "computed " : "";
    joined += slot.name;
    joined += '\n';
  }
  const Shape type = slots.front().shape;
  const auto [run, added] =
      constant_runs_.emplace(joined, static_cast<std::uint32_t>(flat_.constants.size()));
  if (added) std::ranges::move(slots, std::back_inserter(flat_.constants));
  Array array;
  array.storage = add_storage(Place::Kind::constant, run->second, type.bytes());
  array.entry_step = entry_step;
  array.shape = type;
  array.strides = dense_strides(type);
  return array;
}

Shape Flattener::constant_type(const Value& value, const Instruction& instruction,
                               std::span<const std::string> names) const {
  if (value.shape && value.shape->is_static()) return *value.shape;
  const std::string where = place_text(instruction.line, value.name);
  std::optional<Shape> type;
  for (const std::string& name : names) {
    const std::optional<Shape> known = types_ ? types_(name) : std::nullopt;
    if (!known) {
      throw Error(Errc::bad_reference, where,
                  fmt::format("the type of constant '{}' is not known", name));
    }
    if (type && !(*type == *known)) {
      throw Error(Errc::shape_mismatch, where,
                  fmt::format("constant '{}' is {}, '{}' is {}: one loop needs one type", names[0],
                              to_string(*type), name, to_string(*known)));
    }
    type = known->without_tags();
  }
  return type.value_or(Shape());
}

/// One name is one array: all reads must declare the same type.
void Flattener::note_constant(const std::string& name, const Shape& type, const Value& value,
                              const SourceLine& line) {
  const auto [known, added] = noted_.emplace(name, type);
  if (added || known->second == type) return;
  throw Error(Errc::shape_mismatch, place_text(line, value.name),
              fmt::format("constant '{}' is {} here and {} elsewhere", name, to_string(type),
                          to_string(known->second)));
}

Item Flattener::repeat(const Function& function, const Instruction& instruction,
                       std::vector<Item>& values) {
  if (loops_.size() == max_loop_depth) {
    throw Error(Errc::unsupported, place_text(instruction.line, "repeat"),
                fmt::format("more than {} loops inside each other, of which a condition is one",
                            max_loop_depth));
  }
  const Function& callee = *program_.find(instruction.function);
  const Tuple carry = std::get<Tuple>(values[instruction.operands[0]].value);
  const Scope& outer_scope = std::get<Scope>(values[instruction.operands[1]].value);
  const std::size_t depth = loops_.size();

  // Carried arrays get a place of their own, which the loop updates. A loop that never runs is only
  // that: its body's constants have no names, and so no slots.
  std::vector<Item> arguments;
  Tuple carried;
  for (const Item& item : carry) {
    const auto* init = std::get_if<Array>(&item.value);
    if (init == nullptr) {
      throw Error(Errc::unsupported, place_text(instruction.line, "repeat"),
                  "carries something that is no tensor");
    }
    const Array own = fresh(init->shape);
    copy(*init, own, FlatStep::Join::enter_loop, callee, callee.values[carried.size()].name,
         instruction.line);
    carried.push_back({own});
    arguments.push_back({own});
  }

  if (instruction.count == 0) return {std::move(carried)};

  FlatStep loop;
  loop.kind = Step::Kind::loop;
  loop.value = callee.name;
  loop.line = instruction.line;
  loop.first = instruction.first;
  loop.count = instruction.count;
  loop.depth = static_cast<int>(depth);
  loop.begin_time = clock_++;
  if (instruction.condition >= 0) {
    const auto at = static_cast<std::size_t>(instruction.condition);
    loop.inputs.push_back(std::get<Array>(carried[at].value));
    for (const Item& item : carried) loop.inputs.push_back(std::get<Array>(item.value));
  }

  Array index;
  index.shape = Shape(std::span<const Axis>(), i64);
  index.storage =
      add_storage(Place::Kind::loop_index, static_cast<std::uint32_t>(depth), instruction.first);
  arguments.push_back({index});

  Scope scope;
  scope.step = outer_scope.step;
  for (std::size_t d = 0; d < depth; ++d) scope.step[d] *= instruction.count;
  scope.step[depth] = 1;
  for (const std::string& prefix : outer_scope.prefixes) {
    if (!reads_scope(callee)) break;
    for (std::int64_t i = 0; i < instruction.count; ++i) {
      scope.prefixes.push_back(prefix.empty()
                                   ? fmt::format("{}", instruction.first + i)
                                   : fmt::format("{}.{}", prefix, instruction.first + i));
    }
  }
  arguments.push_back({std::move(scope)});
  for (std::size_t i = 2; i < instruction.operands.size(); ++i) {
    arguments.push_back(values[instruction.operands[i]]);
  }

  std::vector<FlatStep>* const outer_steps = std::exchange(steps_, &loop.body);
  loops_.push_back({loops_made_++, instruction.condition >= 0, {}});
  counts_.push_back(instruction.count);
  const std::string outer_path =
      std::exchange(path_, path_into(path_, function.values[instruction.result]));
  std::vector<Item> results = call(callee, std::move(arguments));
  path_ = outer_path;

  for (std::size_t i = 0; i < results.size(); ++i) {
    const Shape& shape = std::get<Array>(results[i].value).shape;
    const Shape& place = std::get<Array>(carried[i].value).shape;
    if (shape == place) continue;
    throw Error(Errc::shape_mismatch, place_text(instruction.line, "repeat"),
                fmt::format("'{}' is carried as {}, but '{}' returns {}", callee.values[i].name,
                            to_string(place), callee.name, to_string(shape)));
  }

  // Results become the next carry, all at once: one that sits in another's place, or is a view of
  // its own, moves out first.
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Array result = std::get<Array>(results[i].value);
    for (std::size_t j = 0; j < carried.size(); ++j) {
      if (result.storage == std::get<Array>(carried[j].value).storage &&
          (j != i || !fills_storage(flat_, result))) {
        const Array moved = fresh(result.shape);
        copy(result, moved, FlatStep::Join::none, callee, callee.values[i].name, instruction.line);
        results[i] = {moved};
        break;
      }
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    copy(std::get<Array>(results[i].value), std::get<Array>(carried[i].value),
         FlatStep::Join::next_iteration, callee, callee.values[i].name, instruction.line);
  }
  for (const StorageId id : loops_.back().outer_uses) {
    flat_.storages[id].end = std::max(flat_.storages[id].end, clock_);
  }
  loops_.pop_back();
  counts_.pop_back();
  steps_ = outer_steps;
  loop.time = clock_++;
  steps_->push_back(std::move(loop));
  return {std::move(carried)};
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
