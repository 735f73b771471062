#include "lower/value_uses.hpp"

#include "lower/access_index.hpp"

#include <algorithm>

namespace tenon::lowering {
namespace {

class Tracer {
 public:
  Tracer(std::span<const Step> steps, ReadAs reads)
      : steps_(steps), reads_(reads), values_(steps.size()), live_(steps.size()) {}

  std::vector<WrittenValue> run(std::span<const Operand> leaves) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (step.kind == Step::Kind::loop) {
        for (const Operand& input : step.inputs) expose(input);
        loop(step.body);
        continue;
      }
      // An op that updates an input writes some of its memory and leaves the rest of the value there.
      const int updated = step.kind == Step::Kind::op ? step.op.def()->traits.updates_input : -1;
      for (std::size_t input = 0; input < step.inputs.size(); ++input) {
        if (static_cast<int>(input) == updated) {
          expose(step.inputs[input]);
        } else {
          read(step.inputs[input], {i, input});
        }
      }
      for (const Operand& output : outputs_of(step)) overwrite(output);
      // The values in the memory of inputs and outputs at the end are among the leaves.
      const Place& place = step.output.place;
      WrittenValue& value = values_[i];
      value.is_only_in_uses = is_memory(step.output) && place.byte_step == LoopSteps{};
      value.is_private = value.is_only_in_uses && updated < 0 &&
                         (place.kind == Place::Kind::slab || place.kind == Place::Kind::output);
      const Access access = access_of(step.output);
      live_[i] = {true, access, {access.bytes}};
      index_.insert(access, i);
    }
    for (const Operand& leaf : leaves) expose(leaf);
    return std::move(values_);
  }

 private:
  /// The bytes of a step's result that no later step has overwritten.
  struct Live {
    bool is_whole = false;
    Access written{};  ///< by the step
    std::vector<ByteRange> left{};
  };

  void read(const Operand& operand, WrittenValue::Use use) {
    if (!is_memory(operand)) return;
    std::size_t made_by = steps_.size();
    index_.any_overlapping(access_of(operand), [&](std::size_t step) {
      if (live_[step].is_whole && sees(operand, steps_[step].output)) {
        made_by = std::min(made_by, step);
      }
      return false;
    });
    if (made_by < steps_.size()) {
      values_[made_by].uses.push_back(use);
    } else {
      expose(operand);
    }
  }

  /// Takes the bytes of an output away from the values before it. What is left of a partly
  /// overwritten value may still be read, through a view.
  void overwrite(const Operand& output) {
    if (!is_memory(output)) return;
    const Access write = access_of(output);
    // An operand that moves with a loop is somewhere in its range.
    const bool has_gaps = !output.is_contiguous() || output.place.byte_step != LoopSteps{};
    index_.erase_overlapping(write, [&](std::size_t step) {
      Live& value = live_[step];
      if (!overlap(value.written, write)) return false;
      value.is_whole = false;
      if (has_gaps) return false;
      std::vector<ByteRange> left;
      for (const ByteRange& range : value.left) {
        left.push_back({range.begin, std::min(range.end, write.bytes.begin)});
        left.push_back({std::max(range.begin, write.bytes.end), range.end});
      }
      std::erase_if(left, [](const ByteRange& range) { return range.is_empty(); });
      value.left = std::move(left);
      return value.left.empty();
    });
  }

  bool sees(const Operand& operand, const Operand& value) const {
    if (operand.place.offset != value.place.offset) return false;  // of nearly all values
    if (operand == value) return true;
    if (reads_ == ReadAs::first_columns) return is_first_columns(operand, value);
    return reads_ == ReadAs::any_shape && operand.place == value.place &&
           operand.shape.dtype() == value.shape.dtype() &&
           operand.shape.elements() == value.shape.elements() && operand.is_contiguous() &&
           value.is_contiguous();
  }

  static bool is_first_columns(const Operand& operand, const Operand& value) {
    const int last = value.shape.rank() - 1;
    return last >= 0 && operand.shape.rank() == value.shape.rank() &&
           operand.place == value.place && operand.strides == value.strides &&
           operand.shape[last] <= value.shape[last] &&
           operand.shape.with_dim(last, value.shape[last]) == value.shape;
  }

  /// Notes a read that is not among the uses of any value.
  void expose(const Operand& operand) {
    if (!is_memory(operand)) return;
    const Access read = access_of(operand);
    index_.any_overlapping(read, [&](std::size_t step) {
      Access left = live_[step].written;
      for (const ByteRange& range : live_[step].left) {
        left.bytes = range;
        if (!overlap(left, read)) continue;
        values_[step].is_only_in_uses = values_[step].is_private = false;
      }
      return false;
    });
  }

  void loop(std::span<const Step> body) {
    for (const Step& step : body) {
      for (const Operand& input : step.inputs) expose(input);
      if (step.kind == Step::Kind::loop) {
        loop(step.body);
      } else {
        for (const Operand& output : outputs_of(step)) expose(output);
      }
    }
  }

  std::span<const Step> steps_;
  ReadAs reads_;
  std::vector<WrittenValue> values_;
  std::vector<Live> live_;  // by step; disjoint
  AccessIndex index_;       // of those of which something is left
};

}  // namespace

std::vector<WrittenValue> trace_values(std::span<const Step> steps, std::span<const Operand> leaves,
                                       ReadAs reads) {
  return Tracer(steps, reads).run(leaves);
}

void for_each_body(
    const Lowered& program, std::span<const Step> steps, std::vector<Step>& own,
    const std::function<void(std::vector<Step>&, std::span<const Operand> leaves)>& pass) {
  auto loop = own.begin();
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::loop) continue;
    loop = std::ranges::find(loop, own.end(), Step::Kind::loop, &Step::kind);
    // Later steps read some of what a loop writes, and so does its next iteration.
    std::vector<Operand> leaves = edges(program, {&step, 1}).writes;
    const std::vector<Operand> carried = edges(program, step.body).reads;
    leaves.insert(leaves.end(), carried.begin(), carried.end());
    leaves.insert(leaves.end(), step.inputs.begin(), step.inputs.end());
    pass(loop->body, leaves);
    ++loop;
  }
  pass(own, edges(program, steps).writes);
}

}  // namespace tenon::lowering
