#pragma once

#include "../elementwise/elementwise.hpp"

#include <tenon/lowered.hpp>
#include <tenon/ops/conv2d.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon {

/// A convolution with its fused epilogue: y = f(conv2d(x, w, bias) + residual). Made by
/// cpu::merge_convolutions, never by a program; no op of the registry.
///
/// Inputs  those of conv2d, then the residual, of the output's type, when has_residual
struct MergedConv2d {
  static constexpr std::string_view name = "merged_conv2d";
  static constexpr int min_inputs = 2, max_inputs = 4;
  Conv2d conv;
  bool has_residual = false;
  bool has_activation = false;
  cpu::Unary activation = cpu::Unary::relu;
  cpu::UnaryParameters parameters;
  static constexpr auto fields = FieldList{field("has_residual", &MergedConv2d::has_residual)};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(MergedConv2d);

namespace cpu {

/// Axes of images: batch, channels, rows, columns.
inline constexpr int image_rank = 4;

}  // namespace cpu
}  // namespace tenon
