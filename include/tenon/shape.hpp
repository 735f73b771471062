#pragma once

#include <tenon/dtype.hpp>
#include <tenon/name.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tenon {

inline constexpr int max_rank = 8;

/// A symbolic dimension, `symbol("S")`: its size is known only when the program is lowered. The
/// value is negative, so that it cannot be mistaken for a size; check is_static() before
/// arithmetic. Errc::bad_shape unless the name is an identifier of at most 255 letters, not _ and no keyword of Python, as
/// programs' texts have it.
std::int64_t symbol(Name name);

/// A dimension that is known neither as a size nor as a symbol.
inline constexpr std::int64_t unknown_dim = -(std::int64_t{1} << 62) - 1;

constexpr bool is_static(std::int64_t dim) noexcept { return dim >= 0; }
bool is_symbol(std::int64_t dim) noexcept;
Name symbol_name(std::int64_t dim) noexcept;  ///< `is_symbol(dim)` must hold

/// One axis as a shape's author writes it: `784`, or with a tag `{"b", 8}`.
struct Axis {
  template <std::integral Int>
  Axis(Int axis_size)
      : size(static_cast<std::int64_t>(axis_size)) {}  // NOLINT(google-explicit-constructor)
  Axis(Name axis_tag, std::int64_t axis_size) : size(axis_size), tag(axis_tag) {}

  std::int64_t size;
  Name tag;
};

/// An axis as a caller refers to it: by index (negative counts from the end) or by tag.
struct AxisRef {
  template <std::integral Int>
  AxisRef(Int axis_index) : index(axis_index) {}    // NOLINT(google-explicit-constructor)
  AxisRef(const char* axis_tag) : tag(axis_tag) {}  // NOLINT(google-explicit-constructor)
  AxisRef(Name axis_tag) : tag(axis_tag) {}         // NOLINT(google-explicit-constructor)

  std::int64_t index = 0;
  Name tag;
};

/// Metadata of an n-d array: sizes (row-major, outermost first), element type, optional axis tags
/// and an optional layout name. Owns and points to nothing. Rank at most 8, stored inline.
///
/// Errors of the constructors: a size that is negative and no symbol, or a rank above 8,
/// Errc::bad_shape; a tag used twice, Errc::bad_shape; the innermost size of a block type not a
/// multiple of its block, Errc::bad_shape; a byte count above 2^63 - 1, Errc::shape_overflow.
class Shape {
 public:
  Shape() noexcept = default;  ///< an f32 scalar
  Shape(std::initializer_list<Axis> axes, DType dtype);
  Shape(std::span<const Axis> axes, DType dtype);
  Shape(std::span<const std::int64_t> dims, DType dtype);

  int rank() const noexcept { return rank_; }
  DType dtype() const noexcept { return dtype_; }
  std::span<const std::int64_t> dims() const noexcept {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  /// Size of axis `index`, which must be in [0, rank).
  std::int64_t operator[](int index) const noexcept {
    return dims_[static_cast<std::size_t>(index)];
  }
  Name tag(int index) const noexcept { return tags_[static_cast<std::size_t>(index)]; }
  bool has_tags() const noexcept;
  Name layout() const noexcept { return layout_; }

  /// Index of an axis, in [0, rank). Errc::axis_out_of_range, naming the shape, when there is none.
  int axis(const AxisRef& ref) const;
  /// Size of an axis; errors as for axis().
  std::int64_t dim(const AxisRef& ref) const { return (*this)[axis(ref)]; }

  /// Whether every size is known.
  bool is_static() const noexcept;

  /// Number of elements (1 for a scalar), and size in bytes of a dense row-major array.
  /// Errc::bad_shape unless the shape is static.
  std::int64_t elements() const;
  std::int64_t bytes() const;

  Shape with_dtype(DType dtype) const;
  Shape with_dim(int index, std::int64_t size) const;
  Shape with_tag(int index, Name tag) const;
  Shape with_tags(std::span<const Name> tags) const;  ///< one per axis
  Shape with_layout(Name layout) const noexcept;
  Shape without_tags() const noexcept;
  Shape without_axis(int index) const;
  Shape with_axis(int index, const Axis& axis) const;  ///< inserted before `index`

  Axis axis_at(int index) const noexcept { return {tag(index), (*this)[index]}; }

  /// Compares sizes and element type; tags and layout are ignored.
  friend bool operator==(const Shape& a, const Shape& b) noexcept;

 private:
  void check() const;

  std::array<std::int64_t, max_rank> dims_{};
  std::array<Name, max_rank> tags_{};
  Name layout_;
  std::int8_t rank_ = 0;
  DType dtype_ = DType::f32;
};

/// "f32[8, 64]", with tags "f32[b=8, d=64]", with symbols "f32[S, 64]", unknown sizes as "_".
std::string to_string(const Shape& shape);

/// a * b and a + b of non-negative numbers; Errc::shape_overflow above 2^63 - 1.
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);
std::int64_t checked_add(std::int64_t a, std::int64_t b);

}  // namespace tenon
