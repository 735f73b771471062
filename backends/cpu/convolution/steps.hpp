// Queries about convolutions in any of their forms, for passes over steps.
#pragma once

#include "../int8/quantized_conv2d.hpp"
#include "merged_conv2d.hpp"

#include <tenon/lowered.hpp>
#include <tenon/ops/conv2d.hpp>

#include <algorithm>

namespace tenon::cpu {

/// As merged so far; null where nothing is.
inline const MergedConv2d* merged_part(const Step& step) {
  const auto* quantized = step.op.as<QuantizedConv2d>();
  return quantized != nullptr ? &quantized->merged : step.op.as<MergedConv2d>();
}

inline bool is_convolution(const Step& step) {
  return step.op.as<Conv2d>() != nullptr || merged_part(step) != nullptr;
}

/// Whether a step folds the rows and columns of images by Op (Mean, Sum, ...).
template <class Op>
bool folds_image(const Step& step) {
  const auto* op = step.op.as<Op>();
  return op != nullptr && step.inputs[0].shape.rank() == image_rank && op->axes.size() == 2 &&
         std::ranges::count(op->axes.span(), 2) == 1 && std::ranges::count(op->axes.span(), 3) == 1;
}

}  // namespace tenon::cpu
