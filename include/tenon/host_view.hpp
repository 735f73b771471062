#pragma once

#include <tenon/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon {

/// Bytes between adjacent elements of each axis; for the innermost axis of a block type, between
/// adjacent blocks.
using Strides = std::array<std::int64_t, max_rank>;

/// Strides of a dense row-major array of this shape; Errc::bad_shape unless it is static,
/// Errc::shape_overflow where an empty array of blocks would need strides above 2^63 - 1.
Strides dense_strides(const Shape& shape);

/// Whether elements with these strides are dense and in row-major order; strides of axes of size 1
/// are ignored.
bool is_contiguous(const Shape& shape, const Strides& strides) noexcept;

/// A non-owning view of an n-d array in CPU memory: what kernels read and write.
struct HostView {
  std::byte* data = nullptr;
  Shape shape;
  Strides strides{};

  HostView() = default;
  HostView(void* bytes, const Shape& dense_shape)
      : data(static_cast<std::byte*>(bytes)),
        shape(dense_shape),
        strides(dense_strides(dense_shape)) {}
  HostView(void* bytes, const Shape& view_shape, const Strides& view_strides)
      : data(static_cast<std::byte*>(bytes)), shape(view_shape), strides(view_strides) {}

  bool is_contiguous() const noexcept { return tenon::is_contiguous(shape, strides); }

  /// Address of an element of a plain type; one index per axis, each in range.
  std::byte* at(std::span<const std::int64_t> index) const noexcept;

  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data);
  }
};

/// Reads one element of a plain type as double / int64; bool reads as 0 or 1, a complex number as
/// its real part.
double load_as_double(DType dtype, const std::byte* element) noexcept;
std::int64_t load_as_int64(DType dtype, const std::byte* element) noexcept;

/// Writes one element of a plain type. To an integer type, a double is truncated and saturated (NaN
/// becomes 0) and an int64 saturated. Floating types round once, to nearest, ties to even. A bool
/// is x != 0, true for NaN.
void store_double(DType dtype, std::byte* element, double value) noexcept;
void store_int64(DType dtype, std::byte* element, std::int64_t value) noexcept;

/// Calls `visit(index)` for every index of `shape` in row-major order; `index` spans rank() values.
template <class Visit>
void for_each_index(const Shape& shape, Visit&& visit) {
  std::array<std::int64_t, max_rank> index{};
  const int rank = shape.rank();
  for (int i = 0; i < rank; ++i) {
    if (shape[i] == 0) return;
  }
  const std::span<const std::int64_t> view(index.data(), static_cast<std::size_t>(rank));
  while (true) {
    visit(view);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      auto& i = index[static_cast<std::size_t>(axis)];
      if (++i < shape[axis]) break;
      i = 0;
    }
    if (axis < 0) return;
  }
}

/// Copies elements between views of equal shape and dtype and any strides. The innermost axis of a
/// block type must be dense. The views must not overlap.
void copy_elements(const HostView& from, const HostView& to) noexcept;

}  // namespace tenon
