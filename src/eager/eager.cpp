#include "array/object_slot.hpp"
#include "graph/operand_count.hpp"
#include "memory/kept_memory.hpp"
#include "program/type_assertions.hpp"
#include "session/plan.hpp"

#include <tenon/cost.hpp>
#include <tenon/device.hpp>
#include <tenon/eager.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/ops/complex.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <source_location>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace tenon {

EagerArray::EagerArray(Buffer buffer)
    : storage_(std::move(buffer)),
      shape_(storage_.shape().without_tags()),
      strides_(dense_strides(shape_)) {
  storage_.wait();
  if (!storage_.region().is_host()) {
    throw Error(Errc::bad_argument, "EagerArray",
                fmt::format("{} lies in {}, which the CPU cannot address", to_string(shape_),
                            storage_.region().name()));
  }
}

EagerArray::EagerArray(std::int64_t value)
    : EagerArray(Buffer::allocate(Shape({}, DType::i64), cpu_device()->default_mem_region())) {
  *view().as<std::int64_t>() = value;
  is_counter_ = true;
}

void EagerArray::require_data() const {
  if (!has_data()) throw Error(Errc::call_order, "EagerArray", "has no data: it was moved from");
}

HostView EagerArray::view() const {
  require_data();
  return {storage_.data().cptr() + offset_, shape_, strides_};
}

Buffer EagerArray::to_buffer() const {
  const HostView elements = view();
  if (elements.is_contiguous() && shape_.elements() > 0) {
    return Buffer(shape_, storage_.chunk(),
                  storage_.offset_bytes() + static_cast<std::uint64_t>(offset_));
  }
  Buffer dense = Buffer::allocate(shape_, storage_.region());
  copy_elements(elements, dense.host_view());
  return dense;
}

std::int64_t EagerArray::to_int() const {
  require_data();
  if (!is_integer(shape_.dtype()) && shape_.dtype() != DType::boolean) {
    throw Error(Errc::bad_type, "EagerArray", fmt::format("{} is no integer", to_string(shape_)));
  }
  if (shape_.elements() != 1) {
    throw Error(Errc::bad_shape, "EagerArray", fmt::format("{} is no number", to_string(shape_)));
  }
  return load_as_int64(shape_.dtype(), view().data);
}

EagerScope EagerScope::inner(std::string_view name) const {
  return {prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name)};
}

namespace {

/// Work up to which a kernel is brief: operations, and numbers of 32 bits that it reads and writes.
constexpr double brief_work = 65536;

/// What an op does with operands of one kind.
struct Compiled : EagerKernel {
  std::optional<std::size_t> overwrites;  // the operand in whose memory the result is computed
  Lowered lowered;                        // the one step, to which the partition refers
  std::unique_ptr<Partition> partition;
  std::unique_ptr<BoundPartition> bound;
  std::vector<const std::byte*> weights;  // their addresses
  std::unique_ptr<Session> composed;      // of an op that is recorded as others; no partition then
};

/// Which of an op's operands its result may overwrite, as bits.
using Overwritable = std::uint32_t;

struct CallKeyHash {
  std::size_t operator()(const detail::CallKey& key) const noexcept {
    std::uint64_t hash = key.size();
    for (const std::int64_t word : key) {
      hash = (std::rotl(hash, 29) ^ static_cast<std::uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    }
    return hash ^ hash >> 32;
  }
};

}  // namespace

struct Eager::State {
  State(std::shared_ptr<const WeightSet> with, std::vector<BackendPtr> in_order);

  EagerArray run(const OpDef& def, const void* attributes, std::span<const EagerInput> inputs);
  const EagerKernel* find(std::span<const Shape* const> types);
  void launch(const Compiled& with, std::span<std::byte* const> operands, std::byte* result);

  detail::CallKey key;  // of the call, by its parts
  std::shared_ptr<const WeightSet> weights;
  std::vector<BackendPtr> backends;
  std::vector<PlanReport::Fallback> fallbacks;
  std::int64_t copied_bytes = 0;
  Interrupt interrupt;

 private:
  using Operands = std::span<const EagerArray* const>;

  EagerArray result_of(const OpDef& def, const void* attributes,
                       std::span<const EagerInput> inputs);
  static bool is_free(std::span<const EagerInput> inputs, std::size_t i);
  static Overwritable overwritable(const OpDef& def, std::span<const EagerInput> inputs);
  static std::optional<EagerArray> entry(const OpDef& def, Operands operands);
  bool is_weight(const EagerArray& operand) const;
  static void append_type(detail::CallKey& key, const Shape& shape, std::int64_t kind);
  void append_operand(const EagerArray& operand);

