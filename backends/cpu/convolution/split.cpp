#include "split.hpp"

#include "../value_uses.hpp"
#include "steps.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace tenon::cpu {
namespace {

constexpr std::int64_t cache_bytes = 1 << 20;  // about what of a batch would stay in a core's cache

/// Whether an operand has one part for each of the output's images.
bool is_batch(const Step& step, const Operand& operand) {
  return operand.place.kind != Place::Kind::constant && operand.shape.rank() == image_rank &&
         operand.shape[0] == step.output.shape[0];
}

bool is_worth_splitting(const Step& step) {
  const bool works_on_images =
      step.kind == Step::Kind::op &&
      (is_convolution(step) || step.op.as<MaxPool2d>() != nullptr ||
       step.op.as<AvgPool2d>() != nullptr || step.op.def()->traits.pointwise);
  if (!works_on_images || step.output.shape.rank() != image_rank || step.output.shape[0] < 2)
    return false;
  std::int64_t images = step.output.shape.bytes(), others = 0;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const bool is_filter = is_convolution(step) && i == 1;
    const bool is_part = is_batch(step, step.inputs[i]) && !is_filter;
    (is_part ? images : others) += step.inputs[i].shape.bytes();
  }
  return images > cache_bytes && others < images / step.output.shape[0];
}

/// Whether two operands of a batch have nothing in common but each image with itself.
bool lie_alike(const Operand& a, const Operand& b) {
  return a.place == b.place && a.strides[0] == b.strides[0] && a.shape[0] == b.shape[0] &&
         a.shape.rank() == image_rank && b.shape.rank() == image_rank;
}

bool conflict(const Operand& a, const Operand& b) { return overlap(a, b) && !lie_alike(a, b); }

/// Whether `later` may work on an image before `earlier` has worked on the next one.
bool may_overtake(const Step& later, const Step& earlier) {
  const auto meets = [](const Step& reader, const Operand& written) {
    return std::ranges::any_of(reader.inputs,
                               [&](const Operand& read) { return conflict(read, written); });
  };
  return !conflict(later.output, earlier.output) && !meets(later, earlier.output) &&
         !meets(earlier, later.output);
}

Operand image_of_batch(const Operand& batch, std::int64_t image) {
  Operand one = batch;
  one.place.offset += image * batch.strides[0];
  one.shape = batch.shape.with_dim(0, 1);
  return one;
}

Step step_of_image(const Step& step, std::int64_t image) {
  Step one = step;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const bool is_filter = is_convolution(step) && i == 1;
    if (is_batch(step, step.inputs[i]) && !is_filter) {
      one.inputs[i] = image_of_batch(step.inputs[i], image);
    }
  }
  one.output = image_of_batch(step.output, image);
  return one;
}

}  // namespace

void split_batches(std::vector<Step>& steps) {
  std::vector<Step> result;
  for (std::size_t i = 0; i < steps.size();) {
    std::size_t end = i;
    while (end < steps.size() && is_worth_splitting(steps[end]) &&
           steps[end].output.shape[0] == steps[i].output.shape[0] &&
           std::all_of(
               steps.begin() + static_cast<std::ptrdiff_t>(i),
               steps.begin() + static_cast<std::ptrdiff_t>(end),
               [&](const Step& earlier) { return may_overtake(steps[end], earlier); })) {
      ++end;
    }
    if (end - i < 2) {
      result.push_back(std::move(steps[i++]));
      continue;
    }
    for (std::int64_t image = 0; image < steps[i].output.shape[0]; ++image) {
      for (std::size_t s = i; s < end; ++s) result.push_back(step_of_image(steps[s], image));
    }
    i = end;
  }
  steps = std::move(result);
}

}  // namespace tenon::cpu
