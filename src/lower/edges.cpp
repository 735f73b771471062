#include "lower/access_index.hpp"

#include <tenon/error.hpp>
#include <tenon/lowered.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

/// Calls `visit(operand, is_write)` for everything that steps access, in the order they do. Stops where it is false, and is false
/// itself then.
bool for_each_access(std::span<const Step> steps,
                     const std::function<bool(const Operand& operand, bool is_write)>& visit) {
  const auto read = [&](const Operand& input) { return visit(input, false); };
  return std::ranges::all_of(steps, [&](const Step& step) {
    const bool is_loop = step.kind == Step::Kind::loop;
    if (is_loop && step.count == 0) return true;
    if (!std::ranges::all_of(step.inputs, read)) return false;
    return is_loop ? for_each_access(step.body, visit) : visit(step.output, true);
  });
}

bool is_activation(const Operand& operand) {
  return operand.place.kind != Place::Kind::constant &&
         operand.place.kind != Place::Kind::loop_index && operand.shape.elements() > 0;
}

/// Steps through a loop move their operands; whatever does has no one range.
bool moves(const Operand& operand) { return operand.place.byte_step != LoopSteps{}; }

bool overlap(const Operand& a, const Operand& b) {
  return same_storage(a.place, b.place) &&
         (moves(a) || moves(b) || byte_range(a).overlaps(byte_range(b)));
}

/// Whether `outer` writes every byte of `inner`.
bool covers(const Operand& outer, const Operand& inner) {
  if (!same_storage(outer.place, inner.place) || moves(outer) || moves(inner)) return false;
  const ByteRange written = byte_range(outer), range = byte_range(inner);
  return outer == inner ||
         (outer.is_contiguous() && written.begin <= range.begin && range.end <= written.end);
}

/// Whether what is in this memory at the end is the caller's: an output, or an input that becomes
/// one. Other inputs that steps write to were given up.
bool outlives_run(const Lowered& program, const Place& place) {
  if (place.kind != Place::Kind::input) return place.kind != Place::Kind::slab;
  return std::ranges::find(program.outputs, place.index, &OutputSlot::from_input) !=
         program.outputs.end();
}

/// Operands in the order in which they were added, found by the memory that they lie in.
class OperandList {
 public:
  void add(const Operand& operand) {
    index_.insert(lowering::access_of(operand), operands_.size());
    operands_.push_back(operand);
    is_kept_.push_back(true);
  }
  void add_once(const Operand& operand) {
    if (!any_near(operand, [&](const Operand& old) { return old == operand; })) add(operand);
  }
  /// Whether pred(old) is true of an operand that has bytes in common with this one.
  template <class Pred>
  bool any_near(const Operand& operand, Pred pred) const {
    return index_.any_overlapping(lowering::access_of(operand),
                                  [&](std::size_t i) { return pred(operands_[i]); });
  }
  /// Removes those of which it is true.
  template <class Pred>
  void erase_near(const Operand& operand, Pred pred) {
    index_.erase_overlapping(lowering::access_of(operand), [&](std::size_t i) {
      if (!pred(operands_[i])) return false;
      is_kept_[i] = false;
      return true;
    });
  }
  std::vector<Operand> take() {
    std::size_t i = 0;
    std::erase_if(operands_, [&](const Operand&) { return !is_kept_[i++]; });
    return std::move(operands_);
  }

 private:
  std::vector<Operand> operands_;
  std::vector<bool> is_kept_;
  lowering::AccessIndex index_;
};

/// Which of the operands `made`, written last, the steps after them read.
std::vector<bool> read_later(std::span<const Operand> made, std::span<const Step> later) {
  std::vector<bool> is_read(made.size(), false);
  std::size_t unknown = made.size();  // neither read nor overwritten so far
  lowering::AccessIndex index;
  for (std::size_t i = 0; i < made.size(); ++i) index.insert(lowering::access_of(made[i]), i);
  for_each_access(later, [&](const Operand& operand, bool is_write) {
    if (!is_activation(operand)) return unknown > 0;
    index.erase_overlapping(lowering::access_of(operand), [&](std::size_t i) {
      const bool is_known = is_write ? covers(operand, made[i]) : overlap(operand, made[i]);
      is_read[i] = is_known && !is_write;
      unknown -= is_known ? 1 : 0;
      return is_known;
    });
    return unknown > 0;
  });
  return is_read;
}

}  // namespace

ByteRange byte_range(const Operand& operand, const LoopSteps& iteration) noexcept {
  ByteRange range{operand.place.offset, operand.place.offset};
  for (std::size_t d = 0; d < max_loop_depth; ++d) {
    range.begin += iteration[d] * operand.place.byte_step[d];
  }
  range.end = range.begin;
  if (operand.shape.elements() == 0) return range;
  const int rank = operand.shape.rank();
  // The innermost axis of a block type counts whole blocks.
  const DType dtype = operand.shape.dtype();
  std::int64_t last = block_bytes(dtype);
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t step = operand.strides[static_cast<std::size_t>(axis)];
    std::int64_t size = operand.shape[axis];
    if (axis == rank - 1) size /= block_size(dtype);
    (step < 0 ? range.begin : last) += (size - 1) * step;
  }
  range.end += last;
  return range;
}

StepEdges edges(const Lowered& program, std::span<const Step> steps) {
  OperandList reads, written;  // the last writers of what they hold
  for_each_access(steps, [&](const Operand& operand, bool is_write) {
    if (!is_activation(operand)) return true;
    if (is_write) {
      written.erase_near(operand, [&](const Operand& old) { return covers(operand, old); });
      written.add(operand);
    } else if (!written.any_near(operand, [&](const Operand& w) { return covers(w, operand); })) {
      reads.add_once(operand);
    }
    return true;
  });

  const std::vector<Operand> made = written.take();
  std::vector<Operand> within;  // which the run does not leave to its caller
  std::ranges::copy_if(made, std::back_inserter(within), [&](const Operand& operand) {
    return !outlives_run(program, operand.place);
  });
  const Step* const begin = program.steps.data();
  const Step* const end = begin + program.steps.size();
  const std::less_equal<const Step*> not_after;
  const bool on_top = not_after(begin, steps.data()) && not_after(steps.data(), end);
  const std::vector<bool> wanted = on_top ? read_later(within, {steps.data() + steps.size(), end})
                                          : std::vector<bool>(within.size(), true);
  OperandList writes;
  std::size_t number = 0;  // in `within`
  for (const Operand& operand : made) {
    if (outlives_run(program, operand.place) || wanted[number++]) writes.add_once(operand);
  }
  return {reads.take(), writes.take()};
}

MemPtr DeviceFrame::address(const Place& place) const {
  const std::int64_t offset = place.offset_in(iteration);
  switch (place.kind) {
    case Place::Kind::input:
      return inputs[place.index] + offset;
    case Place::Kind::output:
      return outputs[place.index] + offset;
    case Place::Kind::slab:
      return slab + offset;
    case Place::Kind::constant:
    case Place::Kind::loop_index:
    case Place::Kind::scratch:
    case Place::Kind::shared_scratch:
      break;
  }
  throw Error(Errc::bad_argument, "DeviceFrame::address",
              "constants, loop indices and scratch memory have none");
}

}  // namespace tenon
