#include "channels_last.hpp"

#include "../int8/integer_product.hpp"
#include "../int8/quantized_mean.hpp"
#include "../task.hpp"
#include "lower/value_uses.hpp"
#include "steps.hpp"

#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/quantize_linear.hpp>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace tenon::cpu {

using namespace lowering;
namespace {

bool is_image(const Operand& operand) {
  return operand.shape.rank() == image_rank && operand.shape.elements() > 0;
}

/// Whether both orders of axes are one order of bytes.
bool is_either(const Operand& image) {
  return image.shape[1] == 1 || image.shape[2] * image.shape[3] == 1;
}

/// Whether all elements have one scale and zero point.
template <class Op>
bool has_one_scale(const Step& step) {
  return step.op.as<Op>() != nullptr &&
         std::ranges::all_of(step.inputs.begin() + 1, step.inputs.end(),
                             [](const Operand& one) { return one.shape.elements() == 1; });
}

bool is_pointwise(const Step& step) {
  return step.op.def()->traits.pointwise || has_one_scale<QuantizeLinear>(step) ||
         has_one_scale<DequantizeLinear>(step);
}

enum class Role { convolution, pool, pointwise, mean, other };

Role role_of(const Step& step) {
  if (step.kind != Step::Kind::op) return Role::other;
  if (step.op.as<QuantizedConv2d>() != nullptr || step.op.as<IntegerProduct>() != nullptr) {
    return Role::convolution;
  }
  if (is_convolution(step)) return needs_f32(step) ? Role::other : Role::convolution;
  if (step.op.as<MaxPool2d>() != nullptr || step.op.as<AvgPool2d>() != nullptr) {
    return step.output.shape.dtype() == DType::f64 ? Role::other : Role::pool;
  }
  if (is_pointwise(step) && is_image(step.output)) return Role::pointwise;
  if (step.op.as<QuantizedMean>() != nullptr || folds_image<Mean>(step) || folds_image<Sum>(step) ||
      folds_image<Max>(step) || folds_image<Min>(step)) {
    return Role::mean;
  }
  return Role::other;
}

/// Images that must have the same layout, as sets of the steps that write them (union-find).
class Chains {
 public:
  explicit Chains(std::size_t count) : parent_(count), stays_(count, false), convolved_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  void join(std::size_t a, std::size_t b) {
    a = root(a);
    b = root(b);
    parent_[a] = b;
    stays_[b] = stays_[b] || stays_[a];
    convolved_[b] = convolved_[b] || convolved_[a];
  }
  void keep_as_is(std::size_t v) { stays_[root(v)] = true; }
  void mark_convolved(std::size_t v) { convolved_[root(v)] = true; }
  bool turns(std::size_t v) { return convolved_[root(v)] && !stays_[root(v)]; }

 private:
  std::size_t root(std::size_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  std::vector<std::size_t> parent_;
  std::vector<bool> stays_, convolved_;
};

class LayoutPass {
 public:
  LayoutPass(std::vector<Step>& steps, std::span<const Operand> leaves)
      : steps_(steps), values_(trace_values(steps, leaves)), chains_(steps.size()) {
    for (std::size_t v = 0; v < steps_.size(); ++v) {
      for (const WrittenValue::Use& use : values_[v].uses) {
        makers_[{use.step, use.input}] = v;
      }
    }
  }

  void run() {
    for (std::size_t i = 0; i < steps_.size(); ++i) constrain(i);
    std::vector<bool> turned(steps_.size());
    for (std::size_t v = 0; v < steps_.size(); ++v) {
      turned[v] = is_image(steps_[v].output) && !is_either(steps_[v].output) && chains_.turns(v);
    }
    for (std::size_t v = 0; v < steps_.size(); ++v) {
      if (!turned[v]) continue;
      turn(steps_[v].output);
      for (const auto& use : values_[v].uses) turn(steps_[use.step].inputs[use.input]);
    }
    for (std::size_t v = 0; v < steps_.size(); ++v) {
      if (turned[v] && role_of(steps_[v]) == Role::pointwise) turn_axes(steps_[v]);
    }
  }

