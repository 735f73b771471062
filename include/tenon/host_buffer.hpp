#pragma once

#include <tenon/device.hpp>
#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon {

namespace io {
class InputFile;
}

class Buffer;

/// An n-d array in CPU memory. A handle: copies share the bytes, which are owned, borrowed or pages
/// of a file.
class HostBuffer {
 public:
  enum class Ownership {
    owned,     ///< freed with the last handle
    borrowed,  ///< the caller keeps them alive
    mapped,    ///< read-only pages of a file, unmapped with the last handle
  };

  /// No array: is_empty() is true, and members that need an array throw Errc::call_order.
  HostBuffer() = default;

  /// New memory, 64-byte aligned, set to zero. Errc::out_of_memory.
  static HostBuffer zeros(const Shape& shape);
  /// As zeros(), but uninitialised.
  static HostBuffer uninitialized(const Shape& shape);

  /// Wraps memory that the caller keeps alive; `strides` in bytes, of any sign. Errc::bad_argument
  /// for a null pointer with elements, and for block types whose innermost axis is not dense;
  /// Errc::out_of_range for strides that leave the address space.
  static HostBuffer borrow(void* bytes, const Shape& shape);
  static HostBuffer borrow(void* bytes, const Shape& shape, const Strides& strides);

  /// Wraps read-only bytes that `keeper` keeps alive, such as those of a mapped file.
  static HostBuffer mapped(const void* bytes, const Shape& shape,
                           std::shared_ptr<const void> keeper);
  /// The bytes of a mapped file from `offset` on. Errc::out_of_range when they exceed the file.
  static HostBuffer mapped(std::shared_ptr<const io::InputFile> file, std::uint64_t offset,
                           const Shape& shape);

  /// A copy of `values`, one per element, row-major. Errc::shape_mismatch unless dtype_of<T>() is
  /// the shape's dtype and their number the shape's.
  template <class T>
  static HostBuffer of(const Shape& shape, std::span<const T> values) {
    return copy_of(shape, dtype_of<T>(), values.data(), values.size());
  }
  template <class T>
  static HostBuffer of(const Shape& shape, std::initializer_list<T> values) {
    return copy_of(shape, dtype_of<T>(), values.begin(), values.size());
  }

  bool is_empty() const noexcept { return storage_ == nullptr; }
  const Shape& shape() const noexcept { return view_.shape; }
  const Strides& strides() const noexcept { return view_.strides; }
  Ownership ownership() const noexcept;
  bool is_contiguous() const noexcept { return view_.is_contiguous(); }
  bool is_read_only() const noexcept { return ownership() == Ownership::mapped; }

  /// Advises the system to drop the pages of an array from a mapped file; a later read loads them
  /// again. Does nothing for other arrays.
  void release_pages() const noexcept;

  /// The array as kernels take it. Writing through the view of a mapped array is undefined
  /// behaviour.
  const HostView& view() const noexcept { return view_; }
  const std::byte* bytes() const noexcept { return view_.data; }

  /// The elements, densely in row-major order. Errc::bad_type when T is another dtype,
  /// Errc::bad_argument when the array is not contiguous.
  template <class T>
  std::span<const T> values() const {
    return {static_cast<const T*>(checked_values(dtype_of<T>())),
            static_cast<std::size_t>(shape().elements())};
  }
  /// As values(); Errc::bad_argument when the array is read-only.
  template <class T>
  std::span<T> mutable_values() {
    return {static_cast<T*>(checked_mutable_values(dtype_of<T>())),
            static_cast<std::size_t>(shape().elements())};
  }

  /// One element of a plain dtype as double; one index per axis (Errc::out_of_range).
  double at(std::initializer_list<std::int64_t> index) const;

  // Views that share the bytes. Errc::bad_argument where a view would cut blocks, or move them from
  // the innermost axis.

  /// The same elements under other sizes, without tags and layout. Errc::bad_shape for another
  /// number of elements, Errc::bad_argument for an array that is not contiguous.
  HostBuffer reshape(std::initializer_list<std::int64_t> dims) const {
    return reshape(std::span<const std::int64_t>(dims.begin(), dims.size()));
  }
  HostBuffer reshape(std::span<const std::int64_t> dims) const;
  /// Axis i of the result is axis order[i]; Errc::bad_argument unless `order` names each axis once.
  HostBuffer permute(std::span<const int> order) const;
  /// Complex numbers as f32 with an innermost axis of 2, real and imaginary parts.
  /// Errc::unsupported_dtype for other types, Errc::bad_shape where that is an axis too many.
  HostBuffer view_as_real() const;
  /// Elements [begin, end) of one axis (Errc::out_of_range).
  HostBuffer slice(const AxisRef& axis, std::int64_t begin, std::int64_t end) const;
  /// The array with other tags or layout. Errc::shape_mismatch unless sizes and dtype are equal.
  HostBuffer with_shape(const Shape& same_dims) const;

  /// A dense owned copy.
  HostBuffer contiguous() const;
  /// A dense owned copy, converted element by element. To a floating type: rounded to nearest, ties
  /// to even. To an integer type: as by store_double and store_int64. To bool: x != 0. Block types
  /// dequantise to floating types, and f32 quantises to block types; other conversions of block
  /// types throw Errc::unsupported_dtype.
  HostBuffer to(DType dtype) const;

  /// The array in the device's default region. Shares the bytes where that is CPU memory and the
  /// array is contiguous; copies otherwise.
  Buffer to_device(const DevicePtr& device) const;

 private:
  struct Storage;
  struct KeepStorage;
  HostBuffer(std::shared_ptr<const Storage> storage, const HostView& view);
  static HostBuffer allocate(const Shape& shape, bool zeroed);
  static HostBuffer copy_of(const Shape& shape, DType dtype, const void* values, std::size_t count);
  void require_array() const;
  const void* checked_values(DType dtype) const;
  void* checked_mutable_values(DType dtype);

  std::shared_ptr<const Storage> storage_;
  HostView view_;

  friend class Buffer;
};

/// Numpy-like text: nested brackets, at most `edge` items at each end of a long axis.
std::string to_string(const HostBuffer& array, int edge = 3);
std::ostream& operator<<(std::ostream& out, const HostBuffer& array);

}  // namespace tenon
