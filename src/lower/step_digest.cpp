#include "base/digest.hpp"

#include <tenon/lowered.hpp>

#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

/// Steps as text. Constants are named: their places are those of one plan.
class StepText {
 public:
  explicit StepText(const Lowered& program) : program_(program) {}

  void add(std::span<const Step> steps) {
    for (const Step& step : steps) {
      text_ += fmt::format("{} {} [", static_cast<int>(step.kind), step.value);
      if (step.kind == Step::Kind::loop) {
        text_ += fmt::format("{} {} {}\n", step.first, step.count, step.depth);
        for (const Operand& input : step.inputs) add(input);
        add(step.body);
      } else {
        if (step.kind == Step::Kind::op) text_ += to_string(step.op);
        for (const Operand& input : step.inputs) add(input);
        add(step.output);
      }
      text_ += "]\n";
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void add(const Operand& operand) {
    const Place& place = operand.place;
    const auto rank = static_cast<std::size_t>(operand.shape.rank());
    const bool is_constant = place.kind == Place::Kind::constant;
    text_ += fmt::format(
        " ({} {} {} {} {} {} {})", static_cast<int>(place.kind),
        is_constant ? program_.constants[place.index].name : std::to_string(place.index),
        place.offset, fmt::join(place.byte_step, ","), fmt::join(place.entry_step, ","),
        to_string(operand.shape.without_tags()),
        fmt::join(std::span(operand.strides).first(rank), ","));
  }

  const Lowered& program_;
  std::string text_;
};

}  // namespace

std::string digest_of(const Lowered& program, std::span<const Step> steps) {
  StepText text(program);
  text.add(steps);
  return digest_of(text.take());
}

}  // namespace tenon
