#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// y_i = c_i ? a_i : b_i with numpy broadcasting of all three.
///
/// Inputs    c: bool; a, b: same dtype, any plain type
/// Output    y: the broadcast shape, dtype of a; may share the buffer of an a or b of its shape
/// Errors    C1 c not bool                         Errc::unsupported_dtype
///           C2 dtypes of a and b differ           Errc::shape_mismatch
///           C3 dtype of a is a block type         Errc::unsupported_dtype
///           C4 sizes or tags of an axis differ    Errc::shape_mismatch
/// Numerics  copies bits
struct Where {
  static constexpr std::string_view name = "where";
  static constexpr int min_inputs = 3, max_inputs = 3;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 6};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Where);

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b,
             const std::source_location& line = std::source_location::current());

}  // namespace tenon
