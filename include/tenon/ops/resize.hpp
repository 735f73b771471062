#pragma once

#include <tenon/name.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Resamples the last one, two or three axes to other sizes; leading axes stay. Along an axis of
/// `in` elements, element i of `out` lies at the position
///
///   half_pixel           (i + 0.5) * in / out - 0.5
///   pytorch_half_pixel   the same, or 0 where out is 1
///   align_corners        i * (in - 1) / (out - 1), or 0 where out is 1
///   asymmetric           i * in / out
///
/// and is taken from the elements around it: with mode
///
///   nearest   one of the two, by `rounding`: floor, ceil, round_prefer_floor, round_prefer_ceil
///             (the last two differ at halves)
///   linear    both, weighted by their distances
///   cubic     four, by the cubic of Keys with a = cubic_coefficient
///
/// Elements outside repeat the first and the last one. Several axes are resampled one by one.
///
/// Input     x: rank >= sizes.size(); floating
/// Output    y: the last axes have the sizes `sizes`; dtype and tags of x
/// Attributes sizes: one to three values, each at least 0; mode, coordinates, rounding: words from
///           above, empty: linear, half_pixel, round_prefer_floor; cubic_coefficient: finite
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 no sizes, more than three, or a negative one; another word; cubic_coefficient not
///              finite                                                Errc::bad_attribute
///           C3 x has fewer axes than there are sizes                 Errc::shape_mismatch
///           C4 an axis of size 0 to be resampled to another size     Errc::bad_shape
/// Numerics  reference in f64, rounded once. Positions are exact fractions, not products with a
///           rounded scale, so that nearest never depends on rounding; PyTorch's may, by one
///           element
/// Source    ONNX operator Resize (sizes given); torch.nn.functional.interpolate: `nearest` is
///           nearest, asymmetric, floor; `nearest-exact` nearest, half_pixel, round_prefer_ceil;
///           `bilinear` linear, half_pixel or align_corners; `bicubic` the same with cubic, -0.75;
///           Keys, Cubic convolution interpolation (1981)
struct Resize {
  static constexpr std::string_view name = "resize";
  static constexpr int min_inputs = 1, max_inputs = 1;
  IntList sizes{};
  Name mode{};
  Name coordinates{};
  Name rounding{};
  double cubic_coefficient = -0.75;
  static constexpr auto fields =
      FieldList{field("sizes", &Resize::sizes), field("mode", &Resize::mode),
                field("coordinates", &Resize::coordinates), field("rounding", &Resize::rounding),
                field("cubic_coefficient", &Resize::cubic_coefficient)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Resize);

/// The gradient of resize with respect to x: each element of `upstream` is added to the elements
/// that resize mixes it from, times their weights.
///
/// Input     upstream: rank >= sizes.size(); floating
/// Output    y: the last axes have the sizes `sizes`, those of resize's input; dtype of upstream,
///           no tags
/// Attributes, Errors, Numerics  as for resize, with the roles of x and y exchanged
struct ResizeBackward {
  static constexpr std::string_view name = "resize_backward";
  static constexpr int min_inputs = 1, max_inputs = 1;
  IntList sizes{};
  Name mode{};
  Name coordinates{};
  Name rounding{};
  double cubic_coefficient = -0.75;
  static constexpr auto fields =
      FieldList{field("sizes", &ResizeBackward::sizes), field("mode", &ResizeBackward::mode),
                field("coordinates", &ResizeBackward::coordinates),
                field("rounding", &ResizeBackward::rounding),
                field("cubic_coefficient", &ResizeBackward::cubic_coefficient)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(ResizeBackward);

/// What resize mixes each of `outputs` elements along an axis from: element i from
/// inputs[k * outputs + i], times weights[k * outputs + i], for k < taps (1, 2 or 4). The inputs
/// are within [0, size); an axis that keeps its size is itself, with one tap. For kernels, of ops whose
/// checks have passed.
struct ResizeTaps {
  std::int64_t taps = 1;
  std::int64_t outputs = 0;
  std::vector<std::int64_t> inputs;
  std::vector<double> weights;
};
ResizeTaps resize_taps(const Resize& op, std::int64_t size, std::int64_t outputs);

/// `resize(x, {.sizes = {2 * h, 2 * w}})`.
Tensor resize(const Tensor& x, const Resize& options,
              const std::source_location& where = std::source_location::current());
Tensor resize_backward(const Tensor& upstream, const ResizeBackward& options,
                       const std::source_location& where = std::source_location::current());

}  // namespace tenon
