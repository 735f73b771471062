#pragma once

#include "quantized_conv2d.hpp"

#include <tenon/ops/reduce.hpp>

#include <span>
#include <string_view>

namespace tenon {

/// The mean of each channel of an image of codes. Made by cpu::quantize_convolutions, never by a
/// program; no op of the registry.
///
/// Input    x: [N, C, H, W], u8
/// Output   y: what `mean` gives, f32
/// Numerics sums of codes are exact; the rest in f64, rounded once
struct QuantizedMean {
  static constexpr std::string_view name = "quantized_mean";
  static constexpr int min_inputs = 1, max_inputs = 1;
  Mean mean;  ///< over the last two axes
  cpu::Codes x;
  static constexpr auto fields = FieldList{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(QuantizedMean);

}  // namespace tenon
