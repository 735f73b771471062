// Whether every operand of a lowered program lies inside what it is a part of.
#pragma once

#include <tenon/lowered.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {

/// Names the first operand that reaches beyond its input, output, constant or the slab, in the
/// first or the last iteration of the loops around it; empty when there is none.
class PlanBounds {
 public:
  explicit PlanBounds(const Lowered& lowered) : lowered_(lowered) {}

  std::string trouble() {
    walk(lowered_.steps);
    return trouble_;
  }

 private:
  void walk(std::span<const Step> steps) {
    for (const Step& step : steps) {
      if (!trouble_.empty()) return;
      if (step.kind == Step::Kind::loop) {
        counts_[static_cast<std::size_t>(step.depth)] = step.count;
        if (step.count > 0) walk(step.body);
        counts_[static_cast<std::size_t>(step.depth)] = 0;
        continue;
      }
      for (const Operand& input : step.inputs) check(step, input);
      check(step, step.output);
    }
  }

  void check(const Step& step, const Operand& operand) {
    LoopSteps last{};
    for (std::size_t d = 0; d < max_loop_depth; ++d) last[d] = counts_[d] > 0 ? counts_[d] - 1 : 0;
    for (const LoopSteps& iteration : {LoopSteps{}, last}) {
      const ByteRange range = byte_range(operand, iteration);
      const std::int64_t have = bytes_of(operand.place, iteration);
      if (range.is_empty() || (range.begin >= 0 && range.end <= have)) continue;
      trouble_ = fmt::format("'{}' reaches for bytes {} to {} of {}", step.value, range.begin,
                             range.end, have);
    }
  }

  std::int64_t bytes_of(const Place& place, const LoopSteps& iteration) const {
    std::int64_t entry = place.index;
    for (std::size_t d = 0; d < max_loop_depth; ++d) entry += iteration[d] * place.entry_step[d];
    const auto index = static_cast<std::size_t>(entry);
    const auto size = [&](const auto& slots) {
      return index < slots.size() ? slots[index].shape.bytes() : -1;
    };
    switch (place.kind) {
      case Place::Kind::input:
        return size(lowered_.inputs);
      case Place::Kind::output:
        return size(lowered_.outputs);
      case Place::Kind::constant:
        return size(lowered_.constants);
      case Place::Kind::slab:
        return lowered_.slab_bytes;
      case Place::Kind::loop_index:
        return static_cast<std::int64_t>(sizeof(std::int64_t));
      default:
        return -1;
    }
  }

  const Lowered& lowered_;
  LoopSteps counts_{};
  std::string trouble_;
};

inline std::string out_of_bounds(const Lowered& lowered) { return PlanBounds(lowered).trouble(); }

}  // namespace tenon::testing
