#pragma once

#include <tenon/name.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// What grid_sample and its gradients have in common: an image and where it is looked at.
///
/// grid[n, i, j] is a place (column, row) of image n, -1 being its left or upper end and 1 the
/// other. With align_corners the ends are the centres of the first and the last pixel, else their
/// outer edges: column = ((g + 1) * W - 1) / 2, or (g + 1) / 2 * (W - 1).
///
/// Inputs    x: [N, C, H, W]; grid: [N, H', W', 2]; one floating dtype
/// Attributes mode: bilinear (of the four pixels around the place; the default) or nearest (the
///           nearest one, at halves the even one); padding: what lies outside of x: zeros (the
///           default), border (the nearest pixel inside) or reflection (mirrored at the ends)
/// Errors    C1 a dtype that is not floating                          Errc::unsupported_dtype
///           C2 x or grid not of rank 4, or dtypes differ             Errc::shape_mismatch
///           C3 N differs, or the last axis of grid is not 2          Errc::shape_mismatch
///           C4 another word                                          Errc::bad_attribute
///           C5 x has no pixels                                       Errc::bad_shape
/// Numerics  reference in f64, rounded once. A place that is NaN lies before the first pixel
/// Source    torch.nn.functional.grid_sample; ONNX operator GridSample
template <class Op>
struct GridSampleOp {
  Name mode{};
  Name padding{};
  bool align_corners = false;
  static constexpr auto fields =
      FieldList{field("mode", &GridSampleOp::mode), field("padding", &GridSampleOp::padding),
                field("align_corners", &GridSampleOp::align_corners)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// y[n, c, i, j] is channel c of image n at the place grid[n, i, j]: y [N, C, H', W'] of the same
/// dtype, without tags.
struct GridSample : GridSampleOp<GridSample> {
  static constexpr std::string_view name = "grid_sample";
  static constexpr int min_inputs = 2, max_inputs = 2;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(GridSample);

/// The gradient of grid_sample with respect to x, of which only the shape counts. Inputs x, grid
/// and upstream [N, C, H', W'] of one dtype (C6 another shape: Errc::shape_mismatch); y has x's
/// sizes.
struct GridSampleBackward : GridSampleOp<GridSampleBackward> {
  static constexpr std::string_view name = "grid_sample_backward";
  static constexpr int min_inputs = 3, max_inputs = 3;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(GridSampleBackward);

/// The gradient with respect to grid, with the same inputs; y has grid's sizes. 0 for nearest, and
/// where the padding holds a place at an end.
struct GridSampleGridBackward : GridSampleOp<GridSampleGridBackward> {
  static constexpr std::string_view name = "grid_sample_grid_backward";
  static constexpr int min_inputs = 3, max_inputs = 3;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(GridSampleGridBackward);

/// `grid_sample(x, grid, {.padding = "border", .align_corners = true})`.
struct GridSampleOptions {
  Name mode{};
  Name padding{};
  bool align_corners = false;
};
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {},
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon
