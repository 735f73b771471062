// Writes the steps of a Flat in the order in which they run.
#pragma once

#include "lower/flat.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::lowering {

/// Where a step comes from, as of Step.
struct StepOrigin {
  std::string value, function;
  SourceLine line;
};

/// What an error names: the line of a value, where it is known, and the value.
std::string place_text(const SourceLine& line, std::string_view name);

/// Adds steps, notes when each storage is written and read, and which loops are around both.
class FlatBuilder {
 public:
  struct Loop {
    std::uint32_t id;  // counted over the whole program
    bool has_condition;
    std::vector<StorageId> outer_uses;  // storages from outside it that its steps use
    std::vector<FlatStep>* outer_steps;
  };

  FlatBuilder() : steps_(&flat.steps) {}
  FlatBuilder(const FlatBuilder&) = delete;
  FlatBuilder& operator=(const FlatBuilder&) = delete;

  /// A dense array of this shape in a storage of its own; in the slab unless said otherwise.
  Array fresh(const Shape& shape, Place::Kind kind = Place::Kind::slab, std::uint32_t index = 0);
  StorageId add_storage(Place::Kind kind, std::uint32_t index, std::int64_t bytes);

  /// Inputs are there before the first step. Results are read after the last.
  void end_inputs() { time_ = 1; }
  void end_with(std::span<const Array> results);

  void add(FlatStep step);
  void copy(const Array& from, const Array& to, FlatStep::Join join, const StepOrigin& origin);

  /// Steps from here on are those of the body of `loop`, which has its `first`, `count` and
  /// condition; returns the array of its index. `loop` stays where it is until it ends.
  Array begin_loop(FlatStep& loop);
  void end_loop(FlatStep& loop);

  /// Those around the next step, outermost first, and how often each runs at most.
  std::span<const Loop> loops() const { return loops_; }
  std::span<const std::int64_t> counts() const { return counts_; }
  /// How often the next step runs, but for loops with conditions.
  std::int64_t runs() const;

  Flat flat;

 private:
  void read(const Array& array, std::int64_t time);
  void note_outer_use(StorageId id);

  std::int64_t time_ = 0;  // of the next step
  std::vector<FlatStep>* steps_;
  std::vector<Loop> loops_;
  std::vector<std::int64_t> counts_;  // of `loops_`
  std::uint32_t loops_made_ = 0;
};

}  // namespace tenon::lowering
