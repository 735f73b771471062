#pragma once

// Loops over whole numbers and f64, which compilers turn into the vectors of the instruction set
// whose source includes this.
#include "gathering_body.hpp"
#include "zip_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

/// p / q towards 0; p / 0 is 0. Of i32 by way of f64, whose quotients are exact enough and which there are vectors of. The most
/// negative number by -1 wraps.
template <class T>
[[gnu::always_inline]] inline T quotient(T p, T q) {
  using U = typename WrappingType<T>::Type;
  if constexpr (sizeof(T) == 4) {
    const T divisor = ((q == 0) | (q == -1)) ? 1 : q;
    const auto result = static_cast<T>(static_cast<double>(p) / static_cast<double>(divisor));
    const auto negated = static_cast<T>(U{0} - static_cast<U>(p));
    return q == 0 ? 0 : q == -1 ? negated : result;
  } else {
    if (q == 0) return 0;
    return q == -1 ? static_cast<T>(U{0} - static_cast<U>(p)) : p / q;
  }
}
/// p - quotient q, and 0 for q = 0.
template <class T>
[[gnu::always_inline]] inline T rest_of(T p, T q) {
  using U = typename WrappingType<T>::Type;
  const U rest = static_cast<U>(p) - static_cast<U>(quotient(p, q)) * static_cast<U>(q);
  return q == 0 ? 0 : static_cast<T>(rest);
}

template <class T>
void whole_arithmetic_of(Arithmetic op, const void* a, std::int64_t a_step, const void* b,
                         std::int64_t b_step, void* y, std::int64_t count) {
  using U = typename WrappingType<T>::Type;
  constexpr U most = 8 * sizeof(T) - 1;
  const auto run = [=](auto f) { zip<T, T>(a, a_step, b, b_step, y, count, f); };
  switch (op) {
    case Arithmetic::remainder:
      return run([](T p, T q) {
        const T rest = rest_of(p, q);
        return ((rest != 0) & ((rest < 0) != (q < 0))) ? static_cast<T>(rest + q) : rest;
      });
    case Arithmetic::fmod:
      return run([](T p, T q) { return rest_of(p, q); });
    case Arithmetic::shift_left:  // negative counts are large
      return run([](T p, T q) {
        const auto by = static_cast<U>(q);
        const U shifted = static_cast<U>(p) << (by & most);
        return by > most ? T{0} : static_cast<T>(shifted);
      });
    case Arithmetic::shift_right:
      return run([](T p, T q) {
        const auto by = static_cast<U>(q);
        return static_cast<T>(p >> (by > most ? most : by));
      });
    default:
      return run([](T p, T q) { return quotient(p, q); });
  }
}

template <class T>
void arithmetic_of(Arithmetic op, const void* a, std::int64_t a_step, const void* b,
                   std::int64_t b_step, void* y, std::int64_t count) {
  using U = typename WrappingType<T>::Type;
  const auto run = [=](auto f) { zip<T, T>(a, a_step, b, b_step, y, count, f); };
  switch (op) {
    case Arithmetic::add:
      return run([](T p, T q) { return static_cast<T>(static_cast<U>(p) + static_cast<U>(q)); });
    case Arithmetic::sub:
      return run([](T p, T q) { return static_cast<T>(static_cast<U>(p) - static_cast<U>(q)); });
    case Arithmetic::mul:
      return run([](T p, T q) { return static_cast<T>(static_cast<U>(p) * static_cast<U>(q)); });
    case Arithmetic::minimum:
      return run([](T p, T q) { return p < q || p != p ? p : q; });
    case Arithmetic::maximum:
      return run([](T p, T q) { return p > q || p != p ? p : q; });
    default:
      if constexpr (static_cast<T>(0.5) != 0) {
        return run([](T p, T q) { return p / q; });
      } else {
        return whole_arithmetic_of<T>(op, a, a_step, b, b_step, y, count);
      }
  }
}

void run_arithmetic(Compute type, Arithmetic op, const void* a, std::int64_t a_step, const void* b,
                    std::int64_t b_step, void* y, std::int64_t count) noexcept {
  switch (type) {
    case Compute::i32:
      return arithmetic_of<std::int32_t>(op, a, a_step, b, b_step, y, count);
    case Compute::i64:
      return arithmetic_of<std::int64_t>(op, a, a_step, b, b_step, y, count);
    case Compute::f64:
      return arithmetic_of<double>(op, a, a_step, b, b_step, y, count);
    case Compute::f32:
      return;
  }
}

