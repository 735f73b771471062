#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Looks up rows of a table: y[..., :] = table[ids[...], :], decoded to `dtype`.
///
/// Inputs    ids: any rank; i32 or i64
///           table: [V, D]; a floating or a block type
/// Output    y: [..., D] of `dtype`; tags of ids, and of the table's second axis
/// Errors    C1 ids neither i32 nor i64; table neither floating nor of a block type
///                                                     Errc::unsupported_dtype
///           C2 dtype not floating                     Errc::bad_attribute
///           C3 table not of rank 2                    Errc::shape_mismatch
///           C4 the result's rank exceeds 8            Errc::bad_shape
///           C5 two axes of the result with one tag    Errc::shape_mismatch
///           when run: an id outside [0, V)            Errc::out_of_range
struct Embedding {
  static constexpr std::string_view name = "embedding";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.picked_inputs = 2};
  DType dtype = DType::f32;
  static constexpr auto fields = FieldList{field("dtype", &Embedding::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Embedding);

Tensor embedding(const Tensor& ids, const Tensor& table, DType dtype = DType::f32,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon
