#include "lower/flat_builder.hpp"

#include <tenon/object.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::lowering {

std::string place_text(const SourceLine& line, std::string_view name) {
  return line.file.empty() ? std::string(name)
                           : fmt::format("{}:{}: {}", line.file, line.line, name);
}

StorageId FlatBuilder::add_storage(Place::Kind kind, std::uint32_t index, std::int64_t bytes) {
  Storage storage;
  storage.kind = kind;
  storage.index = index;
  storage.bytes = bytes;
  storage.begin = storage.end = time_;
  for (const Loop& loop : loops_) storage.loops.push_back(loop.id);
  flat.storages.push_back(std::move(storage));
  return static_cast<StorageId>(flat.storages.size() - 1);
}

Array FlatBuilder::fresh(const Shape& shape, Place::Kind kind, std::uint32_t index) {
  Array array;
  array.storage = add_storage(kind, index, shape.bytes());
  array.shape = shape;
  array.strides = dense_strides(shape);
  return array;
}

/// Inside a loop that does not contain the definition, the value must last until the loop's end.
void FlatBuilder::note_outer_use(StorageId id) {
  const std::size_t shared = flat.storages[id].loops.size();
  if (loops_.size() > shared) loops_[shared].outer_uses.push_back(id);
}

void FlatBuilder::read(const Array& array, std::int64_t time) {
  Storage& storage = flat.storages[array.storage];
  storage.reads.push_back(time);
  storage.end = std::max(storage.end, time);
  note_outer_use(array.storage);
}

void FlatBuilder::end_with(std::span<const Array> results) {
  for (const Array& array : results) {
    read(array, time_);
    if (is_linear_object(array.shape.dtype())) flat.storages[array.storage].updated = true;
    flat.results.push_back(array);
  }
  flat.end_time = time_;
}

void FlatBuilder::add(FlatStep step) {
  step.time = time_++;
  for (const Array& input : step.inputs) read(input, step.time);
  Storage& written = flat.storages[step.output.storage];
  written.end = std::max(written.end, step.time);
  note_outer_use(step.output.storage);
  steps_->push_back(std::move(step));
}

void FlatBuilder::copy(const Array& from, const Array& to, FlatStep::Join join,
                       const StepOrigin& origin) {
  FlatStep step;
  step.kind = Step::Kind::copy;
  step.inputs = {from};
  step.output = to;
  step.join = join;
  step.value = origin.value;
  step.function = origin.function;
  step.line = origin.line;
  if (is_linear_object(from.shape.dtype())) {  // what is copied is the object's address
    flat.storages[from.storage].updated = flat.storages[to.storage].updated = true;
  }
  add(std::move(step));
}

Array FlatBuilder::begin_loop(FlatStep& loop) {
  loop.kind = Step::Kind::loop;
  loop.depth = static_cast<int>(loops_.size());
  loop.begin_time = time_++;
  Array index;
  index.shape = Shape(std::span<const Axis>(), i64);
  index.storage =
      add_storage(Place::Kind::loop_index, static_cast<std::uint32_t>(loop.depth), loop.first);
  loops_.push_back({loops_made_++, !loop.inputs.empty(), {}, std::exchange(steps_, &loop.body)});
  counts_.push_back(loop.count);
  return index;
}

void FlatBuilder::end_loop(FlatStep& loop) {
  for (const StorageId id : loops_.back().outer_uses) {
    flat.storages[id].end = std::max(flat.storages[id].end, time_);
  }
  steps_ = loops_.back().outer_steps;
  loops_.pop_back();
  counts_.pop_back();
  loop.time = time_++;
  steps_->push_back(std::move(loop));
}

std::int64_t FlatBuilder::runs() const {
  std::int64_t runs = 1;
  for (std::size_t d = 0; d < loops_.size(); ++d) {
    if (loops_[d].has_condition) continue;
    runs = checked_multiply(runs, std::max<std::int64_t>(counts_[d], 1));
  }
  return runs;
}

}  // namespace tenon::lowering