template <class T>
void comparison_of(Comparison op, const void* a, std::int64_t a_step, const void* b,
                   std::int64_t b_step, std::uint8_t* y, std::int64_t count) {
  const auto run = [=](auto f) { zip<T, std::uint8_t>(a, a_step, b, b_step, y, count, f); };
  switch (op) {
    case Comparison::eq:
      return run([](T p, T q) -> std::uint8_t { return p == q; });
    case Comparison::ne:
      return run([](T p, T q) -> std::uint8_t { return p != q; });
    case Comparison::lt:
      return run([](T p, T q) -> std::uint8_t { return p < q; });
    case Comparison::le:
      return run([](T p, T q) -> std::uint8_t { return p <= q; });
    case Comparison::gt:
      return run([](T p, T q) -> std::uint8_t { return p > q; });
    case Comparison::ge:
      return run([](T p, T q) -> std::uint8_t { return p >= q; });
  }
}

void run_compare(Compute type, Comparison op, const void* a, std::int64_t a_step, const void* b,
                 std::int64_t b_step, std::uint8_t* y, std::int64_t count) noexcept {
  switch (type) {
    case Compute::i32:
      return comparison_of<std::int32_t>(op, a, a_step, b, b_step, y, count);
    case Compute::i64:
      return comparison_of<std::int64_t>(op, a, a_step, b, b_step, y, count);
    case Compute::f32:
      return comparison_of<float>(op, a, a_step, b, b_step, y, count);
    case Compute::f64:
      return comparison_of<double>(op, a, a_step, b, b_step, y, count);
  }
}

template <std::int64_t a_step, std::int64_t b_step, class T>
void choose_by(const std::uint8_t* c, const T* a, const T* b, T* y, std::int64_t count) {
  TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) {
    const T yes = a[i * a_step], no = b[i * b_step];
    y[i] = c[i] != 0 ? yes : no;
  }
}

template <class T>
void choose_of(const std::uint8_t* c, std::int64_t c_step, const void* a, std::int64_t a_step,
               const void* b, std::int64_t b_step, void* y, std::int64_t count) {
  const auto* p = static_cast<const T*>(a);
  const auto* q = static_cast<const T*>(b);
  auto* out = static_cast<T*>(y);
  if (c_step == 0) {  // all are of one of them
    const T* const from = *c != 0 ? p : q;
    const std::int64_t step = *c != 0 ? a_step : b_step;
    for (std::int64_t i = 0; i < count; ++i) out[i] = from[i * step];
  } else if (a_step != 0) {
    b_step != 0 ? choose_by<1, 1>(c, p, q, out, count) : choose_by<1, 0>(c, p, q, out, count);
  } else {
    b_step != 0 ? choose_by<0, 1>(c, p, q, out, count) : choose_by<0, 0>(c, p, q, out, count);
  }
}

void run_choose(std::int64_t unit, const std::uint8_t* c, std::int64_t c_step, const void* a,
                std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
                std::int64_t count) noexcept {
  switch (unit) {
    case 1:
      return choose_of<std::uint8_t>(c, c_step, a, a_step, b, b_step, y, count);
    case 2:
      return choose_of<std::uint16_t>(c, c_step, a, a_step, b, b_step, y, count);
    case 4:
      return choose_of<std::uint32_t>(c, c_step, a, a_step, b, b_step, y, count);
    default:
      return choose_of<std::uint64_t>(c, c_step, a, a_step, b, b_step, y, count);
  }
}

template <class T, class Sum, class F>
[[gnu::always_inline]] inline void accumulate_of(const void* x, std::int64_t count, void* sums,
                                                 std::int64_t width, F f) {
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<Sum*>(sums);
  constexpr std::int64_t few = 16;
  if (width == few && count >= few) {
    Sum part[few];
    for (std::int64_t i = 0; i < few; ++i) part[i] = to[i];
    for (; count > 0; count -= few, from += few) {
      for (std::int64_t i = 0; i < few; ++i) part[i] = f(part[i], static_cast<Sum>(from[i]));
    }
    for (std::int64_t i = 0; i < few; ++i) to[i] = part[i];
    return;
  }
  for (; count > 0; count -= width, from += width) {
    const std::int64_t columns = count < width ? count : width;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < columns; ++i) {
      to[i] = f(to[i], static_cast<Sum>(from[i]));
    }
  }
}