  Compiled compile(const OpDef& def, const void* attributes, Operands operands,
                   Overwritable candidates);
  Compiled compose(const OpDef& def, const void* attributes, std::span<const Shape> types);
  void add_step(Compiled& to, const OpDef& def, const void* attributes, Operands operands);
  void choose_backend(Compiled& to);
  void add_fallback(const PlanReport::Fallback& fallback);
  void keep_memory(std::uint64_t bytes);
  EagerArray compute(const Compiled& with, Operands operands);
  EagerArray compute_composed(Session& session, Operands operands) const;
  std::byte* scratch(std::int64_t bytes);

  static constexpr std::size_t limit = 8192;  // of compiled_, of which all are dropped beyond it

  std::vector<const EagerArray*> operands_;  // of the call
  std::vector<std::byte*> addresses_;        // of them
  MemRegion& memory_ = cpu_device()->default_mem_region();
  std::unordered_map<detail::CallKey, Compiled, CallKeyHash> compiled_;
  std::vector<std::uint64_t> kept_sizes_;  // of results, the newest last
  KeptMemory kept_;
  Buffer scratch_;
};

Eager::State::State(std::shared_ptr<const WeightSet> with, std::vector<BackendPtr> in_order)
    : weights(std::move(with)), backends(std::move(in_order)) {
  if (weights == nullptr) {
    weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>());
  }
  if (backends.empty()) backends = default_backends();
  for (const BackendPtr& backend : backends) {
    if (backend == nullptr) throw Error(Errc::bad_argument, "Eager", "a null backend");
    if (backend->region().is_host()) continue;
    throw Error(
        Errc::bad_argument, "Eager",
        fmt::format("'{}' computes in memory that the CPU cannot address", backend->name()));
  }
}

EagerArray Eager::State::run(const OpDef& def, const void* attributes,
                             std::span<const EagerInput> inputs) {
  interrupt.check("Eager");
  operands_.clear();
  for (const EagerInput& input : inputs) {
    input.array_->require_data();
    operands_.push_back(input.array_);
  }
  EagerArray result;
  if (std::optional<EagerArray> slice = entry(def, operands_)) {
    result = std::move(*slice);
  } else {
    result = result_of(def, attributes, inputs);
  }
  for (const EagerInput& input : inputs) {
    if (input.given_up_ != nullptr) *input.given_up_ = EagerArray();
  }
  return result;
}

EagerArray Eager::State::result_of(const OpDef& def, const void* attributes,
                                   std::span<const EagerInput> inputs) {
  const Overwritable candidates = overwritable(def, inputs);
  EagerArray own;
  if (def.traits.updates_input >= 0) {
    const auto updated = static_cast<std::size_t>(def.traits.updates_input);
    if (updated < operands_.size() && !is_free(inputs, updated)) {
      const EagerArray& shared = *operands_[updated];
      own = Buffer::allocate(shared.shape_, memory_);
      if (is_object(shared.shape_.dtype())) {
        objects::assign(shared.storage_, own.storage_, true);
      } else {
        copy_elements(shared.view(), own.view());
      }
      copied_bytes += shared.shape_.bytes();
      operands_[updated] = &own;
    }
  }

  detail::append_key(key, static_cast<std::int64_t>(candidates));
  for (const EagerArray* operand : operands_) append_operand(*operand);
  auto found = compiled_.find(key);
  if (found == compiled_.end()) {
    if (compiled_.size() >= limit) compiled_.clear();
    Compiled made = compile(def, attributes, operands_, candidates);
    found = compiled_.emplace(key, std::move(made)).first;
  }
  return compute(found->second, operands_);
}

/// Whether nobody could notice that an operand's memory is written to.
bool Eager::State::is_free(std::span<const EagerInput> inputs, std::size_t i) {
  const EagerArray& array = *inputs[i].array_;
  const auto times = std::ranges::count(inputs, &array, &EagerInput::array_);
  return inputs[i].given_up_ != nullptr && times == 1 && array.weight_ == nullptr &&
         array.storage_.is_unique() && is_contiguous(array.shape_, array.strides_);
}

