#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The same elements, in row-major order, under other sizes. At most one size may be -1: it is
/// computed from the others. Prefer split_axis and merge_axes: they leave other axes as they are,
/// so that the sizes of those may stay symbolic.
///
/// Inputs    x: any shape, any type; like: optional; only its shape counts
/// Output    y: `dims`, or the sizes of `like`, which may be symbolic; dtype of x, no tags; a view
///           where x's strides allow it. If x has symbolic sizes, -1 becomes x's symbol where
///           exactly that remains, and unknown_dim otherwise
/// Errors    C1 a size below -1, or two of -1                       Errc::bad_shape
///           C2 element counts differ                               Errc::bad_shape
///           C3 -1 beside a size of 0 (0 elements fit any size)     Errc::bad_shape
///           C4 the innermost size of a block type changes          Errc::bad_shape
///           C5 both dims and `like`                                Errc::bad_attribute
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr int min_inputs = 1, max_inputs = 2;
  static constexpr OpTraits traits{.view = true};
  IntList dims{};
  static constexpr auto fields = FieldList{field("dims", &Reshape::dims)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const;
};
TENON_DECLARE_OP(Reshape);

/// `reshape(x, {2, -1})`, or with tags `reshape(x, {{"b", 2}, {"d", -1}})`.
Tensor reshape(const Tensor& x, std::initializer_list<Axis> dims,
               const std::source_location& where = std::source_location::current());
Tensor reshape(const Tensor& x, std::span<const std::int64_t> dims,
               const std::source_location& where = std::source_location::current());

/// x in the sizes of `like`, which may be symbolic and has as many elements.
Tensor reshape_like(const Tensor& x, const Tensor& like,
                    const std::source_location& where = std::source_location::current());

}  // namespace tenon
