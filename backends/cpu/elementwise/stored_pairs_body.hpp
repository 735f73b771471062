#pragma once

// Functions of two operands of narrow types. Included after a header of simd/, by the sources of one instruction set each.
//
// Whole numbers wrap around in their own width. f16 and bf16 are computed in f32 and rounded once; what only compares them
// reads their bits, which order as whole numbers do.
#include "store_half_body.hpp"
#include "stored_pairs.hpp"
#include "zip_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

struct AddBits {
  template <class T>
  [[gnu::always_inline]] T operator()(T p, T q) const {
    return static_cast<T>(p + q);
  }
};
struct SubtractBits {
  template <class T>
  [[gnu::always_inline]] T operator()(T p, T q) const {
    return static_cast<T>(p - q);
  }
};
struct MultiplyBits {
  template <class T>
  [[gnu::always_inline]] T operator()(T p, T q) const {
    return static_cast<T>(std::uint32_t{p} * std::uint32_t{q});
  }
};
struct Smaller {
  template <class T>
  [[gnu::always_inline]] T operator()(T p, T q) const {
    return p < q ? p : q;
  }
};
struct Larger {
  template <class T>
  [[gnu::always_inline]] T operator()(T p, T q) const {
    return p > q ? p : q;
  }
};

template <class T, class Y, class F>
void run_stored(const void* a, std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
                std::int64_t count) noexcept {
  zip<T, Y>(a, a_step, b, b_step, y, count, F{});
}

/// `U`: the unsigned type of T's width, in which overflow is defined.
template <class T, class U>
StoredPairs whole_arithmetic(Arithmetic op) noexcept {
  switch (op) {
    case Arithmetic::add:
      return run_stored<U, U, AddBits>;
    case Arithmetic::sub:
      return run_stored<U, U, SubtractBits>;
    case Arithmetic::mul:
      return run_stored<U, U, MultiplyBits>;
    case Arithmetic::minimum:
      return run_stored<T, T, Smaller>;
    case Arithmetic::maximum:
      return run_stored<T, T, Larger>;
    default:
      return nullptr;
  }
}

/// A floating type of 16 bits by its bits; `infinity` are those of infinity, `quiet` the highest of the fraction.
template <std::uint16_t infinity, std::uint16_t quiet>
struct HalfBits {
  [[gnu::always_inline]] static bool is_nan(std::uint16_t bits) {
    return (bits & 0x7FFF) > infinity;
  }
  /// What orders as the number does; the same for both zeros.
  [[gnu::always_inline]] static std::int16_t order(std::uint16_t bits) {
    const auto magnitude = static_cast<std::int16_t>(bits & 0x7FFF);
    return (bits & 0x8000) != 0 ? static_cast<std::int16_t>(-magnitude) : magnitude;
  }
  /// As maximum and minimum: p where it is the greater (smaller) or NaN, else q. A NaN becomes quiet.
  template <bool greater>
  struct Extreme {
    [[gnu::always_inline]] std::uint16_t operator()(std::uint16_t p, std::uint16_t q) const {
      const std::int16_t a = order(p), b = order(q);
      const bool precedes = greater ? a > b : a < b, first_nan = is_nan(p), second_nan = is_nan(q);
      const std::uint16_t picked = (first_nan | (precedes & !second_nan)) ? p : q;
      return static_cast<std::uint16_t>(is_nan(picked) ? picked | quiet : picked);
    }
  };
  template <Comparison op>
  struct Compared {
    [[gnu::always_inline]] std::uint8_t operator()(std::uint16_t p, std::uint16_t q) const {
      const bool first_nan = is_nan(p), second_nan = is_nan(q);
      const bool numbers = !first_nan & !second_nan;
      const std::int16_t a = order(p), b = order(q);
      switch (op) {
        case Comparison::eq:
          return numbers & (a == b);
        case Comparison::ne:
          return !numbers | (a != b);
        case Comparison::lt:
          return numbers & (a < b);
        case Comparison::le:
          return numbers & (a <= b);
        case Comparison::gt:
          return numbers & (a > b);
        case Comparison::ge:
          return numbers & (a >= b);
      }
    }
  };
};
using BitsOfF16 = HalfBits<0x7C00, 0x0200>;
using BitsOfBf16 = HalfBits<0x7F80, 0x0040>;

