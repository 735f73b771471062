#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// One slice along the first axis, with an index that is computed: y = x[index].
///
/// Inputs    x: [L, ...], rank >= 1, any dtype (of a block type: rank >= 2)
///           index: i32[] or i64[]
/// Output    y: [...], x without its first axis
/// Errors    C1 x of rank 0, or of rank 1 and a block type    Errc::shape_mismatch
///           C2 index not a scalar                            Errc::shape_mismatch
///           C3 index neither i32 nor i64                     Errc::unsupported_dtype
///           when run: index outside [0, L)                   Errc::out_of_range
struct Select {
  static constexpr std::string_view name = "select";
  static constexpr int min_inputs = 2, max_inputs = 2;
  /// Where the index is a loop's counter, the result is a view.
  static constexpr OpTraits traits{.selects = true, .picked_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Select);

/// One slice along the first axis replaced: x, but for x[index] = y. The inverse of select.
///
/// Inputs    x: [L, ...], rank >= 1, any plain type; consumed: the output takes over its storage
///           index: i32[] or i64[]
///           y: x without its first axis, of x's dtype
/// Output    x, of the same type and tags
/// Errors    C1 x of rank 0, or y without the sizes of a slice    Errc::shape_mismatch
///           C2 index not a scalar                                Errc::shape_mismatch
///           C3 x of a block type, or index neither i32 nor i64   Errc::unsupported_dtype
///           C4 x and y differ in dtype                           Errc::shape_mismatch
///           when run: index outside [0, L)                       Errc::out_of_range, x untouched
struct UpdateSlice {
  static constexpr std::string_view name = "update_slice";
  static constexpr int min_inputs = 3, max_inputs = 3;
  static constexpr OpTraits traits{.updates_input = 0};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  /// `out` either is x's own storage or receives a copy of it first.
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(UpdateSlice);

Tensor update_slice(const Tensor& x, const Tensor& index, const Tensor& y,
                    const std::source_location& where = std::source_location::current());

Tensor select(const Tensor& x, const Tensor& index,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
