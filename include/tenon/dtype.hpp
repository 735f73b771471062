#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon {

/// Element type of an array.
///
/// Block types store `block_size` consecutive elements of the innermost axis in `block_bytes` bytes
/// (layouts: GGUF specification and ggml's block definitions). `q8_k` is the type of quantised
/// activations in ggml; files do not carry it.
enum class DType : std::uint8_t {
  boolean,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  f16,
  bf16,
  f32,
  f64,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,
  iq4_nl,
  iq4_xs,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  tq1_0,
  tq2_0,
  mxfp4,
  u64,
  f8_e4m3,
  f8_e5m2,
  c64,
  nvfp4,
  q1_0,
  q2_0,
};

inline constexpr int dtype_count = static_cast<int>(DType::q2_0) + 1;

/// `stored`: types that are read, written, moved and converted, but that no kernel computes with.
/// Builders record arithmetic of c64 and u64 as ops of other types (tenon/ops/bitcast.hpp); from
/// 8-bit floating point, `cast` leads to others. `object`: classes (tenon/object.hpp).
enum class DTypeKind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  block,
  stored,
  object
};

struct DTypeFacts {
  std::string_view name;  ///< "f32", "q4_k", "bool"
  DTypeKind kind;
  std::int32_t block_size;   ///< elements per block; 1 for plain types
  std::int32_t block_bytes;  ///< bytes per block
};

/// Properties of a type; `dtype` must be one of the enumerators or a registered class.
const DTypeFacts& facts(DType dtype) noexcept;

inline std::string_view name(DType dtype) noexcept { return facts(dtype).name; }
inline std::int64_t block_size(DType dtype) noexcept { return facts(dtype).block_size; }
inline std::int64_t block_bytes(DType dtype) noexcept { return facts(dtype).block_bytes; }
inline bool is_block(DType dtype) noexcept { return facts(dtype).kind == DTypeKind::block; }
inline bool is_floating(DType dtype) noexcept { return facts(dtype).kind == DTypeKind::floating; }
inline bool is_integer(DType dtype) noexcept {
  return facts(dtype).kind == DTypeKind::signed_integer ||
         facts(dtype).kind == DTypeKind::unsigned_integer;
}

inline bool is_stored(DType dtype) noexcept { return facts(dtype).kind == DTypeKind::stored; }
inline bool is_complex(DType dtype) noexcept { return dtype == DType::c64; }
/// Whether elements are objects of a class that was registered (tenon/object.hpp). Such types have
/// no enumerators: their numbers begin with 128, in the order in which this process registered them.
inline bool is_object(DType dtype) noexcept { return static_cast<int>(dtype) >= 128; }

/// The type spelled `name` ("f32", "q4_k"), if there is one. Classes: find_object_type().
std::optional<DType> find_dtype(std::string_view name) noexcept;

// The plain types by their own names: Shape({8, 784}, f32).
inline constexpr DType boolean = DType::boolean;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32;
inline constexpr DType u64 = DType::u64;
inline constexpr DType f8_e4m3 = DType::f8_e4m3, f8_e5m2 = DType::f8_e5m2;
inline constexpr DType c64 = DType::c64;
inline constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;

/// IEEE 754 binary16 and the upper half of binary32, as stored; arithmetic happens in float.
struct half {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

/// 8-bit floating point (OCP 8-bit Floating Point Specification, 2023): e4m3 has no infinity, one
/// NaN of each sign, and 448 as its largest number; e5m2 is the upper half of binary16.
struct float8_e4m3 {
  std::uint8_t bits;
};
struct float8_e5m2 {
  std::uint8_t bits;
};

/// A complex number.
struct complex64 {
  float real, imag;
};

/// Exact widening; NaN payloads are kept.
float to_float(half value) noexcept;
float to_float(bfloat16 value) noexcept;
float to_float(float8_e4m3 value) noexcept;
float to_float(float8_e5m2 value) noexcept;

/// Rounds to nearest, ties to even; overflow gives infinity; NaN stays NaN.
half to_half(float value) noexcept;
bfloat16 to_bfloat16(float value) noexcept;
/// The same; where e4m3 overflows, and for infinities, it gives NaN (ml_dtypes' float8_e4m3fn).
float8_e4m3 to_float8_e4m3(float value) noexcept;
float8_e5m2 to_float8_e5m2(float value) noexcept;

/// DType of a C++ element type: dtype_of<float>() == f32.
template <class T>
constexpr DType dtype_of() noexcept = delete;
template <>
constexpr DType dtype_of<bool>() noexcept {
  return DType::boolean;
}
template <>
constexpr DType dtype_of<std::int8_t>() noexcept {
  return DType::i8;
}
template <>
constexpr DType dtype_of<std::int16_t>() noexcept {
  return DType::i16;
}
template <>
constexpr DType dtype_of<std::int32_t>() noexcept {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::int64_t>() noexcept {
  return DType::i64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() noexcept {
  return DType::u8;
}
template <>
constexpr DType dtype_of<std::uint16_t>() noexcept {
  return DType::u16;
}
template <>
constexpr DType dtype_of<std::uint32_t>() noexcept {
  return DType::u32;
}
template <>
constexpr DType dtype_of<std::uint64_t>() noexcept {
  return DType::u64;
}
template <>
constexpr DType dtype_of<float8_e4m3>() noexcept {
  return DType::f8_e4m3;
}
template <>
constexpr DType dtype_of<float8_e5m2>() noexcept {
  return DType::f8_e5m2;
}
template <>
constexpr DType dtype_of<complex64>() noexcept {
  return DType::c64;
}
template <>
constexpr DType dtype_of<half>() noexcept {
  return DType::f16;
}
template <>
constexpr DType dtype_of<bfloat16>() noexcept {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<float>() noexcept {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() noexcept {
  return DType::f64;
}

}  // namespace tenon