struct AddFloats {
  TENON_INLINE Float operator()(Float p, Float q) const { return p + q; }
};
struct SubtractFloats {
  TENON_INLINE Float operator()(Float p, Float q) const { return p - q; }
};
struct MultiplyFloats {
  TENON_INLINE Float operator()(Float p, Float q) const { return p * q; }
};
struct DivideFloats {
  TENON_INLINE Float operator()(Float p, Float q) const { return p / q; }
};

/// Elements of bf16 as two vectors, the first of each pair of elements and the second ones: nothing has to be moved within a
/// vector.
struct Bf16 {
  struct Values {
    Float even, odd;
  };
  using Bits = std::uint32_t __attribute__((vector_size(4 * Simd::lanes)));
  static constexpr int elements = 2 * Simd::lanes;
  TENON_INLINE static Values load(const std::uint16_t* x) {
    return {Simd::load_even_bf16(x), Simd::load_odd_bf16(x)};
  }
  template <class F>
  TENON_INLINE static Values apply(F f, Values p, Values q) {
    return {f(p.even, q.even), f(p.odd, q.odd)};
  }
  TENON_INLINE static void store(std::uint16_t* y, Values v) {
    const Bits all = rounded(v.even) >> 16 | (rounded(v.odd) & 0xFFFF0000u);
    __builtin_memcpy(y, &all, sizeof all);
  }
  /// To nearest even in the upper half; a NaN becomes quiet.
  TENON_INLINE static Bits rounded(Float v) {
    Bits bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    const Bits nearest = bits + 0x7FFFu + (bits >> 16 & 1u);
    return v != v ? bits | 0x400000u : nearest;
  }
};
#if defined(__F16C__)
struct F16 {
  using Values = Float;
  static constexpr int elements = Simd::lanes;
  TENON_INLINE static Values load(const std::uint16_t* x) { return Simd::load_f16(x); }
  template <class F>
  TENON_INLINE static Values apply(F f, Values p, Values q) {
    return f(p, q);
  }
  TENON_INLINE static void store(std::uint16_t* y, Values v) { store_f16(y, v); }
};
#endif

/// An operand of map_half_pairs(): an array, or one number for every element.
template <class Half>
struct HalfArray {
  const std::uint16_t* x;
  TENON_INLINE typename Half::Values at(std::int64_t i) const { return Half::load(x + i); }
  /// The last `count` elements, less than a step's, behind which there are zeros.
  TENON_INLINE typename Half::Values rest(std::int64_t i, std::int64_t count) const {
    std::uint16_t pad[Half::elements] = {};
    __builtin_memcpy(pad, x + i, static_cast<std::size_t>(count) * sizeof *x);
    return Half::load(pad);
  }
};
template <class Half>
struct HalfConstant {
  typename Half::Values value;
  explicit HalfConstant(std::uint16_t bits) {
    std::uint16_t all[Half::elements];
    for (std::uint16_t& each : all) each = bits;
    value = Half::load(all);
  }
  TENON_INLINE typename Half::Values at(std::int64_t) const { return value; }
  TENON_INLINE typename Half::Values rest(std::int64_t, std::int64_t) const { return value; }
};

/// The rest of an array goes through the same instructions as whole vectors.
template <class Half, class F, class A, class B>
TENON_INLINE void map_half_pairs(A a, B b, std::uint16_t* y, std::int64_t count) {
  constexpr std::int64_t step = Half::elements;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) Half::store(y + i, Half::apply(F{}, a.at(i), b.at(i)));
  if (i >= count) return;
  std::uint16_t pad[Half::elements];
  Half::store(pad, Half::apply(F{}, a.rest(i, count - i), b.rest(i, count - i)));
  __builtin_memcpy(y + i, pad, static_cast<std::size_t>(count - i) * sizeof *y);
}

template <class Half, class F>
void run_halves(const void* a, std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
                std::int64_t count) noexcept {
  using Array = HalfArray<Half>;
  using Constant = HalfConstant<Half>;
  if (count <= 0) return;
  const auto* const p = static_cast<const std::uint16_t*>(a);
  const auto* const q = static_cast<const std::uint16_t*>(b);
  auto* const out = static_cast<std::uint16_t*>(y);
  if (a_step != 0 && b_step != 0) return map_half_pairs<Half, F>(Array{p}, Array{q}, out, count);
  if (a_step != 0) return map_half_pairs<Half, F>(Array{p}, Constant(*q), out, count);
  if (b_step != 0) return map_half_pairs<Half, F>(Constant(*p), Array{q}, out, count);
  map_half_pairs<Half, F>(Constant(*p), Constant(*q), out, count);
}