/// Rows of `size` elements, or of `count`, a multiple of 16, where size is 0.
template <std::int64_t size, class T, class Sum, class F>
[[gnu::always_inline]] inline void accumulate_rows_of(const void* x, std::int64_t count,
                                                      std::int64_t rows, std::int64_t step,
                                                      void* sums, F f) {
  constexpr std::int64_t width = 16;
  const auto* from = static_cast<const char*>(x);
  auto* to = static_cast<Sum*>(sums);
  Sum part[width];
  for (std::int64_t i = 0; i < width; ++i) part[i] = to[i];
  if constexpr (size == 0) {
    for (std::int64_t r = 0; r < rows; ++r, from += step) {
      const auto* row = reinterpret_cast<const T*>(from);
      for (std::int64_t j = 0; j < count; j += width) {
        for (std::int64_t i = 0; i < width; ++i) part[i] = f(part[i], static_cast<Sum>(row[j + i]));
      }
    }
  } else {
    constexpr std::int64_t block = width / size;
    std::int64_t r = 0;
    for (; r + block <= rows; r += block) {
      T line[width];
      for (std::int64_t b = 0; b < block; ++b, from += step) {
        __builtin_memcpy(line + b * size, from, sizeof(T) * static_cast<std::size_t>(size));
      }
      for (std::int64_t i = 0; i < width; ++i) part[i] = f(part[i], static_cast<Sum>(line[i]));
    }
    for (std::int64_t at = 0; r < rows; ++r, from += step, at += size) {
      const auto* row = reinterpret_cast<const T*>(from);
      for (std::int64_t i = 0; i < size; ++i) {
        part[at + i] = f(part[at + i], static_cast<Sum>(row[i]));
      }
    }
  }
  for (std::int64_t i = 0; i < width; ++i) to[i] = part[i];
}

template <class T>
void accumulate_by(Gathering op, const void* x, std::int64_t count, void* sums,
                   std::int64_t width) {
  with_gathering<T>(
      op, [=]<class Sum>(auto f, Kept<Sum>) { accumulate_of<T, Sum>(x, count, sums, width, f); });
}

template <class T>
void accumulate_rows_by(Gathering op, const void* x, std::int64_t count, std::int64_t rows,
                        std::int64_t step, void* sums) {
  with_gathering<T>(op, [=]<class Sum>(auto f, Kept<Sum>) {
    switch (count) {
      case 1:
        return accumulate_rows_of<1, T, Sum>(x, count, rows, step, sums, f);
      case 2:
        return accumulate_rows_of<2, T, Sum>(x, count, rows, step, sums, f);
      case 4:
        return accumulate_rows_of<4, T, Sum>(x, count, rows, step, sums, f);
      case 8:
        return accumulate_rows_of<8, T, Sum>(x, count, rows, step, sums, f);
      default:
        return accumulate_rows_of<0, T, Sum>(x, count, rows, step, sums, f);
    }
  });
}

template <class T>
void accumulate_columns_by(Gathering op, const void* x, std::int64_t columns, std::int64_t rows,
                           std::int64_t step, void* sums) {
  with_gathering<T>(op, [=]<class Sum>(auto f, Kept<Sum>) {
    accumulate_columns_of<T>(x, columns, rows, step, static_cast<Sum*>(sums), f);
  });
}

void run_accumulate_columns(Compute type, Gathering op, const void* x, std::int64_t columns,
                            std::int64_t rows, std::int64_t step, void* sums) noexcept {
  switch (type) {
    case Compute::i32:
      return accumulate_columns_by<std::int32_t>(op, x, columns, rows, step, sums);
    case Compute::i64:
      return accumulate_columns_by<std::int64_t>(op, x, columns, rows, step, sums);
    case Compute::f32:
      return accumulate_columns_by<float>(op, x, columns, rows, step, sums);
    case Compute::f64:
      return accumulate_columns_by<double>(op, x, columns, rows, step, sums);
  }
}

void run_accumulate_rows(Compute type, Gathering op, const void* x, std::int64_t count,
                         std::int64_t rows, std::int64_t step, void* sums) noexcept {
  switch (type) {
    case Compute::i32:
      return accumulate_rows_by<std::int32_t>(op, x, count, rows, step, sums);
    case Compute::i64:
      return accumulate_rows_by<std::int64_t>(op, x, count, rows, step, sums);
    case Compute::f32:
      return accumulate_rows_by<float>(op, x, count, rows, step, sums);
    case Compute::f64:
      return accumulate_rows_by<double>(op, x, count, rows, step, sums);
  }
}

void run_accumulate(Compute type, Gathering op, const void* x, std::int64_t count, void* sums,
                    std::int64_t width) noexcept {
  switch (type) {
    case Compute::i32:
      return accumulate_by<std::int32_t>(op, x, count, sums, width);
    case Compute::i64:
      return accumulate_by<std::int64_t>(op, x, count, sums, width);
    case Compute::f32:
      return accumulate_by<float>(op, x, count, sums, width);
    case Compute::f64:
      return accumulate_by<double>(op, x, count, sums, width);
  }
}

