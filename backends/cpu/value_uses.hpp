// Who reads what a step writes: what passes over the steps of a partition ask.
#pragma once

#include "touch.hpp"

#include <tenon/lowered.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tenon::cpu {

/// What the step of the same number wrote.
struct WrittenValue {
  struct Use {
    std::size_t step, input;
  };
  std::vector<Use> uses;  ///< the reads that see all of it, and nothing else (see ReadAs)
  /// Nothing but `uses` reads it: it may lie differently, or not exist.
  bool is_private = false;
};

/// Which reads see all of a value and nothing else: those in its shape, or in any shape of as many
/// elements in their order. `first_columns` are content with less: the first elements of every row.
enum class ReadAs : std::uint8_t { same_shape, any_shape, first_columns };

/// One for each of `steps`, a straight stretch: loops in it count as reading all that they touch.
/// `leaves` are what others read afterwards (StepEdges::writes).
std::vector<WrittenValue> trace_values(std::span<const Step> steps, std::span<const Operand> leaves,
                                       ReadAs reads = ReadAs::same_shape);

/// Calls pass(stretch, leaves) for the straight stretches of `own`: itself, and the body of each of
/// its loops. Other passes made `own` from `steps` of the program, and kept its loops in their
/// order.
void for_each_stretch(
    const Lowered& program, std::span<const Step> steps, std::vector<Step>& own,
    const std::function<void(std::vector<Step>&, std::span<const Operand> leaves)>& pass);

}  // namespace tenon::cpu
