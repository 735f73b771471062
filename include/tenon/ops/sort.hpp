#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The elements along an axis in ascending order, or descending. A NaN counts as larger than any
/// number.
///
/// Input     x: rank >= 1; any floating or integer type
/// Output    y: type and tags of x
/// Errors    C1 axis outside [0, rank)                       Errc::axis_out_of_range
///           C2 dtype of x neither floating nor integer      Errc::unsupported_dtype
///           C3 an axis of more than 2^31 elements           Errc::limit_exceeded
/// Numerics  -0 and 0 are equal; the sign of a zero and the bits of a NaN are not specified
/// Gradient  through argsort
struct Sort {
  static constexpr std::string_view name = "sort";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  std::int64_t axis = 0;
  bool descending = false;
  static constexpr auto fields =
      FieldList{field("axis", &Sort::axis), field("descending", &Sort::descending)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Sort);

/// The indices that sort an axis: y_i is the place of the element that sort puts at i. Of equal
/// elements the lower index comes first, also in descending order.
///
/// Input, errors: as for sort
/// Output    y: sizes and tags of x; i32
struct Argsort {
  static constexpr std::string_view name = "argsort";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  std::int64_t axis = 0;
  bool descending = false;
  static constexpr auto fields =
      FieldList{field("axis", &Argsort::axis), field("descending", &Argsort::descending)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Argsort);

/// Where values would have to be inserted into a sorted array: numpy.searchsorted. y is the number
/// of elements of `sorted` below the value; with `right`, of those not above it. A NaN counts as
/// larger than any number, and as equal to another.
///
/// Inputs    sorted: rank >= 1, ascending along its last axis; values: dtype of sorted, and its sizes
///           but for the last axis, or, where sorted has rank 1, any shape; any floating or integer
///           type
/// Output    y: sizes and tags of values; i32
/// Errors    C1 sorted without axes                                       Errc::bad_shape
///           C2 dtype neither floating nor integer                        Errc::unsupported_dtype
///           C3 dtypes, ranks or sizes that do not fit                    Errc::shape_mismatch
///           C4 a last axis of 2^31 elements or more                      Errc::limit_exceeded
/// Numerics  where sorted is not ascending, some number in [0, size of the last axis]
struct Searchsorted {
  static constexpr std::string_view name = "searchsorted";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.picked_inputs = 1};
  bool right = false;
  static constexpr auto fields = FieldList{field("right", &Searchsorted::right)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Searchsorted);

Tensor sort(const Tensor& x, const AxisRef& axis = -1, bool descending = false,
            const std::source_location& where = std::source_location::current());
Tensor argsort(const Tensor& x, const AxisRef& axis = -1, bool descending = false,
               const std::source_location& where = std::source_location::current());

struct SortResult {
  Tensor values;   ///< of x's dtype; of equal elements in their order
  Tensor indices;  ///< i32
};

/// Both, of one argsort: torch.sort(stable=True).
SortResult sort_with_indices(const Tensor& x, const AxisRef& axis = -1, bool descending = false,
                             const std::source_location& where = std::source_location::current());

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false,
                    const std::source_location& where = std::source_location::current());

struct UniqueResult {
  Tensor values;   ///< [capacity]: the distinct elements, ascending, then `fill`
  Tensor count;    ///< i64[]: how many there are, also if more than `capacity`
  Tensor inverse;  ///< i64, x's sizes: where each element of x stands among them
  Tensor counts;   ///< i64[capacity]: how often each occurs, then 0
};

/// The distinct elements of x, the first `capacity` of them: numpy.unique, whose result has a size
/// that depends on data. All NaN count as one. x has floating or integer elements, and inverse
/// refers to numbers beyond `capacity` where there are more. What is not used is not computed.
/// Errc::bad_argument for a capacity below 0.
UniqueResult unique(const Tensor& x, std::int64_t capacity, double fill = 0,
                    const std::source_location& where = std::source_location::current());

}  // namespace tenon
