#pragma once

// The transforms of fourier_kernels.hpp. Included after a header of simd/, by the sources of one
// instruction set each.
#include "fourier_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int fourier_bytes = 64;
#elif defined(__AVX2__)
constexpr int fourier_bytes = 32;
#else
constexpr int fourier_bytes = 16;
#endif

using FourierFloats = float __attribute__((vector_size(fourier_bytes)));
using FourierDoubles = double __attribute__((vector_size(fourier_bytes)));

/// Complex numbers side by side.
template <class V>
struct Pair {
  V real, imaginary;
};
template <class V>
TENON_INLINE Pair<V> plus(const Pair<V>& a, const Pair<V>& b) {
  return {a.real + b.real, a.imaginary + b.imaginary};
}
template <class V>
TENON_INLINE Pair<V> minus(const Pair<V>& a, const Pair<V>& b) {
  return {a.real - b.real, a.imaginary - b.imaginary};
}
/// a - i b.
template <class V>
TENON_INLINE Pair<V> minus_turned(const Pair<V>& a, const Pair<V>& b) {
  return {a.real + b.imaginary, a.imaginary - b.real};
}
template <class V>
TENON_INLINE Pair<V> plus_turned(const Pair<V>& a, const Pair<V>& b) {
  return {a.real - b.imaginary, a.imaginary + b.real};
}
template <class T, class V>
TENON_INLINE Pair<V> times(const Pair<V>& a, const T* w) {
  return {a.real * w[0] - a.imaginary * w[1], a.real * w[1] + a.imaginary * w[0]};
}
template <class T, class V>
TENON_INLINE Pair<V> scaled(const Pair<V>& a, T factor) {
  return {a.real * factor, a.imaginary * factor};
}

/// The transforms of 2, 3, 4 and 5 elements, in place.
template <class T, class V>
TENON_INLINE void transform_2(Pair<V>* a) {
  const Pair<V> b = minus(a[0], a[1]);
  a[0] = plus(a[0], a[1]);
  a[1] = b;
}
template <class T, class V>
TENON_INLINE void transform_3(Pair<V>* a) {
  constexpr auto half_root_3 = static_cast<T>(0.86602540378443864676);
  const Pair<V> sum = plus(a[1], a[2]), turned = scaled(minus(a[1], a[2]), half_root_3);
  const Pair<V> middle = minus(a[0], scaled(sum, static_cast<T>(0.5)));
  a[0] = plus(a[0], sum);
  a[1] = minus_turned(middle, turned);
  a[2] = plus_turned(middle, turned);
}
template <class T, class V>
TENON_INLINE void transform_4(Pair<V>* a) {
  const Pair<V> even = plus(a[0], a[2]), even_rest = minus(a[0], a[2]);
  const Pair<V> odd = plus(a[1], a[3]), odd_rest = minus(a[1], a[3]);
  a[0] = plus(even, odd);
  a[1] = minus_turned(even_rest, odd_rest);
  a[2] = minus(even, odd);
  a[3] = plus_turned(even_rest, odd_rest);
}
template <class T, class V>
TENON_INLINE void transform_5(Pair<V>* a) {
  constexpr auto c1 = static_cast<T>(0.30901699437494742410);
  constexpr auto c2 = static_cast<T>(-0.80901699437494742410);
  constexpr auto s1 = static_cast<T>(0.95105651629515357212);
  constexpr auto s2 = static_cast<T>(0.58778525229247312917);
  const Pair<V> outer = plus(a[1], a[4]), outer_rest = minus(a[1], a[4]);
  const Pair<V> inner = plus(a[2], a[3]), inner_rest = minus(a[2], a[3]);
  const Pair<V> first = plus(a[0], plus(scaled(outer, c1), scaled(inner, c2)));
  const Pair<V> second = plus(a[0], plus(scaled(outer, c2), scaled(inner, c1)));
  const Pair<V> first_turned = plus(scaled(outer_rest, s1), scaled(inner_rest, s2));
  const Pair<V> second_turned = minus(scaled(outer_rest, s2), scaled(inner_rest, s1));
  a[0] = plus(a[0], plus(outer, inner));
  a[1] = minus_turned(first, first_turned);
  a[4] = plus_turned(first, first_turned);
  a[2] = minus_turned(second, second_turned);
  a[3] = plus_turned(second, second_turned);
}

