#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <limits>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Boxes that are kept when those that overlap a better one of their class are dropped: for each
/// image and class, boxes in the order of their scores, the greatest first, of equal ones the
/// first; one is kept unless its intersection with a kept one, divided by their union, exceeds
/// iou_threshold.
///
/// Inputs    boxes: [B, K, 4], each (y1, x1, y2, x2) with corners in any order, or, with
///           center_point_box, (x, y, width, height) around the centre; scores: [B, classes, K];
///           one floating dtype
/// Output    y: i64[capacity, 3]: (image, class, box) of each box kept, ordered by image, class and
///           score; -1 in the rows that are left. Those that do not fit are dropped
/// Attributes capacity: rows of the result; max_per_class: boxes that are kept of a class and image
///           at most; iou_threshold: in [0, 1]; score_threshold: boxes with a greater score take
///           part; all that are not NaN by default
/// Errors    C1 boxes or scores not floating                          Errc::unsupported_dtype
///           C2 ranks, dtypes, B, K, or the 4 differ                  Errc::shape_mismatch
///           C3 capacity or max_per_class negative, iou_threshold outside [0, 1], score_threshold
///              NaN                                                   Errc::bad_attribute
/// Numerics  exact in the order of scores; areas in f64. Boxes with a NaN overlap nothing
/// Source    ONNX operator NonMaxSuppression, with a fixed number of rows
struct NonMaxSuppression {
  static constexpr std::string_view name = "non_max_suppression";
  static constexpr int min_inputs = 2, max_inputs = 2;
  std::int64_t capacity = 0;
  std::int64_t max_per_class = std::numeric_limits<std::int64_t>::max();
  double iou_threshold = 0;
  double score_threshold = -std::numeric_limits<double>::infinity();
  bool center_point_box = false;
  static constexpr auto fields =
      FieldList{field("capacity", &NonMaxSuppression::capacity),
                field("max_per_class", &NonMaxSuppression::max_per_class),
                field("iou_threshold", &NonMaxSuppression::iou_threshold),
                field("score_threshold", &NonMaxSuppression::score_threshold),
                field("center_point_box", &NonMaxSuppression::center_point_box)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(NonMaxSuppression);

/// `non_max_suppression(boxes, scores, {.capacity = 100, .iou_threshold = 0.5})`.
Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores,
                           const NonMaxSuppression& options,
                           const std::source_location& where = std::source_location::current());

}  // namespace tenon