Overwritable Eager::State::overwritable(const OpDef& def, std::span<const EagerInput> inputs) {
  Overwritable result = 0;
  for (std::size_t i = 0; i < inputs.size() && i < 32; ++i) {
    const Overwritable bit = Overwritable{1} << i;
    if ((def.traits.in_place_inputs & bit) != 0 && is_free(inputs, i)) result |= bit;
  }
  return result;
}

/// The slice that an index selects, as a view; nothing for other ops, and for an index that the op
/// refuses.
std::optional<EagerArray> Eager::State::entry(const OpDef& def, Operands operands) {
  if (!def.traits.selects || operands.size() != 2) return std::nullopt;
  const EagerArray& from = *operands[0];
  const Shape& index_type = operands[1]->shape_;
  if (from.shape_.rank() == 0 || index_type.rank() != 0 || !is_integer(index_type.dtype())) {
    return std::nullopt;
  }
  if (is_block(from.shape_.dtype()) && from.shape_.rank() == 1) return std::nullopt;
  const std::int64_t index = operands[1]->to_int();
  if (index < 0 || index >= from.shape_[0]) return std::nullopt;
  EagerArray slice = from;
  // As in a plan: what a computed index selects is no weight, which could be packed for each index.
  if (!operands[1]->is_counter_) slice.weight_.reset();
  slice.offset_ += index * from.strides_[0];
  slice.shape_ = from.shape_.without_axis(0);
  std::shift_left(slice.strides_.begin(), slice.strides_.end(), 1);
  return slice;
}

void Eager::State::append_type(detail::CallKey& key, const Shape& shape, std::int64_t kind) {
  key.push_back(kind << 16 | static_cast<std::int64_t>(shape.dtype()) << 8 | shape.rank());
  key.insert(key.end(), shape.dims().begin(), shape.dims().end());
}

/// Whether an operand is one of these weights, which may be packed. Another Eager's are elements like any others.
bool Eager::State::is_weight(const EagerArray& operand) const {
  return operand.weight_ != nullptr && !operand.weight_.owner_before(weights) &&
         !weights.owner_before(operand.weight_);
}

void Eager::State::append_operand(const EagerArray& operand) {
  constexpr std::int64_t has_strides = 1, has_name = 2;  // of a dense operand: 0
  const auto strides = std::span(operand.strides_).first(operand.shape_.dims().size());
  const Strides dense = dense_strides(operand.shape_);
  std::int64_t kind =
      std::ranges::equal(strides, std::span(dense).first(strides.size())) ? 0 : has_strides;
  if (is_weight(operand)) kind |= has_name;
  append_type(key, operand.shape_, kind);
  if ((kind & has_strides) != 0) key.insert(key.end(), strides.begin(), strides.end());
  if ((kind & has_name) != 0) {
    const auto weight = reinterpret_cast<std::uintptr_t>(operand.weight_.get());
    key.push_back(static_cast<std::int64_t>(weight));
    key.push_back(operand.offset_);
  }
}

const EagerKernel* Eager::State::find(std::span<const Shape* const> types) {
  detail::append_key(key, std::int64_t{0});  // nothing may be overwritten
  for (const Shape* type : types) append_type(key, *type, 0);
  const auto found = compiled_.find(key);
  if (found == compiled_.end()) return nullptr;
  const Compiled& compiled = found->second;
  return compiled.overwrites || compiled.composed != nullptr ? nullptr : &compiled;
}

Compiled Eager::State::compile(const OpDef& def, const void* attributes, Operands operands,
                               Overwritable candidates) {
  if (auto refused = refused_operand_count(def, static_cast<int>(operands.size()))) {
    throw Error(Errc::bad_argument, std::string(def.name), *std::move(refused));
  }
  Compiled made;
  std::vector<Shape> types;
  for (const EagerArray* operand : operands) types.push_back(operand->shape_);
  if (is_composed(def, attributes, types)) return compose(def, attributes, types);
  made.output = def.infer(attributes, types).without_tags();
  if (def.view != nullptr) {
    ViewPlacement placement;
    if (def.view(attributes, operands[0]->view(), made.output, placement)) {
      made.view = placement;
      return made;
    }
  }
  for (std::size_t i = 0; i < operands.size() && !made.overwrites; ++i) {
    const bool is_candidate = (candidates & (Overwritable{1} << i)) != 0;
    if (is_candidate && types[i] == made.output) made.overwrites = i;
  }
  if (def.traits.updates_input >= 0) {
    made.overwrites = static_cast<std::size_t>(def.traits.updates_input);
  }
  add_step(made, def, attributes, operands);
  choose_backend(made);
  const Cost cost = cost_of(made.lowered.steps.front());
  made.is_brief = cost.flops + cost.bytes / 4 <= brief_work;
  keep_memory(static_cast<std::uint64_t>(made.output.bytes()));
  return made;
}

