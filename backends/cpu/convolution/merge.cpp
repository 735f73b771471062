#include "merge.hpp"

#include "../elementwise/unary_of.hpp"
#include "../task.hpp"
#include "lower/value_uses.hpp"
#include "merged_conv2d.hpp"

#include <tenon/ops/binary.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace tenon::cpu {

using namespace lowering;
namespace {

bool takes_following(const Step& step) {
  return step.kind == Step::Kind::op && step.op.as<Conv2d>() != nullptr && !needs_f32(step);
}

class Merger {
 public:
  Merger(std::vector<Step>& steps, std::span<const Operand> leaves)
      : steps_(steps), values_(trace_values(steps, leaves)), gone_(steps.size(), false) {}

  void run() {
    // From the end: of two convolutions that are added, the later one takes the sum.
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (takes_following(steps_[i])) merge_from(i);
    }
    std::size_t i = 0;
    std::erase_if(steps_, [&](const Step&) { return gone_[i++]; });
  }

 private:
  void merge_from(std::size_t conv) {
    MergedConv2d merged;
    merged.conv = *steps_[conv].op.as<Conv2d>();
    Step step = steps_[conv];
    std::size_t last = conv;
    while (const std::optional<std::size_t> next = only_user(last)) {
      if (!take(*next, steps_[last].output, merged, step) || !may_stand_at(*next, conv, step))
        break;
      last = *next;
      step.op = OpInstance(merged);
      accepted_ = step;
    }
    if (last == conv) return;
    for (std::size_t at = conv; at != last; at = values_[at].uses[0].step) gone_[at] = true;
    steps_[last] = std::move(accepted_);
  }

  std::optional<std::size_t> only_user(std::size_t step) const {
    const WrittenValue& value = values_[step];
    if (!value.is_private || value.uses.size() != 1) return std::nullopt;
    const std::size_t user = value.uses[0].step;
    // One that has been merged into a later convolution is no longer a step.
    const bool is_free = !gone_[user] && steps_[user].kind == Step::Kind::op &&
                         steps_[user].op.as<MergedConv2d>() == nullptr;
    if (!is_free) return std::nullopt;
    return user;
  }

  /// Merges the step with this index into the op where it can; returns whether it did.
  bool take(std::size_t user, const Operand& sum, MergedConv2d& merged, Step& step) const {
    const Step& next = steps_[user];
    if (merged.has_activation || !(next.output.shape == sum.shape)) return false;
    if (next.op.as<Add>() != nullptr) {
      const Operand& residual = next.inputs[next.inputs[0] == sum ? 1 : 0];
      if (merged.has_residual || !(residual.shape == sum.shape) || !residual.is_contiguous())
        return false;
      merged.has_residual = true;
      step.inputs.push_back(residual);
    } else {
      const std::optional<UnaryCall> call = unary_of(next);
      if (!call) return false;
      merged.has_activation = true;
      merged.activation = call->function;
      merged.parameters = call->parameters;
    }
    step.output = next.output;
    step.value = next.value;
    return true;
  }

  bool may_stand_at(std::size_t place, std::size_t conv, const Step& step) const {
    const std::size_t own_inputs = steps_[conv].inputs.size();
    for (std::size_t input = 0; input < step.inputs.size(); ++input) {
      const Operand& operand = step.inputs[input];
      const bool is_residual = input >= own_inputs;
      if (overlap(operand, step.output) && !(is_residual && operand == step.output)) return false;
      if (is_residual) continue;  // was read there before
      for (std::size_t between = conv + 1; between < place; ++between) {
        if (!gone_[between] && writes_to(steps_[between], access_of(operand))) return false;
      }
    }
    return true;
  }

  std::vector<Step>& steps_;
  std::vector<WrittenValue> values_;
  std::vector<bool> gone_;
  Step accepted_;
};

}  // namespace

void merge_convolutions(std::vector<Step>& steps, std::span<const Operand> leaves) {
  if (std::ranges::any_of(steps, takes_following)) Merger(steps, leaves).run();
}

}  // namespace tenon::cpu
