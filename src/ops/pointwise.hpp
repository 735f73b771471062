// Reference kernels of ops that compute each element on its own, and the integer arithmetic that
// all of them share.
#pragma once

#include <tenon/host_view.hpp>

#include <cstdint>
#include <span>

namespace tenon {

/// The value modulo 2^bits that an integer type can hold: how Tenon's integer arithmetic overflows.
inline std::int64_t wrap_to(DType dtype, std::int64_t value) noexcept {
  switch (dtype) {
    case DType::i8:
      return static_cast<std::int8_t>(value);
    case DType::i16:
      return static_cast<std::int16_t>(value);
    case DType::i32:
      return static_cast<std::int32_t>(value);
    case DType::u8:
      return static_cast<std::uint8_t>(value);
    case DType::u16:
      return static_cast<std::uint16_t>(value);
    case DType::u32:
      return static_cast<std::uint32_t>(value);
    default:
      return value;
  }
}

inline std::int64_t wrapping_add(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_subtract(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_multiply(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

/// out_i = f(in_i) through double.
template <class F>
void map_reals(const HostView& in, const HostView& out, F&& f) {
  const DType from = in.shape.dtype(), to = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(to, out.at(index), f(load_as_double(from, in.at(index))));
  });
}

/// out_i = f(in_i) through int64, modulo 2^bits of the output.
template <class F>
void map_integers(const HostView& in, const HostView& out, F&& f) {
  const DType from = in.shape.dtype(), to = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_int64(to, out.at(index), wrap_to(to, f(load_as_int64(from, in.at(index)))));
  });
}

/// out_i = f(a_i, b_i) for views of the output's sizes.
template <class F>
void zip_reals(const HostView& a, const HostView& b, const HostView& out, F&& f) {
  const DType from_a = a.shape.dtype(), from_b = b.shape.dtype(), to = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(to, out.at(index),
                 f(load_as_double(from_a, a.at(index)), load_as_double(from_b, b.at(index))));
  });
}

template <class F>
void zip_integers(const HostView& a, const HostView& b, const HostView& out, F&& f) {
  const DType from_a = a.shape.dtype(), from_b = b.shape.dtype(), to = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_int64(
        to, out.at(index),
        wrap_to(to, f(load_as_int64(from_a, a.at(index)), load_as_int64(from_b, b.at(index)))));
  });
}

}  // namespace tenon
