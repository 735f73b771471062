#include "split.hpp"

#include "../live_range_allocator.hpp"
#include "lower/value_uses.hpp"
#include "steps.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace tenon::cpu {

using namespace lowering;
namespace {

constexpr std::int64_t cache_bytes = 1 << 20;  // about as much of a batch stays in a core's L2
constexpr std::int64_t max_parts = 64;         // of a batch: each has steps of its own

bool is_filter(const Step& step, std::size_t input) { return is_convolution(step) && input == 1; }

/// Whether an operand has one part for each of the output's images.
bool is_batch(const Step& step, std::size_t input) {
  const Operand& operand = step.inputs[input];
  return !is_filter(step, input) && operand.place.kind != Place::Kind::constant &&
         operand.shape.rank() == image_rank && operand.shape[0] == step.output.shape[0];
}

/// Bytes of a step's batches.
std::int64_t bytes_of_images(const Step& step) {
  std::int64_t bytes = step.output.shape.bytes();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (is_batch(step, i)) bytes += step.inputs[i].shape.bytes();
  }
  return bytes;
}

bool is_worth_splitting(const Step& step) {
  const bool works_on_images =
      step.kind == Step::Kind::op &&
      (is_convolution(step) || step.op.as<MaxPool2d>() != nullptr ||
       step.op.as<AvgPool2d>() != nullptr || step.op.def()->traits.pointwise);
  if (!works_on_images || step.output.shape.rank() != image_rank || step.output.shape[0] < 2)
    return false;
  const std::int64_t images = bytes_of_images(step);
  std::int64_t others = 0;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (!is_batch(step, i)) others += step.inputs[i].shape.bytes();
  }
  return images > cache_bytes && others < images / step.output.shape[0];
}

/// Whether image i of one batch lies where image i of the other does, for every i.
bool lie_alike(const Operand& a, const Operand& b) {
  return a.place == b.place && a.strides[0] == b.strides[0] && a.shape[0] == b.shape[0] &&
         a.shape.rank() == image_rank && b.shape.rank() == image_rank;
}

bool conflict(const Operand& a, const Operand& b) { return overlap(a, b) && !lie_alike(a, b); }

/// Some of a batch's images.
struct Images {
  std::int64_t first, count;
};

Operand part_of_batch(const Operand& batch, const Images& images) {
  Operand part = batch;
  part.place.offset += images.first * batch.strides[0];
  part.shape = batch.shape.with_dim(0, images.count);
  return part;
}

