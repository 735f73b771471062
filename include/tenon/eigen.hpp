#pragma once

#include <tenon/dtype.hpp>
#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/host_view.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <Eigen/Core>

/// Arrays as Eigen expressions that share the bytes, whatever the strides:
///
///   auto w = as_matrix<float>(weights);           // const: reads
///   as_mutable_vector<float>(y) = w * as_vector<float>(x);
///
/// Maps live no longer than the array. Eigen::half and Eigen::bfloat16 view f16 and bf16.
/// Errors: Errc::bad_type for another dtype, Errc::bad_shape for another rank, Errc::bad_argument
/// for strides or addresses that Eigen cannot map (negative, or no multiple of the element) and for
/// writing to a read-only array.
namespace tenon {

namespace eigen_detail {

template <class T>
constexpr DType dtype() {
  if constexpr (std::is_same_v<T, Eigen::half>) {
    return DType::f16;
  } else if constexpr (std::is_same_v<T, Eigen::bfloat16>) {
    return DType::bf16;
  } else {
    return dtype_of<T>();
  }
}

template <class T>
T* checked_data(const HostView& view, int rank) {
  const auto refuse = [&](Errc code, const std::string& why) {
    throw Error(code, "Eigen", to_string(view.shape) + ": " + why);
  };
  if (view.shape.dtype() != dtype<T>()) {
    refuse(Errc::bad_type, "seen as " + std::string(name(dtype<T>())));
  }
  if (view.shape.rank() != rank) {
    refuse(Errc::bad_shape, "seen as an array of rank " + std::to_string(rank));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    if (view.strides[i] < 0 || view.strides[i] % static_cast<std::int64_t>(sizeof(T)) != 0) {
      refuse(Errc::bad_argument, "a stride of " + std::to_string(view.strides[i]) + " bytes");
    }
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % alignof(T) != 0) {
    refuse(Errc::bad_argument, "the address is not aligned to an element");
  }
  return reinterpret_cast<T*>(view.data);
}

template <class T>
Eigen::Index steps(std::int64_t stride) {
  return static_cast<Eigen::Index>(stride / static_cast<std::int64_t>(sizeof(T)));
}

using Strides2 = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Array = Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

template <class T, class Plain>
auto map_2d(const HostView& view) {
  T* const data = checked_data<T>(view, 2);
  return Eigen::Map<Plain, Eigen::Unaligned, Strides2>(
      data, view.shape[0], view.shape[1],
      Strides2(steps<T>(view.strides[0]), steps<T>(view.strides[1])));
}

template <class T, class Plain>
auto map_1d(const HostView& view) {
  T* const data = checked_data<T>(view, 1);
  return Eigen::Map<Plain, Eigen::Unaligned, Eigen::InnerStride<>>(
      data, view.shape[0], Eigen::InnerStride<>(steps<T>(view.strides[0])));
}

inline const HostView& writable(const HostBuffer& array) {
  if (array.is_read_only()) {
    throw Error(Errc::bad_argument, "Eigen", to_string(array.shape()) + " is read-only");
  }
  return array.view();
}

}  // namespace eigen_detail

/// A rank-2 array as a row-major matrix, or as an array (coefficient-wise arithmetic).
template <class T>
auto as_matrix(const HostView& view) {
  return eigen_detail::map_2d<T, eigen_detail::Matrix<T>>(view);
}
template <class T>
auto as_array(const HostView& view) {
  return eigen_detail::map_2d<T, eigen_detail::Array<T>>(view);
}
/// A rank-1 array as a column vector.
template <class T>
auto as_vector(const HostView& view) {
  return eigen_detail::map_1d<T, eigen_detail::Vector<T>>(view);
}

template <class T>
auto as_matrix(const HostBuffer& array) {
  return eigen_detail::map_2d<T, const eigen_detail::Matrix<T>>(array.view());
}
template <class T>
auto as_array(const HostBuffer& array) {
  return eigen_detail::map_2d<T, const eigen_detail::Array<T>>(array.view());
}
template <class T>
auto as_vector(const HostBuffer& array) {
  return eigen_detail::map_1d<T, const eigen_detail::Vector<T>>(array.view());
}

template <class T>
auto as_mutable_matrix(HostBuffer& array) {
  return as_matrix<T>(eigen_detail::writable(array));
}
template <class T>
auto as_mutable_array(HostBuffer& array) {
  return as_array<T>(eigen_detail::writable(array));
}
template <class T>
auto as_mutable_vector(HostBuffer& array) {
  return as_vector<T>(eigen_detail::writable(array));
}

}  // namespace tenon
