#include "session/run.hpp"

#include "array/object_slot.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/memory_watch.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tenon {

using namespace sessions;

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
  const auto bytes_a = a.shape().bytes(), bytes_b = b.shape().bytes();
  if (bytes_a == 0 || bytes_b == 0 || &a.region() != &b.region()) return false;
  return a.data() < b.data() + bytes_b && b.data() < a.data() + bytes_a;
}

bool lies_in(std::span<const Buffer> buffers, const Buffer& one) {
  return std::ranges::any_of(buffers, [&](const Buffer& buffer) { return overlap(buffer, one); });
}

/// `updated`: the run changes the copy.
void copy_all(const Buffer& from, const Buffer& to, bool updated) {
  if (is_object(from.shape().dtype())) return objects::assign(from, to, updated);
  const auto bytes = static_cast<std::uint64_t>(from.shape().bytes());
  if (bytes > 0) to.region().copy(to.data(), from.region(), from.data(), bytes);
}

}  // namespace

const Session::Run::Spot& Session::Run::Space::operator[](const StorageKey& key) const {
  switch (key.kind) {
    case Place::Kind::input:
      return inputs[key.index];
    case Place::Kind::output:
      return outputs[key.index];
    default:
      return slab;
  }
}

Session::Run::Run(std::shared_ptr<const BoundPlan> bound, const Shared& shared, State& state,
                  std::vector<Buffer>& inputs, std::span<Buffer> given, Interrupt interrupt)
    : bound_(std::move(bound)),
      plan_(*bound_->plan),
      shared_(shared),
      state_(state),
      interrupt_(std::move(interrupt)) {
  if (!state_.options.dump_folder.empty()) check_dumps();
  epochs_ = memory_epochs();
  try {
    take_inputs(inputs);
    take_outputs(given);
  } catch (...) {
    give_back(inputs);
    throw;
  }
}

void Session::Run::give_back(std::vector<Buffer>& inputs) noexcept {
  if (has_begun_) objects::own(inputs_);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs[i] = std::move(replaced_[i].has_data() ? replaced_[i] : inputs_[i]);
  }
}

void Session::Run::fail(std::vector<Buffer>& inputs, const std::exception_ptr& error) {
  give_back(inputs);
  for (std::size_t i = 0; i < inputs.size() && has_begun_; ++i) {
    // The caller's is as it was where the run worked on a copy, which it still has, unless results
    // were copied to it.
    const bool has_copy = inputs_[i].has_data();
    const bool is_as_it_was = has_copy && !(has_ended_ && lies_in(results_, inputs[i]));
    if (plan_.lowered.inputs[i].reused && !is_as_it_was) inputs[i].poison(error);
  }
}

std::vector<std::uint64_t> Session::Run::memory_epochs() const {
  std::vector<std::uint64_t> epochs;
  if (!plan_.has_devices()) return epochs;
  for (const BackendPtr& backend : shared_.backends) {
    const auto* const watch = dynamic_cast<const MemoryWatch*>(backend.get());
    const bool is_used =
        watch != nullptr && plan_.number_of(backend->region()) < plan_.memories.size();
    if (is_used) epochs.push_back(watch->memory_epoch());
  }
  return epochs;
}

void Session::Run::check_memories() const {
  if (memory_epochs() == epochs_) return;
  throw Error(Errc::device_error, shared_.program.main().name,
              "somebody else reset the device during the run: its memory may have been cleared");
}

std::size_t Session::Run::memory_of(const Buffer& buffer) const {
  return plan_.number_of(buffer.region());
}

/// Memory for a copy of the input; nothing where the run may use the input itself.
Buffer Session::Run::own_memory(const Buffer& input, bool is_updated) const {
  const bool is_foreign = memory_of(input) == plan_.memories.size();
  if (!is_foreign && (!is_updated || input.is_unique())) return {};
  return Buffer::allocate(input.shape(), is_foreign ? *plan_.memories[0] : input.region());
}

