// The i64 scalars that count with a loop's iterations.
#pragma once

#include "lower/flat.hpp"

#include <tenon/program.hpp>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace tenon::lowering {

/// A loop's index counts, and so does the index plus or minus a number that the program has: layers
/// that share a stack with others have their places in it so.
class LoopCounters {
 public:
  struct Counter {
    std::uint32_t loop = 0;  ///< how many loops are around it
    std::int64_t first = 0;  ///< its number in the first iteration
  };

  LoopCounters(const Flat& flat, const Program& program) : flat_(flat), program_(program) {}

  /// What a storage of an i64 scalar counts; none where it is no counter.
  std::optional<Counter> of(StorageId id) const;

  /// Looks at a step that writes an i64 scalar.
  void note(const FlatStep& step);

 private:
  std::optional<std::int64_t> number_of(const Array& array) const;

  const Flat& flat_;
  const Program& program_;
  std::unordered_map<StorageId, Counter> computed_;  // those that steps compute of a loop's index
};

}  // namespace tenon::lowering
