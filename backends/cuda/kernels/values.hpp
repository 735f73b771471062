// Elements of any plain type as float or std::int64_t, and where they are.
#pragma once

#include "kernels/args.hpp"
#include "kernels/thread.hpp"

#include <cstdint>

namespace tenon::cuda {

#if defined(__CUDA_ARCH__)
TENON_DEVICE float widen_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
TENON_DEVICE std::uint16_t narrow_half(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
TENON_DEVICE float widen_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return bits_to_float(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return bits_to_float(sign | float_to_bits(value));
  }
  return bits_to_float(sign | ((magnitude << 13) + (112u << 23)));
}
TENON_DEVICE std::uint16_t narrow_half(float value) {
  const std::uint32_t bits = float_to_bits(value), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 rounds to multiples of 2^-24
    const float lifted = bits_to_float(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (float_to_bits(lifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}
#endif

TENON_DEVICE float widen_bfloat16(std::uint16_t bits) {
  return bits_to_float(static_cast<std::uint32_t>(bits) << 16);
}
TENON_DEVICE std::uint16_t narrow_bfloat16(float value) {
  const std::uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/// Two values as bf16, the first in the lower half.
TENON_DEVICE std::uint32_t narrow_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return narrow_bfloat16(first) | std::uint32_t{narrow_bfloat16(second)} << 16;
#endif
}

TENON_DEVICE void store_words(Address at, const Words4& words) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3])
               : "memory");
#else
  *global<Words4>(at) = words;
#endif
}

/// Eight values as bf16, at a multiple of 16.
TENON_DEVICE void store_bfloat16(Address at, const float (&values)[8]) {
  Words4 words;
  for (int i = 0; i < 4; ++i) words.at[i] = narrow_pair(values[2 * i], values[2 * i + 1]);
  store_words(at, words);
}

TENON_DEVICE float infinity() { return bits_to_float(0x7F800000u); }

template <class C>
TENON_DEVICE C load(DType dtype, Address at) {
  switch (dtype) {
    case DType::f32:
      return static_cast<C>(*global<const float>(at));
    case DType::f16:
      return static_cast<C>(widen_half(*global<const std::uint16_t>(at)));
    case DType::bf16:
      return static_cast<C>(widen_bfloat16(*global<const std::uint16_t>(at)));
    case DType::i64:
      return static_cast<C>(*global<const std::int64_t>(at));
    case DType::i32:
      return static_cast<C>(*global<const std::int32_t>(at));
    case DType::i16:
      return static_cast<C>(*global<const std::int16_t>(at));
    case DType::i8:
      return static_cast<C>(*global<const std::int8_t>(at));
    case DType::u32:
      return static_cast<C>(*global<const std::uint32_t>(at));
    case DType::u16:
      return static_cast<C>(*global<const std::uint16_t>(at));
    default:  // u8, bool
      return static_cast<C>(*global<const std::uint8_t>(at));
  }
}

TENON_DEVICE float load_real(DType dtype, Address at) {
  switch (dtype) {
    case DType::f32:
      return *global<const float>(at);
    case DType::f16:
      return widen_half(*global<const std::uint16_t>(at));
    default:
      return widen_bfloat16(*global<const std::uint16_t>(at));
  }
}

TENON_DEVICE void store_real(DType dtype, Address at, float value) {
  switch (dtype) {
    case DType::f32:
      *global<float>(at) = value;
      return;
    case DType::f16:
      *global<std::uint16_t>(at) = narrow_half(value);
      return;
    default:
      *global<std::uint16_t>(at) = narrow_bfloat16(value);
      return;
  }
}

TENON_DEVICE std::int64_t load_integer(DType dtype, Address at) {
  return load<std::int64_t>(dtype, at);
}

