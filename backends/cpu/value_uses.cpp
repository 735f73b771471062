#include "value_uses.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

class Tracer {
 public:
  Tracer(std::span<const Step> steps, ReadAs reads)
      : steps_(steps), reads_(reads), values_(steps.size()) {}

  std::vector<WrittenValue> run(std::span<const Operand> leaves) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (step.kind == Step::Kind::loop) {
        loop(step.body);
        continue;
      }
      for (std::size_t input = 0; input < step.inputs.size(); ++input) {
        read(step.inputs[input], {i, input});
      }
      std::erase_if(live_, [&](std::size_t v) { return overlap(steps_[v].output, step.output); });
      // What lies in an output's memory at the end is among the leaves.
      const Place& place = step.output.place;
      values_[i].is_private =
          (place.kind == Place::Kind::slab || place.kind == Place::Kind::output) &&
          place.byte_step == LoopSteps{};
      live_.push_back(i);
    }
    for (const Operand& leaf : leaves) expose(leaf);
    return std::move(values_);
  }

 private:
  void read(const Operand& operand, WrittenValue::Use use) {
    if (!is_memory(operand)) return;
    const auto found =
        std::ranges::find_if(live_, [&](std::size_t v) { return sees(operand, steps_[v].output); });
    if (found != live_.end()) {
      values_[*found].uses.push_back(use);
    } else {
      expose(operand);
    }
  }

  bool sees(const Operand& operand, const Operand& value) const {
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

  /// Whoever reads it is not among the uses.
  void expose(const Operand& operand) {
    if (!is_memory(operand)) return;
    for (const std::size_t v : live_) {
      if (overlap(steps_[v].output, operand)) values_[v].is_private = false;
    }
  }

  void loop(std::span<const Step> body) {
    for (const Step& step : body) {
      for (const Operand& input : step.inputs) expose(input);
      if (step.kind == Step::Kind::loop) {
        loop(step.body);
      } else {
        expose(step.output);
      }
    }
  }

  std::span<const Step> steps_;
  ReadAs reads_;
  std::vector<WrittenValue> values_;
  std::vector<std::size_t> live_;  // steps whose results still lie in memory, apart of each other
};

}  // namespace

std::vector<WrittenValue> trace_values(std::span<const Step> steps, std::span<const Operand> leaves,
                                       ReadAs reads) {
  return Tracer(steps, reads).run(leaves);
}

void for_each_stretch(
    const Lowered& program, std::span<const Step> steps, std::vector<Step>& own,
    const std::function<void(std::vector<Step>&, std::span<const Operand> leaves)>& pass) {
  auto loop = own.begin();
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::loop) continue;
    loop = std::ranges::find(loop, own.end(), Step::Kind::loop, &Step::kind);
    // What follows reads some of what a loop writes, and so does its next iteration.
    std::vector<Operand> leaves = edges(program, {&step, 1}).writes;
    const std::vector<Operand> carried = edges(program, step.body).reads;
    leaves.insert(leaves.end(), carried.begin(), carried.end());
    pass(loop->body, leaves);
    ++loop;
  }
  pass(own, edges(program, steps).writes);
}

}  // namespace tenon::cpu