 private:
  void constrain(std::size_t i) {
    const Step& step = steps_[i];
    const Role role = role_of(step);
    if (step.kind == Step::Kind::loop) return chains_.keep_as_is(i);
    const bool can_turn =
        role == Role::convolution || role == Role::pool || role == Role::pointwise;
    if (!can_turn || !values_[i].is_private || !is_image(step.output) ||
        !step.output.is_contiguous()) {
      chains_.keep_as_is(i);
    }
    if (role == Role::convolution) chains_.mark_convolved(i);
    for (std::size_t input = 0; input < step.inputs.size(); ++input) {
      constrain_input(i, input, role);
    }
  }

  void constrain_input(std::size_t i, std::size_t input, Role role) {
    const Operand& operand = steps_[i].inputs[input];
    const std::optional<std::size_t> maker = maker_of(i, input);
    const bool is_first = input == 0;
    switch (role) {
      case Role::convolution: {
        const MergedConv2d* merged = merged_part(steps_[i]);
        const bool is_residual =
            merged != nullptr && merged->has_residual && input + 1 == steps_[i].inputs.size();
        if (is_residual) return join(i, operand, maker);
        if (!is_first && maker) chains_.keep_as_is(*maker);
        return;
      }
      case Role::pool:
        return join(i, operand, maker);
      case Role::pointwise:
        if (is_image(operand)) join(i, operand, maker);
        return;
      case Role::mean:
        return;
      case Role::other:
        if (maker) chains_.keep_as_is(*maker);
    }
  }

  /// The output of step i has the layout of this input.
  void join(std::size_t i, const Operand& operand, std::optional<std::size_t> maker) {
    if (!is_image(operand) || is_either(operand)) return;
    if (maker) {
      chains_.join(*maker, i);
    } else {
      chains_.keep_as_is(i);
    }
  }

  std::optional<std::size_t> maker_of(std::size_t step, std::size_t input) const {
    const auto found = makers_.find({step, input});
    if (found == makers_.end()) return std::nullopt;
    return found->second;
  }

  static void turn(Operand& image) {
    const std::int64_t unit = block_bytes(image.shape.dtype());
    image.strides[1] = unit;
    image.strides[3] = unit * image.shape[1];
    image.strides[2] = image.strides[3] * image.shape[3];
  }

  /// An element-wise step in the order [N, H, W, C].
  static void turn_axes(Step& step) {
    for (Operand& input : step.inputs) turn_axes(input);
    turn_axes(step.output);
  }
  static void turn_axes(Operand& operand) {
    const int missing = image_rank - operand.shape.rank();
    std::array<std::int64_t, image_rank> dims{};
    Strides strides{};
    constexpr std::array<int, image_rank> order{0, 2, 3, 1};
    for (std::size_t to = 0; to < image_rank; ++to) {
      const int from = order[to] - missing;
      dims[to] = from < 0 ? 1 : operand.shape[from];
      strides[to] = from < 0 ? 0 : operand.strides[static_cast<std::size_t>(from)];
    }
    operand.shape = Shape(std::span<const std::int64_t>(dims), operand.shape.dtype());
    operand.strides = strides;
  }

  std::vector<Step>& steps_;
  std::vector<WrittenValue> values_;
  Chains chains_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> makers_;  // by step and input
};

}  // namespace

void put_channels_last(std::vector<Step>& steps, std::span<const Operand> leaves) {
  const auto convolves = [](const Step& step) { return role_of(step) == Role::convolution; };
  if (std::ranges::any_of(steps, convolves)) LayoutPass(steps, leaves).run();
}

bool has_channels_last(const Operand& image) noexcept {
  return image.shape[1] == 1 || image.strides[1] == block_bytes(image.shape.dtype());
}

}  // namespace tenon::cpu