/// What is rounded to `to` as the integer itself. Where f32 would round it before bf16 does, it is
/// rounded to odd (round_to_odd in array/element.hpp), some bits at a time.
TENON_DEVICE float float_of_integer(DType to, std::int64_t value) {
  if (to != DType::bf16) return static_cast<float>(value);
  std::uint64_t rest = static_cast<std::uint64_t>(value);
  float unit = 1;
  if (value < 0) {
    rest = 0 - rest;
    unit = -1;
  }
  for (; rest >> 24 != 0; unit *= 256) rest = rest >> 8 | (rest % 256 != 0 ? 1u : 0u);
  return unit * static_cast<float>(rest);
}

/// Modulo 2^bits.
TENON_DEVICE void store_integer(DType dtype, Address at, std::int64_t value) {
  switch (dtype) {
    case DType::i64:
      *global<std::int64_t>(at) = value;
      return;
    case DType::i32:
    case DType::u32:
      *global<std::uint32_t>(at) = static_cast<std::uint32_t>(value);
      return;
    case DType::i16:
    case DType::u16:
      *global<std::uint16_t>(at) = static_cast<std::uint16_t>(value);
      return;
    default:
      *global<std::uint8_t>(at) = static_cast<std::uint8_t>(value);
      return;
  }
}

TENON_DEVICE float load_as(float, const Array& array, std::int64_t offset) {
  return load_real(array.dtype, array.data + static_cast<Address>(offset));
}
TENON_DEVICE std::int64_t load_as(std::int64_t, const Array& array, std::int64_t offset) {
  return load_integer(array.dtype, array.data + static_cast<Address>(offset));
}
TENON_DEVICE void store_as(float value, const Array& array, std::int64_t offset) {
  store_real(array.dtype, array.data + static_cast<Address>(offset), value);
}
TENON_DEVICE void store_as(std::int64_t value, const Array& array, std::int64_t offset) {
  store_integer(array.dtype, array.data + static_cast<Address>(offset), value);
}

/// What is taken off codes; 0 where there is none.
TENON_DEVICE std::int64_t zero_point(const Array& zero, std::int64_t offset) {
  return zero.data == 0 ? 0 : load_as(std::int64_t(), zero, offset);
}

/// The index along each axis of element `i`; 0 along axes that there are not. Loops over all of
/// `max_axes` are unrolled, so that indices stay in registers.
struct Index {
  std::uint32_t at[max_axes];
};
TENON_DEVICE Index index_of(const Axes& axes, std::uint32_t i) {
  Index index;
  for (int axis = max_axes - 1; axis >= 0; --axis) {
    index.at[axis] = 0;
    if (axis >= axes.rank) continue;
    index.at[axis] = axis == 0 ? i : i % axes.sizes[axis];
    if (axis > 0) i /= axes.sizes[axis];
  }
  return index;
}
TENON_DEVICE std::int64_t offset_of(const Index& index, const Steps& steps, int rank) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < max_axes; ++axis) {
    if (axis < rank) offset += index.at[axis] * steps.bytes[axis];
  }
  return offset;
}

TENON_DEVICE void copy_bytes(Address to, Address from, std::uint32_t bytes) {
  switch (bytes) {
    case 4:
      *global<std::uint32_t>(to) = *global<const std::uint32_t>(from);
      return;
    case 2:
      *global<std::uint16_t>(to) = *global<const std::uint16_t>(from);
      return;
    case 8:
      if ((to | from) % 8 == 0) {
        *global<std::uint64_t>(to) = *global<const std::uint64_t>(from);
      } else {  // c64 that is a view of f32
        global<std::uint32_t>(to)[0] = global<const std::uint32_t>(from)[0];
        global<std::uint32_t>(to)[1] = global<const std::uint32_t>(from)[1];
      }
      return;
    default:
      for (std::uint32_t i = 0; i < bytes; ++i) {
        *global<std::uint8_t>(to + i) = *global<const std::uint8_t>(from + i);
      }
  }
}

/// Keeps the first error of a run.
TENON_DEVICE void report(const Reporter& reporter, std::int64_t value, std::int64_t limit) {
  Status* const status = global<Status>(reporter.status);
  if (compare_and_swap(&status->claimed, 0, 1) != 0) return;
  status->step = reporter.step;
  status->value = value;
  status->limit = limit;
}

}  // namespace tenon::cuda
