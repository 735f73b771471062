#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// An array of one value.
///
/// Output    y: `dims`, `dtype`
/// Errors    C1 a negative size                                       Errc::bad_shape
///           C2 a block type                                          Errc::unsupported_dtype
///           C3 an integer type or bool that cannot hold `value`      Errc::bad_attribute
/// Numerics  `value` is rounded to the dtype; of c64 it is the real part; integers beyond 2^53 need
///           iota
struct Full {
  static constexpr std::string_view name = "full";
  static constexpr int min_inputs = 0, max_inputs = 0;
  static constexpr OpTraits traits{};
  double value = 0;
  IntList dims{};
  DType dtype = f32;
  static constexpr auto fields = FieldList{field("value", &Full::value), field("dims", &Full::dims),
                                           field("dtype", &Full::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Full);

/// A vector of evenly spaced integers: y_i = start + i * step. Its length is `size`, or that of an
/// axis of x, which may be symbolic.
///
/// Input     x: optional; only its shape counts
/// Output    y: [size], or [axis `axis` of x] with its tag; `dtype`
/// Errors    C1 a negative size                                       Errc::bad_shape
///           C2 dtype neither integer nor floating                    Errc::unsupported_dtype
///           C3 an integer type that cannot hold every element        Errc::bad_attribute
///              (checked as soon as the size is known)
///           C4 with x: axis outside [0, rank)                        Errc::axis_out_of_range
///           C5 both x and a size, or an axis without x               Errc::bad_attribute
/// Numerics  integers are exact; floating types round each element
struct Iota {
  static constexpr std::string_view name = "iota";
  static constexpr int min_inputs = 0, max_inputs = 1;
  static constexpr OpTraits traits{};
  std::int64_t size = 0;
  std::int64_t axis = 0;
  std::int64_t start = 0;
  std::int64_t step = 1;
  DType dtype = i32;
  static constexpr auto fields = FieldList{field("size", &Iota::size), field("axis", &Iota::axis),
                                           field("start", &Iota::start), field("step", &Iota::step),
                                           field("dtype", &Iota::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Iota);

/// Recorded in the graph of the active Graph::Recording.
Tensor full(double value, const Shape& shape,
            const std::source_location& where = std::source_location::current());
Tensor iota(std::int64_t size, DType dtype = i32, std::int64_t start = 0, std::int64_t step = 1,
            const std::source_location& where = std::source_location::current());

/// An iota as long as an axis of x, in x's graph: `iota(x, "seq")` numbers the positions of a
/// sequence whose length is known only when the program runs.
Tensor iota(const Tensor& x, const AxisRef& axis, DType dtype = i32, std::int64_t start = 0,
            std::int64_t step = 1,
            const std::source_location& where = std::source_location::current());

/// A scalar of x's dtype, in x's graph: how operators record the 1 of `x + 1`.
Tensor scalar_like(const Tensor& x, double value,
                   const std::source_location& where = std::source_location::current());

/// An array filled with `value`, of x's shape (sizes may be symbolic), dtype and tags, in x's graph.
Tensor full_like(const Tensor& x, double value,
                 const std::source_location& where = std::source_location::current());

/// y[..., c] = (ids[...] == c) along a new last axis of size `classes`: i32[b] gives [b, classes].
/// An id outside [0, classes) gives a row of zeros.
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = f32,
               const std::source_location& where = std::source_location::current());

}  // namespace tenon
