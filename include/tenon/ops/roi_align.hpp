#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Means of images over the cells of boxes: each box (x1, y1, x2, y2) times `scale` is divided into
/// `size` cells, and a cell's value is the mean of bilinear samples at the centres of its
/// sampling_ratio^2 equal parts.
///
/// Inputs    x: [N, C, H, W]; boxes: [R, 4], one floating dtype for both; images: [R], i32 or i64:
///           the image that each box is of
/// Output    y: [R, C, size 0, size 1]; dtype of x, no tags
/// Attributes size: two values of at least 1, rows and columns of cells; scale: from the boxes'
///           unit to pixels, above 0; sampling_ratio: 0 to 2^20, where 0 takes as many parts along
///           an axis as a cell has pixels, rounded up; aligned: pixels' centres lie at halves, so
///           boxes are shifted by half a pixel. Boxes smaller than a pixel count as one unless
///           aligned
/// Errors    C1 x or boxes not floating, images neither i32 nor i64   Errc::unsupported_dtype
///           C2 ranks, dtypes of x and boxes, R, or the 4 differ      Errc::shape_mismatch
///           C3 an attribute out of range                             Errc::bad_attribute
///           C4 an image outside [0, N), when it runs                 Errc::out_of_range
/// Numerics  reference in f64, rounded once. A sample more than a pixel outside of the image is 0,
///           others outside repeat its border; a cell of a box of size 0 is 0
/// Source    torchvision.ops.roi_align; ONNX operator RoiAlign (mode avg; half_pixel is aligned);
///           He et al., Mask R-CNN (2017)
struct RoiAlign {
  static constexpr std::string_view name = "roi_align";
  static constexpr int min_inputs = 3, max_inputs = 3;
  IntList size{};
  double scale = 1;
  std::int64_t sampling_ratio = 0;
  bool aligned = true;
  static constexpr auto fields = FieldList{
      field("size", &RoiAlign::size), field("scale", &RoiAlign::scale),
      field("sampling_ratio", &RoiAlign::sampling_ratio), field("aligned", &RoiAlign::aligned)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(RoiAlign);

/// The gradient of roi_align with respect to x, of which only the shape counts. Boxes have none.
///
/// Inputs    x, boxes, images as for roi_align; upstream: the shape of its result (C5 another one:
///           Errc::shape_mismatch)
/// Output    y: sizes and dtype of x, no tags
/// Attributes, Errors, Numerics  as for roi_align
struct RoiAlignBackward {
  static constexpr std::string_view name = "roi_align_backward";
  static constexpr int min_inputs = 4, max_inputs = 4;
  IntList size{};
  double scale = 1;
  std::int64_t sampling_ratio = 0;
  bool aligned = true;
  static constexpr auto fields =
      FieldList{field("size", &RoiAlignBackward::size), field("scale", &RoiAlignBackward::scale),
                field("sampling_ratio", &RoiAlignBackward::sampling_ratio),
                field("aligned", &RoiAlignBackward::aligned)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(RoiAlignBackward);

/// `roi_align(x, boxes, images, {.size = {7, 7}, .scale = 1.0 / 16})`.
Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images,
                 const RoiAlign& options,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon
