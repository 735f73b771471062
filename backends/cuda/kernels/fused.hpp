// What generated kernels are made of (plan/fused.cpp): elements as they are stored, and the pointwise
// ops on them. A value that one op hands to the next is rounded as in memory.
#pragma once

#include "kernels/pointwise.hpp"

#include <cstdint>

namespace tenon::cuda {

template <DType dtype>
struct StoredAs {
  using Type = std::uint8_t;  // u8, bool
};
#define TENON_CUDA_STORED(dtype, Stored) \
  template <>                            \
  struct StoredAs<DType::dtype> {        \
    using Type = Stored;                 \
  };
TENON_CUDA_STORED(f32, float)
TENON_CUDA_STORED(f16, std::uint16_t)
TENON_CUDA_STORED(bf16, std::uint16_t)
TENON_CUDA_STORED(i64, std::int64_t)
TENON_CUDA_STORED(i32, std::int32_t)
TENON_CUDA_STORED(i16, std::int16_t)
TENON_CUDA_STORED(i8, std::int8_t)
TENON_CUDA_STORED(u32, std::uint32_t)
TENON_CUDA_STORED(u16, std::uint16_t)
#undef TENON_CUDA_STORED

/// An element of `dtype`.
template <DType dtype>
struct Element {
  typename StoredAs<dtype>::Type bits;
};

template <DType dtype>
inline constexpr bool is_real_type =
    dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;

template <DType dtype>
TENON_DEVICE Element<dtype> load_element(std::uint64_t address) {
  return *global<const Element<dtype>>(address);
}
template <DType dtype>
TENON_DEVICE void store_element(std::uint64_t address, Element<dtype> element) {
  *global<Element<dtype>>(address) = element;
}

/// In f32 or i64.
template <DType dtype>
TENON_DEVICE auto value_of(Element<dtype> element) {
  if constexpr (dtype == DType::f16) {
    return widen_half(element.bits);
  } else if constexpr (dtype == DType::bf16) {
    return widen_bfloat16(element.bits);
  } else if constexpr (dtype == DType::f32) {
    return element.bits;
  } else {
    return static_cast<std::int64_t>(element.bits);
  }
}

template <DType dtype>
TENON_DEVICE Element<dtype> element_of(float value) {
  static_assert(is_real_type<dtype>);
  if constexpr (dtype == DType::f16) {
    return {narrow_half(value)};
  } else if constexpr (dtype == DType::bf16) {
    return {narrow_bfloat16(value)};
  } else {
    return {value};
  }
}
/// Modulo 2^bits.
template <DType dtype>
TENON_DEVICE Element<dtype> element_of(std::int64_t value) {
  static_assert(!is_real_type<dtype>);
  return {static_cast<typename StoredAs<dtype>::Type>(value)};
}

template <DType to, DType from>
TENON_DEVICE Element<to> cast_element(Element<from> element, std::int64_t low, std::int64_t high) {
  const auto value = value_of(element);
  if constexpr (is_real_type<to> && is_real_type<from>) {
    return element_of<to>(value);
  } else if constexpr (is_real_type<to>) {
    return element_of<to>(float_of_integer(to, value));
  } else {
    return element_of<to>(whole_of(value, to == DType::boolean, low, high));
  }
}

/// What a generated kernel is called with: 64-bit words, of which its text says what each is.
template <int count>
struct FusedArgs {
  std::uint64_t words[count];
};
TENON_DEVICE float real_of(std::uint64_t word) {
  return bits_to_float(static_cast<std::uint32_t>(word));
}

// Before the body of a generated kernel, which sees `thread` and `args`.
#define TENON_FUSED_BODY(count) \
  TENON_DEVICE void run_fused(const Thread& thread, const FusedArgs<count>& args)
#if defined(__CUDACC__)
#define TENON_FUSED_KERNEL(count)                                                         \
  TENON_FUSED_BODY(count);                                                                \
  extern "C" __global__ void tenon_fused(const __grid_constant__ FusedArgs<count> args) { \
    let_next_begin();                                                                     \
    wait_for_earlier();                                                                   \
    run_fused(Thread(), args);                                                            \
  }                                                                                       \
  TENON_FUSED_BODY(count)
#else
#define TENON_FUSED_KERNEL(count)                                       \
  TENON_FUSED_BODY(count);                                              \
  extern "C" void tenon_fused(const Thread& thread, const void* args) { \
    run_fused(thread, *static_cast<const FusedArgs<count>*>(args));     \
  }                                                                     \
  TENON_FUSED_BODY(count)
#endif

}  // namespace tenon::cuda
