#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The same bits as another type. Several elements of a narrower type are an axis, the innermost
/// one: c64[3] is f32[3, 2], real and imaginary parts.
///
/// Input     x: any plain type but bool
/// Output    y: shape and tags of x, with an innermost axis more where `dtype` is narrower, and
///           without that axis where it is wider; a view, but for a wider type other than c64 and
///           for c64 of parts that are not dense
/// Errors    C1 x or `dtype` a block type or bool                   Errc::unsupported_dtype
///           C2 `dtype` is wider, and x's innermost axis is not of as many elements as make one
///                                                                  Errc::shape_mismatch
///           C3 `dtype` is narrower, and y's rank would be above 8  Errc::bad_shape
struct Bitcast {
  static constexpr std::string_view name = "bitcast";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  DType dtype = f32;
  static constexpr auto fields = FieldList{field("dtype", &Bitcast::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Bitcast);

/// x itself when it has that dtype.
Tensor bitcast(const Tensor& x, DType dtype,
               const std::source_location& where = std::source_location::current());

}  // namespace tenon
