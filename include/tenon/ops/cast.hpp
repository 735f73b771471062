#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The elements as another plain type, by the rules of HostBuffer::to:
///
///   floating to integer    truncates and saturates; NaN gives 0
///   integer to integer     saturates
///   any to floating        rounds to nearest, ties to even
///   any to bool            x != 0
///
/// Input     x: any plain type
/// Output    y: shape and tags of x, `dtype`
/// Errors    C1 dtype of x is a block type (see dequantize)    Errc::unsupported_dtype
///           C2 `dtype` is a block type (see quantize)         Errc::unsupported_dtype
///           C3 x is complex (see real)                        Errc::unsupported_dtype
///           C4 `dtype` is complex; the builder takes it       Errc::unsupported_dtype
struct Cast {
  static constexpr std::string_view name = "cast";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true};
  DType dtype = f32;
  static constexpr auto fields = FieldList{field("dtype", &Cast::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Cast);

/// x itself when it has that dtype.
Tensor cast(const Tensor& x, DType dtype,
            const std::source_location& where = std::source_location::current());

}  // namespace tenon
