#pragma once

// The transforms of fourier_kernels.hpp. Included after a header of simd/, by the sources of one
// instruction set each.
#include "fourier_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int fourier_bytes = 64;
#elif defined(__AVX2__)
constexpr int fourier_bytes = 32;
#else
constexpr int fourier_bytes = 16;
#endif

/// `count` numbers side by side.
template <class T, int count>
struct NumbersOf {
  typedef T type __attribute__((vector_size(static_cast<std::size_t>(count) * sizeof(T))));
};
template <class T, int count>
using Numbers = typename NumbersOf<T, count>::type;
template <class V, int count>
using Several = V[static_cast<std::size_t>(count)];

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
template <class V>
TENON_INLINE Pair<V> times(const Pair<V>& a, const Pair<V>& w) {
  return {a.real * w.real - a.imaginary * w.imaginary, a.real * w.imaginary + a.imaginary * w.real};
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
    T turns[2 * elements];
    for (int k = 1; k < factor; ++k) {
      turns[2 * k] = plan.roots[2 * p * k * stride];
      turns[2 * k + 1] = plan.roots[2 * p * k * stride + 1];
    }
    for (std::int64_t q = 0; q < stride; ++q) {
      Pair<V> a[elements];
      for (int j = 0; j < factor; ++j) a[j] = x[q + stride * (p + m * j)];
      if constexpr (factor == 2) transform_2<T>(a);
      if constexpr (factor == 3) transform_3<T>(a);
      if constexpr (factor == 4) transform_4<T>(a);
      if constexpr (factor == 5) transform_5<T>(a);
      Pair<V>* to = y + q + stride * factor * p;
      to[0] = a[0];
      for (int k = 1; k < factor; ++k) to[stride * k] = times(a[k], turns + 2 * k);
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
Pair<V>* fourier_passes(const FourierPlan<T>& plan, Pair<V>* x, Pair<V>* spare,
                        const StopSign& stop) noexcept {
  constexpr std::int64_t is_long = 16384;  // elements, of which a pass takes about 50 us
  std::int64_t stride = 1;
  for (std::int64_t i = 0; i < plan.factors; ++i) {
    if (plan.size >= is_long && is_due(stop)) return x;
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
Pair<V>* fourier_chirp(const FourierPlan<T>& plan, Pair<V>* x, Pair<V>* spare,
                       const StopSign& stop) noexcept {
  const FourierPlan<T>& longer = *plan.longer;
  for (std::int64_t j = 0; j < plan.size; ++j) x[j] = times(x[j], plan.chirp + 2 * j);
  for (std::int64_t j = plan.size; j < longer.size; ++j) x[j] = Pair<V>{};
  Pair<V>* y = fourier_passes(longer, x, spare, stop);
  Pair<V>* other = y == x ? spare : x;
  // Back by a forward transform of what has its parts exchanged.
  for (std::int64_t j = 0; j < longer.size; ++j) {
    const Pair<V> product = times(y[j], plan.filter + 2 * j);
    y[j] = {product.imaginary, product.real};
  }
  y = fourier_passes(longer, y, other, stop);
  for (std::int64_t j = 0; j < plan.size; ++j) {
    y[j] = times(Pair<V>{y[j].imaginary, y[j].real}, plan.chirp + 2 * j);
  }
  return y;
}

template <class T, class V>
T* run_fourier(const FourierPlan<T>& plan, T* x, T* spare, const StopSign& stop) noexcept {
  auto* const pairs = reinterpret_cast<Pair<V>*>(x);
  auto* const others = reinterpret_cast<Pair<V>*>(spare);
  const Pair<V>* result = plan.longer == nullptr ? fourier_passes(plan, pairs, others, stop)
                                                 : fourier_chirp(plan, pairs, others, stop);
  return result == pairs ? x : spare;
}

template <class T, class V>
void fold_lanes(const T* x, const T* turns, std::int64_t half, T factor, T* y) noexcept {
  const auto* const from = reinterpret_cast<const Pair<V>*>(x);
  auto* const to = reinterpret_cast<Pair<V>*>(y);
  for (std::int64_t k = 0; k <= half; ++k) {
    const T c = turns[k], s = turns[half + 1 + k];
    const Pair<V> a = from[k], b = from[half - k];
    const Pair<V> sum{a.real + b.real, a.imaginary - b.imaginary};
    const Pair<V> rest{a.real - b.real, a.imaginary + b.imaginary};
    to[k] = scaled(Pair<V>{sum.real + (c * rest.imaginary + s * rest.real),
                           sum.imaginary - (c * rest.real - s * rest.imaginary)},
                   factor);
  }
}

// Shuffles of vectors. An index at or above the number of lanes is one of the second operand.

template <class V>
TENON_INLINE V load_numbers(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
TENON_INLINE void store_numbers(void* to, const V& v) {
  __builtin_memcpy(to, &v, sizeof v);
}

template <int lanes, class V, int... i>
TENON_INLINE Pair<V> apart_of(const V& a, const V& b, std::integer_sequence<int, i...>) {
  return {__builtin_shufflevector(a, b, (2 * i)...), __builtin_shufflevector(a, b, (2 * i + 1)...)};
}
/// The real and the imaginary parts of pairs of parts.
template <int lanes, class T>
TENON_INLINE auto load_apart(const T* from) {
  using V = Numbers<T, lanes>;
  return apart_of<lanes>(load_numbers<V>(from), load_numbers<V>(from + lanes),
                         std::make_integer_sequence<int, lanes>());
}
template <int lanes, class V, int... i>
TENON_INLINE V reversed(const V& a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, a, (lanes - 1 - i)...);
}
template <int lanes, class T, class V, int... i>
TENON_INLINE void store_together_of(const Pair<V>& a, T* to, std::integer_sequence<int, i...>) {
  store_numbers(to, __builtin_shufflevector(a.real, a.imaginary, (i / 2 + i % 2 * lanes)...));
  store_numbers(to + lanes, __builtin_shufflevector(a.real, a.imaginary,
                                                    (lanes / 2 + i / 2 + i % 2 * lanes)...));
}
/// And back.
template <int lanes, class T, class V>
TENON_INLINE void store_together(const Pair<V>& a, T* to) {
  store_together_of<lanes>(a, to, std::make_integer_sequence<int, lanes>());
}

template <int block, int lanes, class V, int... i>
TENON_INLINE void exchange_blocks(V& a, V& b, std::integer_sequence<int, i...>) {
  const V first = __builtin_shufflevector(a, b, (i / block % 2 == 0 ? i : lanes + i - block)...);
  b = __builtin_shufflevector(a, b, (i / block % 2 == 0 ? i + block : lanes + i)...);
  a = first;
}
template <int block, int lanes, class V>
TENON_INLINE void transpose_from(V* a) {
  if constexpr (block < lanes) {
    for (int i = 0; i < lanes; ++i) {
      if (i / block % 2 != 0) continue;
      exchange_blocks<block, lanes>(a[i], a[i + block], std::make_integer_sequence<int, lanes>());
    }
    transpose_from<2 * block, lanes>(a);
  }
}
/// Of `lanes` vectors.
template <int lanes, class V>
TENON_INLINE void transpose_numbers(V* a) {
  transpose_from<1, lanes>(a);
}

template <class T, int lanes>
void read_rows(const T* const* from, std::int64_t count, bool exchange, T* x) noexcept {
  const std::int64_t swap = exchange ? 1 : 0;
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    Several<Numbers<T, lanes>, lanes> block;
    for (int l = 0; l < lanes; ++l) block[l] = load_numbers<Numbers<T, lanes>>(from[l] + j);
    transpose_numbers<lanes>(block);
    for (int i = 0; i < lanes; ++i) store_numbers(x + ((j + i) ^ swap) * lanes, block[i]);
  }
  for (; j < count; ++j) {
    for (int l = 0; l < lanes; ++l) x[(j ^ swap) * lanes + l] = from[l][j];
  }
}

template <class T, int lanes>
void write_rows(const T* x, std::int64_t count, bool exchange, T scale, T* const* to) noexcept {
  const std::int64_t swap = exchange ? 1 : 0;
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    Several<Numbers<T, lanes>, lanes> block;
    for (int i = 0; i < lanes; ++i) {
      block[i] = load_numbers<Numbers<T, lanes>>(x + ((j + i) ^ swap) * lanes) * scale;
    }
    transpose_numbers<lanes>(block);
    for (int l = 0; l < lanes; ++l) store_numbers(to[l] + j, block[l]);
  }
  for (; j < count; ++j) {
    for (int l = 0; l < lanes; ++l) to[l][j] = x[(j ^ swap) * lanes + l] * scale;
  }
}

template <class V>
TENON_INLINE Pair<V> exchanged(const Pair<V>& a, bool exchange) {
  return exchange ? Pair<V>{a.imaginary, a.real} : a;
}

template <class T, int lanes>
void read_columns(const std::byte* rows, std::int64_t step, std::int64_t count, bool exchange,
                  T* x) noexcept {
  for (std::int64_t j = 0; j < count; ++j, x += 2 * lanes) {
    const auto a =
        exchanged(load_apart<lanes>(reinterpret_cast<const T*>(rows + j * step)), exchange);
    store_numbers(x, a.real);
    store_numbers(x + lanes, a.imaginary);
  }
}
template <class T, int lanes>
void write_columns(const T* x, std::int64_t count, bool exchange, T scale, std::byte* rows,
                   std::int64_t step) noexcept {
  using V = Numbers<T, lanes>;
  for (std::int64_t j = 0; j < count; ++j, x += 2 * lanes) {
    const Pair<V> a{load_numbers<V>(x), load_numbers<V>(x + lanes)};
    store_together<lanes>(scaled(exchanged(a, exchange), scale),
                          reinterpret_cast<T*>(rows + j * step));
  }
}

/// A transform of `elements` (2, 4, 8 or 16), in place.
template <class T, int elements, class V>
TENON_INLINE void transform_across(Pair<V>* a) {
  if constexpr (elements == 2) {
    transform_2<T>(a);
  } else if constexpr (elements == 4) {
    transform_4<T>(a);
  } else {
    // x_{r + step j} to y_{k + 4 q}: k < 4 of each r, then q < step of each k.
    constexpr int step = elements / 4;
    constexpr T cosines[] = {static_cast<T>(1), static_cast<T>(0.92387953251128675613),
                             static_cast<T>(0.70710678118654752440),
                             static_cast<T>(0.38268343236508977173), static_cast<T>(0)};
    Several<Pair<V>, elements> parts;
    for (int r = 0; r < step; ++r) {
      Pair<V> b[4];
      for (int j = 0; j < 4; ++j) b[j] = a[r + step * j];
      transform_4<T>(b);
      parts[r] = b[0];
      for (int k = 1; k < 4; ++k) {
        const int sixteenths = r * k * (16 / elements);  // at most 9
        const auto cosine = [&](int at) {                // of a multiple of pi / 8, 0 to 9
          return at <= 4 ? cosines[at] : at <= 8 ? -cosines[8 - at] : -cosines[at - 8];
        };
        const auto sine = [&](int at) {
          return at <= 4 ? cosines[4 - at] : at <= 8 ? cosines[at - 4] : -cosines[12 - at];
        };
        const T turn[] = {cosine(sixteenths), -sine(sixteenths)};
        parts[k * step + r] = r == 0 ? b[k] : times(b[k], turn);
      }
    }
    for (int k = 0; k < 4; ++k) {
      transform_across<T, step>(parts + k * step);
      for (int q = 0; q < step; ++q) a[k + 4 * q] = parts[k * step + q];
    }
  }
}

template <class T, int lanes>
void run_line(const FourierPlan<T>& columns, const T* turns, const T* x, bool exchange, T scale,
              T* work, T* y, const StopSign& stop) noexcept {
  using V = Numbers<T, lanes>;
  const std::int64_t size = columns.size;
  auto* const pairs = reinterpret_cast<Pair<V>*>(work);
  for (std::int64_t j = 0; j < size; ++j) {
    pairs[j] = exchanged(load_apart<lanes>(x + 2 * lanes * j), exchange);
  }
  const Pair<V>* const z = fourier_passes(columns, pairs, pairs + size, stop);
  for (std::int64_t done = 0; done < size; done += lanes) {
    // The last ones a second time where their number is no multiple.
    const std::int64_t k = done + lanes <= size ? done : size - lanes;
    Several<V, lanes> real, imaginary;
    for (int i = 0; i < lanes; ++i) {
      real[i] = z[k + i].real;
      imaginary[i] = z[k + i].imaginary;
    }
    transpose_numbers<lanes>(real);
    transpose_numbers<lanes>(imaginary);
    Several<Pair<V>, lanes> a;
    a[0] = {real[0], imaginary[0]};
    for (int l = 1; l < lanes; ++l) {
      const T* const w = turns + 2 * (l - 1) * size + k;
      a[l] = times(Pair<V>{real[l], imaginary[l]},
                   Pair<V>{load_numbers<V>(w), load_numbers<V>(w + size)});
    }
    transform_across<T, lanes>(a);
    for (int q = 0; q < lanes; ++q) {
      store_together<lanes>(scaled(exchanged(a[q], exchange), scale), y + 2 * (k + q * size));
    }
  }
}

template <class T, int lanes>
void fold_line(const T* x, const T* turns, std::int64_t half, T factor, T* y) noexcept {
  using V = Numbers<T, lanes>;
  constexpr std::make_integer_sequence<int, lanes> all;
  const T* const sines = turns + half + 1;
  for (std::int64_t done = 0; done <= half; done += lanes) {
    const std::int64_t k = done + lanes <= half + 1 ? done : half + 1 - lanes;
    const Pair<V> a = load_apart<lanes>(x + 2 * k);
    const Pair<V> mirror = load_apart<lanes>(x + 2 * (half - k - lanes + 1));
    const Pair<V> b{reversed<lanes>(mirror.real, all), reversed<lanes>(mirror.imaginary, all)};
    const V c = load_numbers<V>(turns + k), s = load_numbers<V>(sines + k);
    const Pair<V> sum{a.real + b.real, a.imaginary - b.imaginary};
    const Pair<V> rest{a.real - b.real, a.imaginary + b.imaginary};
    store_together<lanes>(scaled(Pair<V>{sum.real + (c * rest.imaginary + s * rest.real),
                                         sum.imaginary - (c * rest.real - s * rest.imaginary)},
                                 factor),
                          y + 2 * k);
  }
}

template <class T>
constexpr FourierOf<T> fourier_of() {
  constexpr int lanes = fourier_bytes / sizeof(T);
  constexpr int half = lanes > 2 ? lanes / 2 : 2;
  using V = Numbers<T, lanes>;
  return {{lanes, run_fourier<T, V>, fold_lanes<T, V>, read_rows<T, lanes>, write_rows<T, lanes>,
           read_columns<T, lanes>, write_columns<T, lanes>},
          {1, run_fourier<T, T>, fold_lanes<T, T>, nullptr, nullptr, nullptr, nullptr},
          {lanes, run_line<T, lanes>, fold_line<T, lanes>},
          {half, run_line<T, half>, fold_line<T, half>}};
}
constexpr FourierKernels all_fourier_kernels{fourier_of<float>(), fourier_of<double>()};

}  // namespace
}  // namespace tenon::cpu
