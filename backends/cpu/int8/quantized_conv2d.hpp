#pragma once

#include "../convolution/merged_conv2d.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon {

namespace cpu {

/// The values of the codes 0 to 255 of an image: (code - zero) * scale.
struct Codes {
  float scale = 1;
  std::int32_t zero = 0;

  friend bool operator==(const Codes&, const Codes&) noexcept = default;
};

}  // namespace cpu

/// A merged convolution in integers. Made by cpu::quantize_convolutions, never by a program; no op
/// of the registry.
///
/// Inputs   those of merged_conv2d; image and residual are u8 (codes) or f32
/// Output   u8 or f32
/// Numerics x in codes (an f32 image is rounded to them first), w in 8 bits by output channel, sums
///          exact in i32; the rest in f32, rounded to y's codes where it is u8
struct QuantizedConv2d {
  static constexpr std::string_view name = "quantized_conv2d";
  static constexpr int min_inputs = 2, max_inputs = 4;
  MergedConv2d merged;
  cpu::Codes x, residual, y;  ///< `residual` and `y`: where they are u8
  static constexpr auto fields = FieldList{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(QuantizedConv2d);

}  // namespace tenon