void Session::Run::take_inputs(std::vector<Buffer>& inputs) {
  inputs_.reserve(inputs.size());
  replaced_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Buffer own = own_memory(inputs[i], plan_.lowered.inputs[i].updated);
    input_homes_.push_back(memory_of(own.has_data() ? own : inputs[i]));
    if (own.has_data()) {
      replaced_.push_back(std::move(inputs[i]));
      inputs_.push_back(std::move(own));
    } else {
      replaced_.emplace_back();
      inputs_.push_back(std::move(inputs[i]));
    }
  }
}

void Session::Run::run() {
  state_.times.clear();
  begin();
  run_all();
  finish();
}

void Session::Run::start_input_copies(std::vector<Buffer>& copied) {
  copied.resize(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const std::size_t reader = plan_.input_readers[i];
    if (reader == 0 || input_homes_[i] != 0 || plan_.lowered.inputs[i].updated) continue;
    copied[i] = callers(i);
    inputs_[i] = copied[i].start_copy(*plan_.memories[reader], state_.options.trace);
    replaced_[i] = {};
    input_homes_[i] = reader;
  }
}

void Session::Run::begin() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    await(callers(i));
    if (replaced_[i].has_data()) copy_all(callers(i), inputs_[i], plan_.lowered.inputs[i].updated);
  }
  lay_out();
  has_begun_ = true;
}

/// Throws for outputs that do not fit the program.
void Session::Run::check_given(std::span<const Buffer> given) const {
  const auto& slots = plan_.lowered.outputs;
  const std::string& name = shared_.program.main().name;
  if (given.size() != slots.size()) {
    throw Error(Errc::bad_input, name,
                fmt::format("{} outputs given, the program has {}", given.size(), slots.size()));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!(given[i].shape() == slots[i].shape)) {
      throw Error(Errc::bad_input, name,
                  fmt::format("output {} is {}, memory given for {}", i, to_string(slots[i].shape),
                              to_string(given[i].shape())));
    }
    if (!given[i].has_data()) {
      throw Error(Errc::bad_input, name, fmt::format("output {} has no memory", i));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(given[i], given[j])) {
        throw Error(Errc::alias, name, fmt::format("outputs {} and {} share memory", j, i));
      }
    }
  }
}

void Session::Run::take_outputs(std::span<Buffer> given) {
  if (!given.empty()) check_given(given);
  const bool is_known = plan_.number_of(*plan_.results) < plan_.memories.size();
  MemRegion& region = is_known ? *plan_.results : *plan_.memories[0];
  const auto& slots = plan_.lowered.outputs;
  const auto existing = [&](std::size_t i) -> const Buffer* {
    if (slots[i].from_input) return &inputs_[*slots[i].from_input];
    // A run that fails must not have changed which object the caller's memory holds.
    const bool fits = !given.empty() && memory_of(given[i]) < plan_.memories.size() &&
                      !lies_in(inputs_, given[i]) && !is_object(slots[i].shape.dtype());
    return fits ? &given[i] : nullptr;
  };
  std::vector<Shape> missing;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (existing(i) == nullptr && !is_object(slots[i].shape.dtype())) {
      missing.push_back(slots[i].shape);
    }
  }
  std::vector<Buffer> made = state_.activations->results(region, missing);
  auto next = made.begin();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (const Buffer* const found = existing(i)) {
      outputs_.push_back(*found);
    } else if (is_object(slots[i].shape.dtype())) {
      outputs_.push_back(Buffer::allocate(slots[i].shape, *plan_.memories[0]));
    } else {
      outputs_.push_back(std::move(*next++));
    }
    // A result may be a reshaped view of an input that was updated.
    Buffer& output = outputs_.back();
    if (!(output.shape().without_tags() == slots[i].shape)) {
      output = output.with_shape(slots[i].shape);
    }
    output_homes_.push_back(memory_of(outputs_.back()));
    results_.push_back(given.empty() ? result_of(i) : given[i]);
  }
}

