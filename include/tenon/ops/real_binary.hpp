#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// What functions of two real operands share: y_i = f(a_i, b_i) with numpy broadcasting.
///
/// Inputs    a, b: same dtype; f16, bf16, f32 or f64
/// Output    y: the broadcast shape, same dtype; tags as of BinaryOp; may share the buffer of an
///           input of its shape
/// Errors    C1 dtypes differ                    Errc::shape_mismatch
///           C2 dtype not floating               Errc::unsupported_dtype
///           C3 sizes or tags of an axis differ  Errc::shape_mismatch
/// Numerics  reference in f64, rounded once
template <class Op>
struct RealBinaryOp {
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 3};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// The angle of the point (b, a) in [-pi, pi], as C's atan2(a, b).
struct Atan2 : RealBinaryOp<Atan2> {
  static constexpr std::string_view name = "atan2";
  static double of(double a, double b) noexcept;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Atan2);

/// sqrt(a^2 + b^2) without overflow on the way. The gradient at (0, 0) is 0.
struct Hypot : RealBinaryOp<Hypot> {
  static constexpr std::string_view name = "hypot";
  static double of(double a, double b) noexcept;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Hypot);

Tensor atan2(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());
Tensor hypot(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());

// Composed element-wise; operands broadcast as for BinaryOp.

/// floor(a / b) for integers, exactly; by zero gives 0, and the most negative value by -1 itself.
/// For floating types as numpy's floor_divide, with the sign of a / b where it is 0; by zero it is NaN.
Tensor floor_div(const Tensor& a, const Tensor& b,
                 const std::source_location& where = std::source_location::current());

/// a * log(b), and 0 where a is 0, unless b is NaN.
Tensor xlogy(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());

/// a + weight * (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight,
            const std::source_location& where = std::source_location::current());
Tensor lerp(const Tensor& a, const Tensor& b, double weight,
            const std::source_location& where = std::source_location::current());

/// |a - b| <= absolute + relative * |b|, as numpy's: infinities of one sign are close, and NaNs
/// only where `equal_nan` says so. Gives bool; floating operands.
Tensor isclose(const Tensor& a, const Tensor& b, double relative = 1e-5, double absolute = 1e-8,
               bool equal_nan = false,
               const std::source_location& where = std::source_location::current());

/// NaN to `nan`, infinities to the largest and smallest finite number of x's dtype.
Tensor nan_to_num(const Tensor& x, double nan = 0,
                  const std::source_location& where = std::source_location::current());
/// The same with these numbers in place of infinities.
Tensor nan_to_num(const Tensor& x, double nan, double positive, double negative,
                  const std::source_location& where = std::source_location::current());

}  // namespace tenon