/// One pass with a factor: y[q + stride (factor p + k)] = w^(p k) sum_j x[q + stride (p + m j)]
/// exp(-2 pi i j k / factor), w = exp(-2 pi i stride / size), p < m.
template <class T, class V, std::size_t elements>
void fourier_pass(const FourierPlan<T>& plan, std::int64_t stride, const Pair<V>* x,
                  Pair<V>* y) noexcept {
  constexpr int factor = static_cast<int>(elements);
  const std::int64_t m = plan.size / stride / factor;
  for (std::int64_t p = 0; p < m; ++p) {
    for (std::int64_t q = 0; q < stride; ++q) {
      Pair<V> a[elements];
      for (int j = 0; j < factor; ++j) a[j] = x[q + stride * (p + m * j)];
      if constexpr (factor == 2) transform_2<T>(a);
      if constexpr (factor == 3) transform_3<T>(a);
      if constexpr (factor == 4) transform_4<T>(a);
      if constexpr (factor == 5) transform_5<T>(a);
      Pair<V>* to = y + q + stride * factor * p;
      to[0] = a[0];
      for (int k = 1; k < factor; ++k) {
        to[stride * k] = times(a[k], plan.roots + 2 * p * k * stride);
      }
    }
  }
}

/// The same with any other prime.
template <class T, class V>
void fourier_pass_of(std::int64_t factor, const FourierPlan<T>& plan, std::int64_t stride,
                     const Pair<V>* x, Pair<V>* y) noexcept {
  const std::int64_t m = plan.size / stride / factor, root = plan.size / factor;
  for (std::int64_t p = 0; p < m; ++p) {
    for (std::int64_t q = 0; q < stride; ++q) {
      for (std::int64_t k = 0; k < factor; ++k) {
        Pair<V> sum = x[q + stride * p];
        std::int64_t at = 0;
        for (std::int64_t j = 1; j < factor; ++j) {
          at += k;
          if (at >= factor) at -= factor;
          sum = plus(sum, times(x[q + stride * (p + m * j)], plan.roots + 2 * at * root));
        }
        y[q + stride * (factor * p + k)] = times(sum, plan.roots + 2 * p * k * stride);
      }
    }
  }
}

template <class T, class V>
Pair<V>* fourier_passes(const FourierPlan<T>& plan, Pair<V>* x, Pair<V>* spare) noexcept {
  std::int64_t stride = 1;
  for (std::int64_t i = 0; i < plan.factors; ++i) {
    const std::int64_t factor = plan.factor[i];
    switch (factor) {
      case 2:
        fourier_pass<T, V, 2>(plan, stride, x, spare);
        break;
      case 3:
        fourier_pass<T, V, 3>(plan, stride, x, spare);
        break;
      case 4:
        fourier_pass<T, V, 4>(plan, stride, x, spare);
        break;
      case 5:
        fourier_pass<T, V, 5>(plan, stride, x, spare);
        break;
      default:
        fourier_pass_of<T, V>(factor, plan, stride, x, spare);
        break;
    }
    stride *= factor;
    Pair<V>* const result = spare;
    spare = x;
    x = result;
  }
  return x;
}

/// y_k = chirp_k sum_j (x_j chirp_j) conj(chirp_{k-j}), as 2 j k = j^2 + k^2 - (k - j)^2.
template <class T, class V>
Pair<V>* fourier_chirp(const FourierPlan<T>& plan, Pair<V>* x, Pair<V>* spare) noexcept {
  const FourierPlan<T>& longer = *plan.longer;
  for (std::int64_t j = 0; j < plan.size; ++j) x[j] = times(x[j], plan.chirp + 2 * j);
  for (std::int64_t j = plan.size; j < longer.size; ++j) x[j] = Pair<V>{};
  Pair<V>* y = fourier_passes(longer, x, spare);
  Pair<V>* other = y == x ? spare : x;
  // Back by a forward transform of what has its parts exchanged.
  for (std::int64_t j = 0; j < longer.size; ++j) {
    const Pair<V> product = times(y[j], plan.filter + 2 * j);
    y[j] = {product.imaginary, product.real};
  }
  y = fourier_passes(longer, y, other);
  for (std::int64_t j = 0; j < plan.size; ++j) {
    y[j] = times(Pair<V>{y[j].imaginary, y[j].real}, plan.chirp + 2 * j);
  }
  return y;
}

template <class T, class V>
T* run_fourier(const FourierPlan<T>& plan, T* x, T* spare) noexcept {
  auto* const pairs = reinterpret_cast<Pair<V>*>(x);
  auto* const others = reinterpret_cast<Pair<V>*>(spare);
  const Pair<V>* result = plan.longer == nullptr ? fourier_passes(plan, pairs, others)
                                                 : fourier_chirp(plan, pairs, others);
  return result == pairs ? x : spare;
}

template <class T, class V>
constexpr FourierKernel<T> fourier_kernel() {
  return {sizeof(V) / sizeof(T), run_fourier<T, V>};
}
constexpr FourierKernels all_fourier_kernels{
    fourier_kernel<float, FourierFloats>(), fourier_kernel<float, float>(),
    fourier_kernel<double, FourierDoubles>(), fourier_kernel<double, double>()};

}  // namespace
}  // namespace tenon::cpu