Compiled Eager::State::compose(const OpDef& def, const void* attributes,
                               std::span<const Shape> types) {
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands;
  for (const Shape& type : types) operands.push_back(graph.input("", type));
  const Tensor result = record(def, attributes, operands, std::source_location::current());
  Compiled made;
  made.output = result.shape();
  made.composed = std::make_unique<Session>(graph.program(std::span(&result, 1)),
                                            SessionOptions{.backends = backends});
  made.composed->set_merge(false);
  for (const auto& fallback : made.composed->report(types).fallbacks) add_fallback(fallback);
  return made;
}

/// Results of this size, and of the last others, find the memory of earlier ones. Not of all: of each
/// size two blocks may be kept.
void Eager::State::keep_memory(std::uint64_t bytes) {
  constexpr std::size_t most = 16;
  if (bytes < kept_bytes_from || std::ranges::find(kept_sizes_, bytes) != kept_sizes_.end()) return;
  if (kept_sizes_.size() == most) kept_sizes_.erase(kept_sizes_.begin());
  kept_sizes_.push_back(bytes);
  std::vector<std::uint64_t> twice = kept_sizes_;
  twice.insert(twice.end(), kept_sizes_.begin(), kept_sizes_.end());
  kept_.keep(std::move(twice));
}

void Eager::State::add_step(Compiled& to, const OpDef& def, const void* attributes,
                            Operands operands) {
  Step step;
  step.op = OpInstance(def, attributes);
  step.value = def.name;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const EagerArray& from = *operands[i];
    Operand operand;
    operand.shape = from.shape_;
    operand.strides = from.strides_;
    operand.place = {.kind = Place::Kind::input, .index = static_cast<std::uint32_t>(i)};
    to.lowered.inputs.push_back({std::to_string(i), from.shape_});
    if (is_weight(from)) {
      operand.place = {.kind = Place::Kind::constant,
                       .index = static_cast<std::uint32_t>(to.lowered.constants.size()),
                       .offset = from.offset_};
      to.lowered.constants.push_back({*from.weight_, from.storage_.shape().without_tags()});
      to.weights.push_back(from.storage_.data().cptr());
    }
    step.inputs.push_back(std::move(operand));
  }
  step.output.shape = to.output;
  step.output.strides = dense_strides(to.output);
  step.output.place = {.kind = Place::Kind::output};
  OutputSlot output{to.output, std::nullopt};
  if (to.overwrites) {
    const auto index = static_cast<std::uint32_t>(*to.overwrites);
    step.output.place = {.kind = Place::Kind::input, .index = index};
    to.lowered.inputs[index].updated = true;
    output.from_input = index;
  }
  to.lowered.outputs = {output};
  to.lowered.steps.push_back(std::move(step));
}

void Eager::State::choose_backend(Compiled& to) {
  const Step& step = to.lowered.steps.front();
  const std::size_t chosen = sessions::first_that_takes(backends, step);
  if (chosen > 0) {
    add_fallback(sessions::fallback_of(step, backends[0]->refuses(step).value_or("runs elsewhere"),
                                       *backends[chosen]));
  }
  std::vector<Buffer> constants;
  for (const ConstantSlot& slot : to.lowered.constants) {
    constants.push_back(weights->on_host(slot.name));
  }
  to.partition = backends[chosen]->compile(to.lowered, to.lowered.steps);
  const auto name_of = [&](std::size_t constant) -> const std::string& {
    return to.lowered.constants[constant].name;  // weights, all of them
  };
  to.bound = to.partition->bind({constants, weights->prepared(), name_of});
}

void Eager::State::add_fallback(const PlanReport::Fallback& fallback) {
  const bool is_known = std::ranges::any_of(fallbacks, [&](const PlanReport::Fallback& other) {
    return other.op == fallback.op && other.why == fallback.why;
  });
  if (is_known) return;
  sessions::log_fallback(fallback, *backends[0]);
  fallbacks.push_back(fallback);
}

