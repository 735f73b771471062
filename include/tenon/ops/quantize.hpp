#pragma once

#include <tenon/op.hpp>
#include <tenon/quant.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Narrows rows to a block type, as `quantize` of quant.hpp does.
///
/// Input     x: [..., K], rank >= 1; f32
/// Output    y: [..., K] of `dtype`
/// Errors    C1 dtype not a block type                    Errc::bad_attribute
///           C2 x not f32                                 Errc::unsupported_dtype
///           C3 x of rank 0                               Errc::shape_mismatch
///           C4 K not a multiple of the type's block      Errc::bad_shape
///           C5 dtype not is_quantizable                  Errc::unsupported_dtype
struct Quantize {
  static constexpr std::string_view name = "quantize";
  static constexpr int min_inputs = 1, max_inputs = 1;
  DType dtype = DType::q8_0;
  static constexpr auto fields = FieldList{field("dtype", &Quantize::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Quantize);

/// Widens a block type, as `dequantize` of quant.hpp does.
///
/// Input     x: [..., K] of a block type
/// Output    y: [..., K] of `dtype`
/// Errors    C1 dtype not floating                        Errc::bad_attribute
///           C2 x not of a block type                     Errc::unsupported_dtype
/// Numerics  the value in f32, then rounded to `dtype`
struct Dequantize {
  static constexpr std::string_view name = "dequantize";
  static constexpr int min_inputs = 1, max_inputs = 1;
  DType dtype = DType::f32;
  static constexpr auto fields = FieldList{field("dtype", &Dequantize::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Dequantize);

Tensor quantize(const Tensor& x, DType dtype,
                const std::source_location& where = std::source_location::current());
Tensor dequantize(const Tensor& x, DType dtype = DType::f32,
                  const std::source_location& where = std::source_location::current());

}  // namespace tenon