/// The buffer that the caller gets for an output: the run's own, if it lies where results go; else
/// memory for a copy there. An output that updates an input goes where the input came from.
Buffer Session::Run::result_of(std::size_t output) const {
  const Buffer& own = outputs_[output];
  const auto input = plan_.lowered.outputs[output].from_input;
  if (!input) {
    const bool stays = own.is_on(*plan_.results) || is_object(own.shape().dtype());
    return stays ? own : Buffer::allocate(own.shape(), *plan_.results);
  }
  const Buffer& given = replaced_[*input];
  if (!given.has_data() || own.is_on(given.region())) return own;
  return given.is_unique() ? given : Buffer::allocate(own.shape(), given.region());
}

void Session::Run::lay_out() {
  Activations& activations = *state_.activations;
  number_ = activations.begin_run();
  const bool all_on_host =
      std::ranges::all_of(input_homes_, [](std::size_t home) { return home == 0; }) &&
      std::ranges::all_of(output_homes_, [](std::size_t home) { return home == 0; });
  spaces_.resize(plan_.memories.size());
  for (std::size_t memory = 0; memory < spaces_.size(); ++memory) {
    Space& space = spaces_[memory];
    MemRegion& region = *plan_.memories[memory];
    const MemChunk* mirror = nullptr;
    if (memory > 0) {
      mirror = &activations.slab(region, plan_.mirror.bytes);
      space.slab = {mirror, 0};
    } else {
      space.slab = {&activations.slab(region, plan_.lowered.slab_bytes), 0};
      if (!all_on_host) mirror = &activations.mirror(region, plan_.mirror.bytes);
    }
    const auto spots = [&](const std::vector<Buffer>& buffers,
                           const std::vector<std::size_t>& homes,
                           const std::vector<std::int64_t>& offsets, std::vector<Spot>& result,
                           std::vector<MemPtr>& begins) {
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        const bool at_home = homes[i] == memory;
        result.push_back(at_home ? Spot{&buffers[i].chunk(),
                                        static_cast<std::int64_t>(buffers[i].offset_bytes())}
                                 : Spot{mirror, offsets[i]});
        begins.push_back(result.back().begin());
      }
    };
    spots(inputs_, input_homes_, plan_.mirror.inputs, space.inputs, space.input_begins);
    spots(outputs_, output_homes_, plan_.mirror.outputs, space.outputs, space.output_begins);
    // An updated input and the output that returns it are one storage.
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (const auto input = plan_.lowered.outputs[i].from_input) {
        space.outputs[i] = space.inputs[*input];
        space.output_begins[i] = space.input_begins[*input];
      }
    }
  }

  for (const MemPtr& begin : spaces_[0].input_begins) input_bytes_.push_back(begin.cptr());
  for (const MemPtr& begin : spaces_[0].output_begins) output_bytes_.push_back(begin.cptr());
  host_.inputs = input_bytes_;
  host_.outputs = output_bytes_;
  host_.constants = bound_->addresses;
  host_.slab = spaces_[0].slab.begin().cptr();
  host_.interrupt = interrupt_.is_set() ? &interrupt_ : nullptr;
  const MemChunk& scratch = activations.scratch(*plan_.memories[0], plan_.scratch_bytes);
  host_.scratch = scratch ? scratch.begin().cptr() : nullptr;
  for (std::size_t memory = 1; memory < spaces_.size(); ++memory) {
    DeviceFrame frame;
    frame.inputs = spaces_[memory].input_begins;
    frame.outputs = spaces_[memory].output_begins;
    frame.slab = spaces_[memory].slab.begin();
    frame.trace = state_.options.trace.get();
    frame.interrupt = host_.interrupt;
    devices_.push_back(frame);
  }
  if (!plan_.has_devices()) return;
  for (std::uint32_t i = 0; i < inputs_.size(); ++i) {
    const StorageKey key{Place::Kind::input, i};
    residency_.written(key, whole(plan_, key), input_homes_[i]);
  }
}

