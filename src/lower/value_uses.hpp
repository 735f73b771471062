// Def-use information on the steps of a partition, for the passes over them.
#pragma once

#include "lower/memory_access.hpp"

#include <tenon/lowered.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tenon::lowering {

/// The value that the step with the same index wrote.
struct WrittenValue {
  struct Use {
    std::size_t step, input;
  };
  std::vector<Use> uses;  ///< the reads that see all of it, and nothing else (see ReadAs)
  /// Nothing but `uses` reads it: a pass may remove it.
  bool is_only_in_uses = false;
  /// And no input lies in its memory, which other steps read before: a pass may change its layout.
  bool is_private = false;
};

/// Which reads count as reading a value: those in its shape, or in any shape with the same elements
/// in the same order. With `first_columns` also reads of only the first elements of every row.
enum class ReadAs : std::uint8_t { same_shape, any_shape, first_columns };

/// One for each of `steps`. A loop among them counts as reading everything that it accesses.
/// `leaves` are the operands that others read afterwards (StepEdges::writes).
std::vector<WrittenValue> trace_values(std::span<const Step> steps, std::span<const Operand> leaves,
                                       ReadAs reads = ReadAs::same_shape);

/// Calls pass(body, leaves) for the body of each loop of `own`, then for `own` itself; `leaves` are
/// the operands that others read afterwards. Other passes made `own` from `steps` of the program
/// and kept the order of the loops.
void for_each_body(
    const Lowered& program, std::span<const Step> steps, std::vector<Step>& own,
    const std::function<void(std::vector<Step>&, std::span<const Operand> leaves)>& pass);

}  // namespace tenon::lowering