template <class Half, class Bits>
StoredPairs half_arithmetic(Arithmetic op) noexcept {
  switch (op) {
    case Arithmetic::add:
      return run_halves<Half, AddFloats>;
    case Arithmetic::sub:
      return run_halves<Half, SubtractFloats>;
    case Arithmetic::mul:
      return run_halves<Half, MultiplyFloats>;
    case Arithmetic::div:
      return run_halves<Half, DivideFloats>;
    case Arithmetic::minimum:
      return run_stored<std::uint16_t, std::uint16_t, typename Bits::template Extreme<false>>;
    case Arithmetic::maximum:
      return run_stored<std::uint16_t, std::uint16_t, typename Bits::template Extreme<true>>;
    default:
      return nullptr;
  }
}

StoredPairs find_arithmetic(DType dtype, Arithmetic op) noexcept {
  switch (dtype) {
    case DType::i8:
      return whole_arithmetic<std::int8_t, std::uint8_t>(op);
    case DType::u8:
      return whole_arithmetic<std::uint8_t, std::uint8_t>(op);
    case DType::i16:
      return whole_arithmetic<std::int16_t, std::uint16_t>(op);
    case DType::u16:
      return whole_arithmetic<std::uint16_t, std::uint16_t>(op);
    case DType::u32:
      return whole_arithmetic<std::uint32_t, std::uint32_t>(op);
    case DType::bf16:
      return half_arithmetic<Bf16, BitsOfBf16>(op);
#if defined(__F16C__)
    case DType::f16:
      return half_arithmetic<F16, BitsOfF16>(op);
#endif
    default:
      return nullptr;
  }
}

struct EqualTo {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p == q;
  }
};
struct UnequalTo {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p != q;
  }
};
struct LessThan {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p < q;
  }
};
struct AtMost {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p <= q;
  }
};
struct MoreThan {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p > q;
  }
};
struct AtLeast {
  template <class T>
  [[gnu::always_inline]] std::uint8_t operator()(T p, T q) const {
    return p >= q;
  }
};

template <class T>
StoredPairs whole_comparison(Comparison op) noexcept {
  switch (op) {
    case Comparison::eq:
      return run_stored<T, std::uint8_t, EqualTo>;
    case Comparison::ne:
      return run_stored<T, std::uint8_t, UnequalTo>;
    case Comparison::lt:
      return run_stored<T, std::uint8_t, LessThan>;
    case Comparison::le:
      return run_stored<T, std::uint8_t, AtMost>;
    case Comparison::gt:
      return run_stored<T, std::uint8_t, MoreThan>;
    case Comparison::ge:
      return run_stored<T, std::uint8_t, AtLeast>;
  }
  return nullptr;
}

template <class Bits>
StoredPairs half_comparison(Comparison op) noexcept {
  switch (op) {
    case Comparison::eq:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::eq>>;
    case Comparison::ne:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::ne>>;
    case Comparison::lt:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::lt>>;
    case Comparison::le:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::le>>;
    case Comparison::gt:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::gt>>;
    case Comparison::ge:
      return run_stored<std::uint16_t, std::uint8_t,
                        typename Bits::template Compared<Comparison::ge>>;
  }
  return nullptr;
}

StoredPairs find_comparison(DType dtype, Comparison op) noexcept {
  switch (dtype) {
    case DType::i8:
      return whole_comparison<std::int8_t>(op);
    case DType::u8:
      return whole_comparison<std::uint8_t>(op);
    case DType::i16:
      return whole_comparison<std::int16_t>(op);
    case DType::u16:
      return whole_comparison<std::uint16_t>(op);
    case DType::u32:
      return whole_comparison<std::uint32_t>(op);
    case DType::f16:
      return half_comparison<BitsOfF16>(op);
    case DType::bf16:
      return half_comparison<BitsOfBf16>(op);
    default:
      return nullptr;
  }
}

constexpr StoredPairKernels all_stored_pairs{find_arithmetic, find_comparison};

}  // namespace
}  // namespace tenon::cpu