void Session::Run::copy(const StorageKey& key, const ByteRange& range, std::size_t from,
                        std::size_t to) {
  plan_.memories[to]->copy(spaces_[to][key].begin() + range.begin, *plan_.memories[from],
                           spaces_[from][key].begin() + range.begin,
                           static_cast<std::uint64_t>(range.size()));
}

Residency::Copy Session::Run::copier() {
  return [this](const StorageKey& key, const ByteRange& range, std::size_t from, std::size_t to) {
    copy(key, range, from, to);
  };
}

void Session::Run::run_stages(std::span<const BoundStage> stages, int depth) {
  for (const BoundStage& stage : stages) {
    const Step* loop = stage.stage->loop;
    if (loop == nullptr) {
      interrupt_.check("forward");
      run_stage(stage, depth);
      continue;
    }
    const auto level = static_cast<std::size_t>(loop->depth);
    for (std::int64_t i = 0; i < loop->count && goes_on(*loop); ++i) {
      host_.iteration[level] = i;
      host_.loop_index[level] = loop->first + i;
      run_stages(stage.body, depth + 1);
    }
    host_.iteration[level] = 0;
  }
}

bool Session::Run::goes_on(const Step& loop) {
  const Operand* const condition = loop.condition();
  if (condition == nullptr) return true;
  if (plan_.has_devices()) {
    residency_.require(key_of(condition->place), byte_range(*condition, host_.iteration), 0,
                       copier());
  }
  return *reinterpret_cast<const bool*>(host_.address(condition->place));
}

void Session::Run::run_stage(const BoundStage& stage, int depth) {
  if (state_.options.watches()) {
    run_watched(stage, depth);
  } else if (!plan_.has_devices()) {
    stage.partition->run(host_);
  } else {
    std::chrono::nanoseconds device_time{};
    bring_in(plan_, *stage.stage, host_.iteration, depth, residency_, copier());
    compute(stage, device_time);
    note_writes(plan_, *stage.stage, host_.iteration, depth, residency_);
  }
}

void Session::Run::compute(const BoundStage& stage, std::chrono::nanoseconds& device_time) {
  if (stage.stage->memory == 0) {
    const auto begin = Trace::Clock::now();
    stage.partition->run(host_);
    device_time = Trace::Clock::now() - begin;
    return;
  }
  DeviceFrame& frame = devices_[stage.stage->memory - 1];
  frame.iteration = host_.iteration;
  frame.loop_index = host_.loop_index;
  frame.device_time = {};
  stage.partition->run_on_device(frame);
  device_time = frame.device_time;
}

std::vector<MemChunk> Session::Run::handles_of_results() const {
  std::vector<MemChunk> handles;
  for (const auto* buffers : {&inputs_, &replaced_, &outputs_, &results_}) {
    for (const Buffer& buffer : *buffers) {
      const auto is_same = [&](const Buffer& result) { return result.chunk() == buffer.chunk(); };
      if (std::ranges::any_of(results_, is_same)) handles.push_back(buffer.chunk());
    }
  }
  return handles;
}

void Session::Run::finish() {
  if (plan_.has_devices()) {
    for (std::uint32_t i = 0; i < outputs_.size(); ++i) {
      const auto from_input = plan_.lowered.outputs[i].from_input;
      const StorageKey key = from_input ? StorageKey{Place::Kind::input, *from_input}
                                        : StorageKey{Place::Kind::output, i};
      const std::size_t home = from_input ? input_homes_[*from_input] : output_homes_[i];
      residency_.require(key, whole(plan_, key), home, copier());
    }
  }
  objects::own(inputs_, outputs_);
  has_ended_ = true;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Buffer &from = outputs_[i], &to = results_[i];
    if (from.chunk() == to.chunk() && from.offset_bytes() == to.offset_bytes()) continue;
    copy_all(from, to, false);
  }
  check_memories();
}

}  // namespace tenon