EagerArray Eager::State::compute_composed(Session& session, Operands operands) const {
  std::vector<Buffer> inputs;
  for (const EagerArray* operand : operands) inputs.push_back(operand->to_buffer());
  session.set_interrupt(interrupt);
  return std::move(session.forward(inputs).front());
}

EagerArray Eager::State::compute(const Compiled& with, Operands operands) {
  if (with.composed != nullptr) return compute_composed(*with.composed, operands);
  EagerArray result;
  if (with.view) {
    result = *operands[0];
    result.offset_ += with.view->offset_bytes;
    result.shape_ = with.output;
    result.strides_ = with.view->strides;
    return result;
  }
  if (with.overwrites) {
    result = *operands[*with.overwrites];
    result.is_counter_ = false;
    result.shape_ = with.output;
    result.strides_ = dense_strides(with.output);
  } else {
    result = Buffer::allocate(with.output, memory_);
  }
  addresses_.clear();
  for (const EagerArray* operand : operands) addresses_.push_back(operand->view().data);
  launch(with, addresses_, result.view().data);
  return result;
}

void Eager::State::launch(const Compiled& with, std::span<std::byte* const> operands,
                          std::byte* result) {
  HostFrame frame;
  frame.inputs = operands;
  frame.outputs = {&result, 1};
  frame.constants = with.weights;
  frame.scratch = scratch(with.partition->scratch_bytes());
  frame.interrupt = interrupt.is_set() ? &interrupt : nullptr;
  with.bound->run(frame);
}

std::byte* Eager::State::scratch(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (!scratch_.has_data() || scratch_.shape().bytes() < bytes) {
    scratch_ = Buffer::allocate(Shape({bytes}, DType::u8), memory_);
  }
  return scratch_.data().cptr();
}

Eager::Eager(std::shared_ptr<const WeightSet> weights, std::vector<BackendPtr> backends)
    : state_(with_memory_errors("Eager", [&] {
        return std::make_shared<State>(std::move(weights), std::move(backends));
      })) {}

EagerArray Eager::object(const std::string& name, DType dtype) const {
  return with_memory_errors("Eager::object",
                            [&] { return state_->weights->as_object(name, dtype); });
}

EagerArray Eager::weight(const std::string& name) const {
  return with_memory_errors("Eager::weight", [&] {
    const auto& all = state_->weights->all();
    const auto found = all.find(name);
    if (found == all.end()) {
      throw Error(Errc::bad_reference, "Eager", fmt::format("no weight '{}'", name));
    }
    EagerArray array(state_->weights->on_host(name));
    array.weight_ = {state_->weights, &found->first};
    return array;
  });
}

detail::CallKey& Eager::new_key(const OpDef& def) {
  detail::CallKey& key = state_->key;
  key.clear();
  key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&def)));
  return key;
}

void Eager::append_attributes(const OpInstance& op) {
  detail::CallKey& key = new_key(*op.def());
  for (const AttributeField& field : op.def()->fields) {
    std::visit([&](const auto& value) { detail::append_key(key, value); },
               field.get(op.attributes()));
  }
}

EagerArray Eager::run(const OpInstance& op, std::span<const EagerInput> inputs) {
  append_attributes(op);
  return run(*op.def(), op.attributes(), inputs);
}

const EagerKernel* Eager::find(const OpInstance& op, std::span<const Shape* const> operands) {
  append_attributes(op);
  return state_->find(operands);
}

void Eager::run(const EagerKernel& kernel, std::span<std::byte* const> operands,
                std::byte* result) {
  state_->interrupt.check("Eager");
  state_->launch(static_cast<const Compiled&>(kernel), operands, result);
}

EagerArray Eager::run(const OpDef& def, const void* attributes,
                      std::span<const EagerInput> inputs) {
  return with_memory_errors(def.name, [&] { return state_->run(def, attributes, inputs); });
}

void Eager::check(std::string_view function,
                  std::initializer_list<EagerParameter> parameters) const {
  TypeAssertions types;
  for (const EagerParameter& parameter : parameters) {
    parameter.value.require_data();
    types.check(parameter.name, parameter.type, parameter.value.shape(), Errc::bad_input,
                std::string(function));
  }
}

void Eager::set_interrupt(Interrupt interrupt) { state_->interrupt = std::move(interrupt); }

const std::vector<PlanReport::Fallback>& Eager::fallbacks() const { return state_->fallbacks; }

std::int64_t Eager::copied_bytes() const { return state_->copied_bytes; }

}  // namespace tenon
