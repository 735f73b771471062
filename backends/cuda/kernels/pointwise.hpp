// One element of the result per thread, and the next `stride_of` further on.
#pragma once

#include "kernels/point_ops.hpp"
#include "kernels/special.hpp"
#include "kernels/values.hpp"

#include <cmath>
#include <cstdint>

namespace tenon::cuda {

TENON_DEVICE std::int64_t signed_of(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }

TENON_DEVICE float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
TENON_DEVICE float relu6_of(float x) { return x < 0 ? 0.0f : x > 6 ? 6.0f : x; }
TENON_DEVICE float gelu_of(float x) { return 0.5f * x * erfcf(x * -0.70710678118654752f); }
TENON_DEVICE float gelu_derivative_of(float x) {
  const float near = fminf(fmaxf(x, -20.0f), 20.0f);  // the density is 0 beyond
  return 0.5f * erfcf(x * -0.70710678118654752f) +
         near * (0.39894228040143268f * expf(-0.5f * near * near));
}
TENON_DEVICE float gelu_tanh_of(float x) {
  const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}
TENON_DEVICE float softplus_of(float x) {
  return x != x ? x : (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}
TENON_DEVICE float remainder_of(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TENON_DEVICE std::int64_t remainder_of(std::int64_t a, std::int64_t b) {
  const std::int64_t rest = b == 0 || b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TENON_DEVICE std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::uint64_t result = 1, factor = static_cast<std::uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor) {
    if ((exponent & 1) != 0) result *= factor;
  }
  return signed_of(result);
}

// The ops of points.def, one function each.
template <UnaryReal op>
TENON_DEVICE float unary_real(float x, float p, float q);
#define TENON_CUDA_UNARY(id, expression)                                          \
  template <>                                                                     \
  TENON_DEVICE float unary_real<UnaryReal::id>(float x, [[maybe_unused]] float p, \
                                               [[maybe_unused]] float q) {        \
    return expression;                                                            \
  }
#include "kernels/points.def"
#undef TENON_CUDA_UNARY

template <UnaryInteger op>
TENON_DEVICE std::int64_t unary_integer(std::int64_t x, std::int64_t p, std::int64_t q);
#define TENON_CUDA_UNARY_INTEGER(id, expression)                                          \
  template <>                                                                             \
  TENON_DEVICE std::int64_t unary_integer<UnaryInteger::id>(                              \
      std::int64_t x, [[maybe_unused]] std::int64_t p, [[maybe_unused]] std::int64_t q) { \
    [[maybe_unused]] const auto u = static_cast<std::uint64_t>(x);                        \
    return expression;                                                                    \
  }
#include "kernels/points.def"
#undef TENON_CUDA_UNARY_INTEGER

template <Predicate op>
TENON_DEVICE std::int64_t predicate_real(float x);
#define TENON_CUDA_PREDICATE(id, expression)                         \
  template <>                                                        \
  TENON_DEVICE std::int64_t predicate_real<Predicate::id>(float x) { \
    return (expression) ? 1 : 0;                                     \
  }
#include "kernels/points.def"
#undef TENON_CUDA_PREDICATE

template <BinaryReal op>
TENON_DEVICE float binary_real(float a, float b);
#define TENON_CUDA_BINARY(id, expression)                            \
  template <>                                                        \
  TENON_DEVICE float binary_real<BinaryReal::id>(float a, float b) { \
    return expression;                                               \
  }
#include "kernels/points.def"
#undef TENON_CUDA_BINARY

template <BinaryInteger op>
TENON_DEVICE std::int64_t binary_integer(std::int64_t a, std::int64_t b);
#define TENON_CUDA_BINARY_INTEGER(id, expression)                                               \
  template <>                                                                                   \
  TENON_DEVICE std::int64_t binary_integer<BinaryInteger::id>(std::int64_t a, std::int64_t b) { \
    [[maybe_unused]] const auto ua = static_cast<std::uint64_t>(a);                             \
    [[maybe_unused]] const auto ub = static_cast<std::uint64_t>(b);                             \
    return expression;                                                                          \
  }
#include "kernels/points.def"
#undef TENON_CUDA_BINARY_INTEGER

template <Comparison op, class C>
TENON_DEVICE std::int64_t compare_values(C a, C b) {
  bool holds = false;
#define TENON_CUDA_COMPARE(id, expression) \
  if constexpr (op == Comparison::id) holds = expression;
#include "kernels/points.def"
#undef TENON_CUDA_COMPARE
  return holds ? 1 : 0;
}

// The same by the op's number.
TENON_DEVICE float unary_of(int op, float x, const PointArgs& args) {
  switch (static_cast<UnaryReal>(op)) {
#define TENON_CUDA_UNARY(id, expression) \
  case UnaryReal::id:                    \
    return unary_real<UnaryReal::id>(x, args.reals[0], args.reals[1]);
#include "kernels/points.def"
#undef TENON_CUDA_UNARY
  }
  return 0;
}

TENON_DEVICE std::int64_t unary_of(int op, std::int64_t x, const PointArgs& args) {
  switch (static_cast<UnaryInteger>(op)) {
#define TENON_CUDA_UNARY_INTEGER(id, expression) \
  case UnaryInteger::id:                         \
    return unary_integer<UnaryInteger::id>(x, args.integers[0], args.integers[1]);
#include "kernels/points.def"
#undef TENON_CUDA_UNARY_INTEGER
  }
  return 0;
}

TENON_DEVICE std::int64_t predicate_of(int op, float x) {
  switch (static_cast<Predicate>(op)) {
#define TENON_CUDA_PREDICATE(id, expression) \
  case Predicate::id:                        \
    return predicate_real<Predicate::id>(x);
#include "kernels/points.def"
#undef TENON_CUDA_PREDICATE
  }
  return 0;
}

TENON_DEVICE float binary_of(int op, float a, float b) {
  switch (static_cast<BinaryReal>(op)) {
#define TENON_CUDA_BINARY(id, expression) \
  case BinaryReal::id:                    \
    return binary_real<BinaryReal::id>(a, b);
#include "kernels/points.def"
#undef TENON_CUDA_BINARY
  }
  return 0;
}

TENON_DEVICE std::int64_t binary_of(int op, std::int64_t a, std::int64_t b) {
  switch (static_cast<BinaryInteger>(op)) {
#define TENON_CUDA_BINARY_INTEGER(id, expression) \
  case BinaryInteger::id:                         \
    return binary_integer<BinaryInteger::id>(a, b);
#include "kernels/points.def"
#undef TENON_CUDA_BINARY_INTEGER
  }
  return 0;
}

template <class C>
TENON_DEVICE std::int64_t compare_of(int op, C a, C b) {
  switch (static_cast<Comparison>(op)) {
#define TENON_CUDA_COMPARE(id, expression) \
  case Comparison::id:                     \
    return compare_values<Comparison::id>(a, b);
#include "kernels/points.def"
#undef TENON_CUDA_COMPARE
  }
  return 0;
}

template <class C>
TENON_DEVICE void unary(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const C x = load_as(C(), args.a, offset_of(at, args.a.steps, args.axes.rank));
    store_as(unary_of(args.op, x, args), args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

TENON_DEVICE void predicate(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const float x = load_as(0.0f, args.a, offset_of(at, args.a.steps, args.axes.rank));
    store_as(predicate_of(args.op, x), args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

template <class C>
TENON_DEVICE void binary(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const C a = load_as(C(), args.a, offset_of(at, args.a.steps, args.axes.rank));
    const C b = load_as(C(), args.b, offset_of(at, args.b.steps, args.axes.rank));
    store_as(binary_of(args.op, a, b), args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// y = of(a, b) of dense arrays, four elements at a time. Addresses are multiples of 16.
template <class Function>
TENON_DEVICE void map_fours(const Thread& thread, const PointArgs& args, const Function& of) {
  const std::uint32_t fours = args.axes.count / 4;
  const bool has_b = args.b.data != 0;
  for (std::uint32_t i = first_of(thread); i < fours; i += stride_of(thread)) {
    const Words4 a = global<const Words4>(args.a.data)[i];
    const Words4 b = has_b ? global<const Words4>(args.b.data)[i] : Words4{};
    Words4 y;
    TENON_UNROLL for (std::uint32_t part = 0; part < 4; ++part) {
      y.at[part] = float_to_bits(of(bits_to_float(a.at[part]), bits_to_float(b.at[part])));
    }
    global<Words4>(args.y.data)[i] = y;
  }
  const std::uint32_t last = 4 * fours + first_of(thread);
  if (last >= args.axes.count || first_of(thread) >= 4) return;
  const float b = has_b ? global<const float>(args.b.data)[last] : 0.0f;
  global<float>(args.y.data)[last] = of(global<const float>(args.a.data)[last], b);
}
/// Whether map_fours may be used.
TENON_DEVICE bool are_fours(const PointArgs& args) {
  return args.is_dense && (args.a.data | args.b.data | args.y.data) % sizeof(Words4) == 0;
}

TENON_DEVICE void unary_real_elements(const Thread& thread, const PointArgs& args) {
  if (!are_fours(args)) return unary<float>(thread, args);
  map_fours(thread, args, [&](float a, float) { return unary_of(args.op, a, args); });
}
TENON_DEVICE void binary_real_elements(const Thread& thread, const PointArgs& args) {
  if (!are_fours(args)) return binary<float>(thread, args);
  map_fours(thread, args, [&](float a, float b) { return binary_of(args.op, a, b); });
}

template <class C>
TENON_DEVICE void compare(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const C a = load_as(C(), args.a, offset_of(at, args.a.steps, args.axes.rank));
    const C b = load_as(C(), args.b, offset_of(at, args.b.steps, args.axes.rank));
    store_as(compare_of(args.op, a, b), args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// y = a ? b : c, as bits. `op`: bytes of an element.
TENON_DEVICE void choose(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const auto where = static_cast<Address>(offset_of(at, args.a.steps, args.axes.rank));
    const bool takes_b = *global<const std::uint8_t>(args.a.data + where) != 0;
    const Array& from = takes_b ? args.b : args.c;
    copy_bytes(args.y.data + static_cast<Address>(offset_of(at, args.y.steps, args.axes.rank)),
               from.data + static_cast<Address>(offset_of(at, from.steps, args.axes.rank)),
               static_cast<std::uint32_t>(args.op));
  }
}

/// y = saturate(round(a / b) + c), of codes in `integers`. c: an address of 0: 0.
TENON_DEVICE void quantize(const Thread& thread, const PointArgs& args) {
  const std::int64_t low = args.integers[0], high = args.integers[1];
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const float x = load_as(0.0f, args.a, offset_of(at, args.a.steps, args.axes.rank));
    const float scale = load_as(0.0f, args.b, offset_of(at, args.b.steps, args.axes.rank));
    const std::int64_t zero = zero_point(args.c, offset_of(at, args.c.steps, args.axes.rank));
    const float rounded = rintf(x / scale);
    std::int64_t code = low;
    if (rounded >= static_cast<float>(high - zero)) {
      code = high;
    } else if (rounded > static_cast<float>(low - zero)) {
      code = static_cast<std::int64_t>(rounded) + zero;
    }
    store_as(code, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// y = (a - c) * b. c: an address of 0: 0.
TENON_DEVICE void dequantize(const Thread& thread, const PointArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t code =
        load_as(std::int64_t(), args.a, offset_of(at, args.a.steps, args.axes.rank));
    const std::int64_t zero = zero_point(args.c, offset_of(at, args.c.steps, args.axes.rank));
    const float scale = load_as(0.0f, args.b, offset_of(at, args.b.steps, args.axes.rank));
    const auto difference = static_cast<std::int32_t>(code - zero);
    store_as(static_cast<float>(difference) * scale, args.y,
             offset_of(at, args.y.steps, args.axes.rank));
  }
}

TENON_DEVICE bool holds_reals(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// As an element of an integer type with limits or, with `to_bool`, of bool: truncated and
/// saturated; 0 for a NaN.
TENON_DEVICE std::int64_t whole_of(float x, bool to_bool, std::int64_t low, std::int64_t high) {
  if (to_bool) return x != 0 ? 1 : 0;
  if (x != x) return 0;
  if (x <= static_cast<float>(low)) return low;
  if (x >= static_cast<float>(high)) return high;
  return static_cast<std::int64_t>(x);
}
TENON_DEVICE std::int64_t whole_of(std::int64_t x, bool to_bool, std::int64_t low,
                                   std::int64_t high) {
  if (to_bool) return x != 0 ? 1 : 0;
  return x < low ? low : x > high ? high : x;
}

/// `integers`: the limits of y's type.
TENON_DEVICE void cast_elements(const Thread& thread, const PointArgs& args) {
  const bool from_real = holds_reals(args.a.dtype), to_real = holds_reals(args.y.dtype);
  const bool to_bool = args.y.dtype == DType::boolean;
  const std::int64_t low = args.integers[0], high = args.integers[1];
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t from = offset_of(at, args.a.steps, args.axes.rank);
    const std::int64_t to = offset_of(at, args.y.steps, args.axes.rank);
    if (from_real) {
      const float x = load_as(0.0f, args.a, from);
      if (to_real) {
        store_as(x, args.y, to);
      } else {
        store_as(whole_of(x, to_bool, low, high), args.y, to);
      }
    } else {
      const std::int64_t x = load_as(std::int64_t(), args.a, from);
      if (to_real) {
        store_as(float_of_integer(args.y.dtype, x), args.y, to);
      } else {
        store_as(whole_of(x, to_bool, low, high), args.y, to);
      }
    }
  }
}

}  // namespace tenon::cuda
