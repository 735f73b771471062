#include "session/parts.hpp"

#include <tenon/cost.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::sessions {
namespace {

/// A step as its part: all but its time.
StepTime::Part described(const Step& step, std::int64_t runs) {
  const Cost cost = cost_of(step);
  StepTime::Part part;
  part.values = {step.value};
  part.op = op_of(step);
  part.shape = step.output.shape;
  const OpDef* const def = step.op.def();
  if (def != nullptr && def->flops != nullptr && step.inputs.size() > 1) {
    part.weights = step.inputs[1].shape.dtype();
  }
  part.count = runs;
  part.bytes = cost.bytes * static_cast<double>(runs);
  part.flops = cost.flops * static_cast<double>(runs);
  return part;
}

bool reads(const Step& step, const Operand& value) {
  for (const Operand& input : step.inputs) {
    if (same_storage(input.place, value.place) && byte_range(input).overlaps(byte_range(value))) {
      return true;
    }
  }
  return false;
}

class Parts {
 public:
  explicit Parts(std::span<const StepMark> marks) {
    for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
      const StepMark& mark = marks[i];
      if (mark.values.empty()) continue;
      time_of(mark) += marks[i + 1].begin - mark.begin;
    }
  }

  /// A step that ran under no name of its own was made part of the one that reads its result.
  void add(std::span<const Step> steps, std::int64_t runs, std::string_view function) {
    std::vector<std::optional<std::size_t>> part_of_step(steps.size());
    for (std::size_t i = steps.size(); i-- > 0;) {
      const Step& step = steps[i];
      if (step.kind == Step::Kind::loop) {
        add(step.body, runs * step.counted_runs(), step.value);
        continue;
      }
      std::optional<std::size_t>& part = part_of_step[i];
      if (const auto named = by_value_.find({function, step.value}); named != by_value_.end()) {
        part = named->second;
      }
      for (std::size_t j = i + 1; j < steps.size() && !part; ++j) {
        if (steps[j].kind != Step::Kind::loop && reads(steps[j], step.output)) {
          part = part_of_step[j];
        }
      }
      if (part) add(parts_[*part], described(step, runs));
    }
  }

  std::vector<StepTime::Part> take() { return std::move(parts_); }

 private:
  std::chrono::nanoseconds& time_of(const StepMark& mark) {
    const auto [known, is_new] = by_mark_.try_emplace(mark.values.data(), parts_.size());
    if (!is_new) return parts_[known->second].wall;
    // Work for a value may be in several places: what prepares its operands, and itself.
    const auto [same, is_first] =
        by_value_.try_emplace({mark.function, mark.values.front()}, parts_.size());
    known->second = same->second;
    if (is_first) parts_.emplace_back().function = mark.function;
    StepTime::Part& part = parts_[same->second];
    if (mark.values.size() > part.values.size()) {
      part.values.assign(mark.values.begin(), mark.values.end());
    }
    for (const std::string& value : mark.values) {
      by_value_.try_emplace({mark.function, value}, same->second);
    }
    return part.wall;
  }

  /// Adds the work of a step; the part is described by the one that computes most.
  static void add(StepTime::Part& part, const StepTime::Part& step) {
    if (part.count == 0 || step.flops > part.flops) {
      part.op = step.op;
      part.shape = step.shape;
      part.weights = step.weights;
    }
    part.bytes += step.bytes;
    part.flops += step.flops;
    part.count = std::max(part.count, step.count);
  }

  std::vector<StepTime::Part> parts_;
  std::unordered_map<const std::string*, std::size_t> by_mark_;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> by_value_;  // function first
};

}  // namespace

std::vector<StepTime::Part> parts_of(const Stage& stage, std::span<const StepMark> marks,
                                     std::chrono::nanoseconds wall) {
  if (!marks.empty()) {
    Parts parts(marks);
    parts.add(stage.steps, 1, {});
    return parts.take();
  }
  const Step* const step = stage.only_step();
  if (step == nullptr) return {};
  StepTime::Part part = described(*step, 1);
  part.wall = wall;
  return {std::move(part)};
}

std::string title_of(std::string_view function, std::span<const std::string> values) {
  return fmt::format("{}{}{}", function, function.empty() ? "" : ": ", fmt::join(values, ", "));
}

}  // namespace tenon::sessions

namespace tenon {

std::string StepTime::Part::title() const { return sessions::title_of(function, values); }

}  // namespace tenon