class Splitter {
 public:
  Splitter(std::vector<Step>& steps, std::span<const Operand> leaves, std::int64_t first)
      : steps_(steps),
        values_(trace_values(steps, leaves)),
        writers_(steps.size()),
        first_(first),
        end_of_memory_(first) {
    for (std::size_t i = 0; i < steps.size(); ++i) writers_[i].resize(steps[i].inputs.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const WrittenValue::Use& use : values_[i].uses) writers_[use.step][use.input] = i;
    }
  }

  /// Returns the offset behind the memory that local values of one part take.
  std::int64_t run() {
    std::vector<Step> result;
    for (begin_ = 0; begin_ < steps_.size();) {
      find_run();
      if (end_ - begin_ < 2) {
        result.push_back(std::move(steps_[begin_++]));
        continue;
      }
      const std::int64_t batch = steps_[begin_].output.shape[0];
      const std::int64_t together = images_at_once();
      place_local_values(together);
      for (std::int64_t first = 0; first < batch; first += together) {
        const Images images{first, std::min(together, batch - first)};
        for (std::size_t s = begin_; s < end_; ++s) result.push_back(step_of_part(s, images));
      }
      begin_ = end_;
    }
    steps_ = std::move(result);
    return end_of_memory_;
  }

 private:
  /// The longest run of steps from begin_ on that may go image by image.
  void find_run() {
    end_ = begin_;
    while (end_ < steps_.size() && is_worth_splitting(steps_[end_]) &&
           steps_[end_].output.shape[0] == steps_[begin_].output.shape[0]) {
      ++end_;
    }
    // A shorter run keeps a subset of these values local, so two steps that conflict here conflict
    // in every shorter run that has both.
    while (end_ - begin_ > 1) {
      const std::size_t clash = first_clash();
      if (clash == end_) break;
      end_ = clash;
    }
  }

  /// As many as stay in the cache from each step to the next.
  std::int64_t images_at_once() const {
    const std::int64_t batch = steps_[begin_].output.shape[0];
    std::int64_t most = 1;
    for (std::size_t s = begin_; s < end_; ++s) most = std::max(most, bytes_of_images(steps_[s]));
    const std::int64_t fitting = cache_bytes * batch / most;
    return std::max({fitting, (batch + max_parts - 1) / max_parts, std::int64_t{1}});
  }

  /// The first step of the run that may not be reordered with one before it; the run's end if there
  /// is none.
  std::size_t first_clash() {
    find_local_values();
    for (std::size_t later = begin_ + 1; later < end_; ++later) {
      for (std::size_t earlier = begin_; earlier < later; ++earlier) {
        if (!may_overtake(later, earlier)) return later;
      }
    }
    return end_;
  }

  /// Values that only the run reads, a part at a time.
  void find_local_values() {
    local_.assign(steps_.size(), false);
    for (std::size_t i = begin_; i < end_; ++i) {
      const Operand& value = steps_[i].output;
      const bool lies_by_images = value.strides[0] * value.shape[0] == value.shape.bytes();
      local_[i] = values_[i].is_private && lies_by_images &&
                  std::ranges::all_of(values_[i].uses, [&](const WrittenValue::Use& use) {
                    return use.step < end_ && !is_filter(steps_[use.step], use.input);
                  });
    }
  }

  bool is_local(std::size_t step, std::size_t input) const {
    const std::optional<std::size_t> writer = writers_[step][input];
    return writer && *writer >= begin_ && local_[*writer];
  }

  /// Whether a step reads what another of the run writes in a batch's memory, and not just each
  /// image itself.
  bool meets(std::size_t reader, std::size_t writer) const {
    if (local_[writer]) return false;
    for (std::size_t i = 0; i < steps_[reader].inputs.size(); ++i) {
      if (!is_local(reader, i) && conflict(steps_[reader].inputs[i], steps_[writer].output))
        return true;
    }
    return false;
  }

  /// Whether `later` may work on images before `earlier` has worked on the next ones.
  bool may_overtake(std::size_t later, std::size_t earlier) const {
    const bool writes_apart =
        local_[later] || local_[earlier] || !conflict(steps_[later].output, steps_[earlier].output);
    return writes_apart && !meets(later, earlier) && !meets(earlier, later);
  }

  /// Whether the use writes over the value that it reads, both of them local.
  bool is_overwritten_by(std::size_t value, const WrittenValue::Use& use) const {
    return local_[value] && local_[use.step] && steps_[use.step].output == steps_[value].output;
  }

  void place_local_values(std::int64_t images) {
    std::vector<std::size_t> last_uses(end_);
    for (std::size_t i = end_; i-- > begin_;) {
      last_uses[i] = i;
      for (const WrittenValue::Use& use : values_[i].uses) {
        if (!local_[i]) continue;
        const bool goes_on = is_overwritten_by(i, use);
        last_uses[i] = std::max(last_uses[i], goes_on ? last_uses[use.step] : use.step);
      }
    }
    LiveRangeAllocator memory;
    places_.resize(steps_.size());
    for (std::size_t i = begin_; i < end_; ++i) {
      if (!local_[i]) continue;
      std::optional<std::int64_t> offset;
      for (std::size_t input = 0; input < steps_[i].inputs.size(); ++input) {
        if (is_local(i, input) && is_overwritten_by(*writers_[i][input], {i, input}))
          offset = places_[*writers_[i][input]];
      }
      places_[i] =
          offset ? *offset
                 : first_ + memory.allocate(images * steps_[i].output.strides[0], i, last_uses[i]);
    }
    end_of_memory_ = std::max(end_of_memory_, first_ + memory.peak());
  }

  Operand part_of_value(std::size_t writer, const Operand& batch, const Images& images) const {
    Operand part = part_of_batch(batch, images);
    part.place = {};
    part.place.kind = Place::Kind::shared_scratch;
    part.place.offset = places_[writer];
    return part;
  }

  Step step_of_part(std::size_t number, const Images& images) const {
    const Step& step = steps_[number];
    Step part = step;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      if (is_local(number, i)) {
        part.inputs[i] = part_of_value(*writers_[number][i], step.inputs[i], images);
      } else if (is_batch(step, i)) {
        part.inputs[i] = part_of_batch(step.inputs[i], images);
      }
    }
    part.output = local_[number] ? part_of_value(number, step.output, images)
                                 : part_of_batch(step.output, images);
    return part;
  }

  std::vector<Step>& steps_;
  std::vector<WrittenValue> values_;
  std::vector<std::vector<std::optional<std::size_t>>> writers_;  // of each step's inputs
  std::size_t begin_ = 0, end_ = 0;                               // the run
  std::vector<bool> local_;                                       // by the step that writes
  std::vector<std::int64_t> places_;                              // of local values
  std::int64_t first_, end_of_memory_;                            // in shared scratch
};

}  // namespace

std::int64_t split_batches(std::vector<Step>& steps, std::span<const Operand> leaves,
                           std::int64_t first) {
  if (std::ranges::none_of(steps, is_worth_splitting)) return first;
  return Splitter(steps, leaves, first).run();
}

}  // namespace tenon::cpu
