#pragma once

// The functions of vector_product.hpp. Included after a header of simd/, by the sources of one instruction set each.
#include "typed_product_body.hpp"
#include "vector_product.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using FloatLanes = float __attribute__((vector_size(product_bytes)));

TENON_INLINE FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes c) {
  return Simd::fma(a, b, c);
}
TENON_INLINE DoubleLanes multiply_add(DoubleLanes a, DoubleLanes b, DoubleLanes c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}
TENON_INLINE WordLanes multiply_add(WordLanes a, WordLanes b, WordLanes c) { return a * b + c; }
TENON_INLINE LongLanes multiply_add(LongLanes a, LongLanes b, LongLanes c) { return a * b + c; }

/// How a vector V of numbers T is read from elements that are stored so.
template <class T, class V>
struct Plain {
  using Element = T;
  using Number = T;
  using Lanes = V;
  TENON_INLINE static V load(const Element* x) {
    V v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
  }
};
struct Halves {
  using Element = std::uint16_t;
  using Number = float;
  using Lanes = FloatLanes;
  TENON_INLINE static Lanes load(const Element* x) { return Simd::load_f16(x); }
};
struct Brains {
  using Element = std::uint16_t;
  using Number = float;
  using Lanes = FloatLanes;
  TENON_INLINE static Lanes load(const Element* x) { return Simd::load_bf16(x); }
};

/// `group` rows at once; the end of a row through the same instructions, filled up with zeros.
template <class As, int group>
TENON_INLINE void dots_of(const std::byte* m, std::int64_t step, const typename As::Number* v,
                          std::int64_t k, typename As::Number* y) {
  using T = typename As::Number;
  using V = typename As::Lanes;
  using Element = typename As::Element;
  constexpr std::int64_t lanes_of = sizeof(V) / sizeof(T), block = 2 * lanes_of;
  V sums[static_cast<unsigned>(group)][2] = {};
  std::int64_t i = 0;
  const auto add = [&](int r, const Element* row, const V& left, const V& right) {
    sums[r][0] = multiply_add(As::load(row), left, sums[r][0]);
    sums[r][1] = multiply_add(As::load(row + lanes_of), right, sums[r][1]);
  };
  for (; i + block <= k; i += block) {
    const V left = Plain<T, V>::load(v + i), right = Plain<T, V>::load(v + i + lanes_of);
#pragma GCC unroll 4
    for (int r = 0; r < group; ++r) {
      add(r, reinterpret_cast<const Element*>(m + r * step) + i, left, right);
    }
  }
  if (i < k) {
    const auto rest = static_cast<std::size_t>(k - i);
    T last[static_cast<std::size_t>(block)] = {};
    __builtin_memcpy(last, v + i, rest * sizeof(T));
    const V left = Plain<T, V>::load(last), right = Plain<T, V>::load(last + lanes_of);
    for (int r = 0; r < group; ++r) {
      Element row[static_cast<std::size_t>(block)] = {};
      __builtin_memcpy(row, reinterpret_cast<const Element*>(m + r * step) + i,
                       rest * sizeof(Element));
      add(r, row, left, right);
    }
  }
  for (int r = 0; r < group; ++r) {
    const V both = sums[r][0] + sums[r][1];
    T parts[static_cast<std::size_t>(lanes_of)];
    __builtin_memcpy(parts, &both, sizeof parts);
    for (std::int64_t half = lanes_of / 2; half > 0; half /= 2) {
      for (std::int64_t j = 0; j < half; ++j) parts[j] += parts[j + half];
    }
    y[r] = parts[0];
  }
}

template <class As>
void all_dots(const std::byte* m, std::int64_t step, std::int64_t rows, const void* v,
              std::int64_t k, void* y) {
  using T = typename As::Number;
  constexpr int group = 4;
  std::int64_t r = 0;
  for (; r + group <= rows; r += group) {
    dots_of<As, group>(m + r * step, step, static_cast<const T*>(v), k, static_cast<T*>(y) + r);
  }
  for (; r < rows; ++r) {
    dots_of<As, 1>(m + r * step, step, static_cast<const T*>(v), k, static_cast<T*>(y) + r);
  }
}

/// Of `lines` lines of the matrix those columns that a vector has, added to sums.
template <class As>
TENON_INLINE typename As::Lanes combined(const std::byte* m, std::int64_t step, std::int64_t lines,
                                         const typename As::Number* v, std::size_t columns,
                                         typename As::Lanes sum) {
  using Element = typename As::Element;
  using V = typename As::Lanes;
  constexpr std::size_t lanes_of = sizeof(V) / sizeof(typename As::Number);
  for (std::int64_t i = 0; i < lines; ++i, m += step) {
    const auto* line = reinterpret_cast<const Element*>(m);
    Element rest[lanes_of];
    if (columns < lanes_of) {
      __builtin_memset(rest, 0, sizeof rest);
      __builtin_memcpy(rest, line, columns * sizeof(Element));
      line = rest;
    }
    sum = multiply_add(V{} + v[i], As::load(line), sum);
  }
  return sum;
}

/// A few lines at a time, whose columns are read one behind the other.
template <class As>
void combine_all(const std::byte* m, std::int64_t step, std::int64_t columns, const void* vector,
                 std::int64_t k, void* results) {
  using T = typename As::Number;
  using V = typename As::Lanes;
  constexpr std::int64_t together = 8, lanes_of = sizeof(V) / sizeof(T);
  const auto* v = static_cast<const T*>(vector);
  auto* const y = static_cast<T*>(results);
  __builtin_memset(y, 0, static_cast<std::size_t>(columns) * sizeof(T));
  for (std::int64_t i = 0; i < k; i += together, v += together, m += together * step) {
    const std::int64_t lines = k - i < together ? k - i : together;
    for (std::int64_t c = 0; c < columns; c += lanes_of) {
      const auto some = static_cast<std::size_t>(columns - c < lanes_of ? columns - c : lanes_of);
      V sum{};
      __builtin_memcpy(&sum, y + c, some * sizeof(T));
      const std::byte* const at = m + c * static_cast<std::int64_t>(sizeof(typename As::Element));
      sum = combined<As>(at, step, lines, v, some, sum);
      __builtin_memcpy(y + c, &sum, some * sizeof(T));
    }
  }
}

/// run(As) with how elements of a type are read.
template <class Run>
TENON_INLINE void with_elements(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::f16:
      return run(Halves{});
    case DType::bf16:
      return run(Brains{});
    case DType::f32:
      return run(Plain<float, FloatLanes>{});
    case DType::f64:
      return run(Plain<double, DoubleLanes>{});
    case DType::i32:
      return run(Plain<std::uint32_t, WordLanes>{});
    default:
      return run(Plain<std::uint64_t, LongLanes>{});
  }
}

void run_dots(DType dtype, const std::byte* m, std::int64_t step, std::int64_t rows, const void* v,
              std::int64_t k, void* y) noexcept {
  with_elements(dtype, [=]<class As>(As) { all_dots<As>(m, step, rows, v, k, y); });
}
void run_combine(DType dtype, const std::byte* m, std::int64_t step, std::int64_t columns,
                 const void* v, std::int64_t k, void* y) noexcept {
  with_elements(dtype, [=]<class As>(As) { combine_all<As>(m, step, columns, v, k, y); });
}

constexpr VectorProducts all_vector_products{run_dots, run_combine};

}  // namespace
}  // namespace tenon::cpu
