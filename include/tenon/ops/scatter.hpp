#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// x with elements of `source` put in along an axis, the inverse of take_along: ONNX
/// ScatterElements, torch.scatter. For every position of index, in row-major order,
/// y[.., index[.., i, ..], ..] = combine(y[.., index[.., i, ..], ..], source[.., i, ..]), where y
/// begins as x, and combine gives the second (`set`), or the sum, product, minimum or maximum.
///
/// Inputs    x: rank >= 1, any plain type; index: rank of x, no larger than x outside `axis`, i32 or
///           i64, each in [0, size of axis); source: sizes of index, dtype of x
/// Output    y: type and tags of x; may share x's buffer
/// Errors    C1 axis outside [0, rank)                                  Errc::axis_out_of_range
///           C2 index not i32 or i64                                    Errc::unsupported_dtype
///           C3 x of a block type, or bool with a mode other than set   Errc::unsupported_dtype
///           C4 ranks, dtypes, or sizes of index and source differ; index larger than x outside
///              the axis                                                Errc::shape_mismatch
///           C5 mode none of set, add, mul, min, max                    Errc::bad_attribute
///           when run: an index out of range                            Errc::out_of_range
/// Numerics  reference in f64, rounded once; kernels in f32 for f32 and halves. Of equal indices
///           each counts, in their order, whatever the number of threads: `set` keeps the last. A
///           NaN makes min and max NaN
/// Gradient  of x and source; of equal minima or maxima, each gets an even part
struct Scatter {
  static constexpr std::string_view name = "scatter";
  static constexpr int min_inputs = 3, max_inputs = 3;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t axis = 0;
  Name mode{};  ///< empty: set
  static constexpr auto fields =
      FieldList{field("axis", &Scatter::axis), field("mode", &Scatter::mode)};

  /// What `mode` names; C5.
  enum class Mode : std::uint8_t { set, add, mul, min, max };
  Mode combination() const;

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Scatter);

/// As above; source is broadcast to the sizes of index. `mode` is one of set, add, mul, min, max.
Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, const AxisRef& axis = -1,
               Name mode = {}, const std::source_location& where = std::source_location::current());

/// numpy.put_along_axis, without changing x: scatter of mode set.
Tensor put_along(const Tensor& x, const Tensor& index, const Tensor& source,
                 const AxisRef& axis = -1,
                 const std::source_location& where = std::source_location::current());

/// Whole slices combined with x along an axis, the inverse of gather: torch.index_add for mode add,
/// torch.index_copy for set. index: any shape; source: broadcast to the shape of
/// gather(x, index, axis). The gradient of gather with respect to x is
/// index_add(zeros, index, upstream, axis). Errors as for scatter.
Tensor index_put(const Tensor& x, const Tensor& index, const Tensor& source,
                 const AxisRef& axis = 0, Name mode = {},
                 const std::source_location& where = std::source_location::current());
Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source,
                 const AxisRef& axis = 0,
                 const std::source_location& where = std::source_location::current());

/// Slices picked by several indices at once: ONNX GatherND. indices: [b.., i.., k]; its last axis
/// holds an index for each of k axes of x after the first `batch_axes`, which both share. y has the
/// sizes [b.., i.., rest of x].
///
/// Errors    a last axis of unknown size; ranks or batch sizes that do not fit    Errc::shape_mismatch
///           batch_axes below 0, or not below both ranks          Errc::bad_argument
///           when run: an index out of range                      Errc::out_of_range
Tensor gather_nd(const Tensor& x, const Tensor& indices, int batch_axes = 0,
                 const std::source_location& where = std::source_location::current());

/// x with slices combined at several indices at once: ONNX ScatterND. source is broadcast to the
/// shape of gather_nd(x, indices). Errors as for gather_nd and scatter.
Tensor scatter_nd(const Tensor& x, const Tensor& indices, const Tensor& source, Name mode = {},
                  const std::source_location& where = std::source_location::current());

}  // namespace tenon