/// `width` columns.
template <int width, bool greatest, class T>
[[gnu::always_inline]] inline void find_places_of(const char* x, std::int64_t rows,
                                                  std::int64_t step, std::int64_t* places) {
  using Place = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  T best[static_cast<unsigned>(width)];
  Place place[static_cast<unsigned>(width)] = {};
  __builtin_memcpy(best, x, sizeof best);
  for (std::int64_t r = 1; r < rows; ++r) {
    const auto* const row = reinterpret_cast<const T*>(x + r * step);
    const auto number = static_cast<Place>(r);
    TENON_INDEPENDENT for (int c = 0; c < width; ++c) {
      const T value = row[c], old = best[c];
      // A NaN is kept; another is not `no better`.
      const bool no_better = greatest ? value <= old : value >= old;
      const bool is_better = !no_better & (old == old);
      best[c] = is_better ? value : old;
      place[c] = is_better ? number : place[c];
    }
  }
  for (int c = 0; c < width; ++c) places[c] = place[c];
}

template <bool greatest, class T>
void find_places_by(const void* x, std::int64_t columns, std::int64_t rows, std::int64_t step,
                    std::int64_t* places) {
  constexpr int wide = 32, narrow = 8;
  const auto* const from = static_cast<const char*>(x);
  constexpr std::int64_t unit = sizeof(T);
  std::int64_t c = 0;
  for (; c + wide <= columns; c += wide) {
    find_places_of<wide, greatest, T>(from + c * unit, rows, step, places + c);
  }
  for (; c + narrow <= columns; c += narrow) {
    find_places_of<narrow, greatest, T>(from + c * unit, rows, step, places + c);
  }
  for (; c < columns; ++c) {
    find_places_of<1, greatest, T>(from + c * unit, rows, step, places + c);
  }
}

template <class T>
void find_places_in(bool greatest, const void* x, std::int64_t columns, std::int64_t rows,
                    std::int64_t step, std::int64_t* places) {
  greatest ? find_places_by<true, T>(x, columns, rows, step, places)
           : find_places_by<false, T>(x, columns, rows, step, places);
}

void run_find_places(Compute type, bool greatest, const void* x, std::int64_t columns,
                     std::int64_t rows, std::int64_t step, std::int64_t* places) noexcept {
  switch (type) {
    case Compute::i32:
      return find_places_in<std::int32_t>(greatest, x, columns, rows, step, places);
    case Compute::i64:
      return find_places_in<std::int64_t>(greatest, x, columns, rows, step, places);
    case Compute::f32:
      return find_places_in<float>(greatest, x, columns, rows, step, places);
    case Compute::f64:
      return find_places_in<double>(greatest, x, columns, rows, step, places);
  }
}

[[gnu::always_inline]] inline std::uint8_t code_of(float x, float scale, std::int32_t zero,
                                                   std::int32_t low, std::int32_t high) {
  constexpr float rounding = 12582912.0f;  // 3 * 2^22: behind it the last bit is worth 1
  const auto least = static_cast<float>(low - zero), most = static_cast<float>(high - zero);
  float q = x / scale;
  q = q > least ? q : least;  // a NaN becomes the lowest
  q = q < most ? q : most;
  return static_cast<std::uint8_t>(static_cast<std::int32_t>((q + rounding) - rounding) + zero);
}

void run_quantize_codes(const QuantizeCall& call, std::uint8_t* y, std::int64_t count) noexcept {
  const std::int32_t low = call.low, high = call.high;
  if (call.x_step == 1 && call.scale_step == 0 && (call.zero == nullptr || call.zero_step == 0)) {
    const float* x = call.x;
    const float scale = *call.scale;
    const std::int32_t zero = call.zero == nullptr ? 0 : *call.zero;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) {
      y[i] = code_of(x[i], scale, zero, low, high);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t zero = call.zero == nullptr ? 0 : call.zero[i * call.zero_step];
    y[i] = code_of(call.x[i * call.x_step], call.scale[i * call.scale_step], zero, low, high);
  }
}

[[gnu::always_inline]] inline float value_of(std::int32_t q, std::int32_t zero, float scale) {
  const auto difference = static_cast<std::uint32_t>(q) - static_cast<std::uint32_t>(zero);
  return static_cast<float>(static_cast<std::int32_t>(difference)) * scale;
}

void run_dequantize_codes(const DequantizeCall& call, float* y, std::int64_t count) noexcept {
  if (call.q_step == 1 && call.scale_step == 0 && (call.zero == nullptr || call.zero_step == 0)) {
    const std::int32_t* q = call.q;
    const float scale = *call.scale;
    const std::int32_t zero = call.zero == nullptr ? 0 : *call.zero;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) y[i] = value_of(q[i], zero, scale);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t zero = call.zero == nullptr ? 0 : call.zero[i * call.zero_step];
    y[i] = value_of(call.q[i * call.q_step], zero, call.scale[i * call.scale_step]);
  }
}

}  // namespace
}  // namespace tenon::cpu
