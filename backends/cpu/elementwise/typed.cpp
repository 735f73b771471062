#include "typed.hpp"

#include "base/immortal.hpp"
#include "conversion_kernels.hpp"
#include "elementwise.hpp"
#include "elementwise_kernels.hpp"

#include <tenon/host_view.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::cpu {
namespace {

/// By a table of all codes.
template <class Code>
void widen_8(const void* x, void* y, std::int64_t count) {
  const std::array<float, 256>& numbers = process_wide([] {
    std::array<float, 256> table{};
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = to_float(Code{static_cast<std::uint8_t>(i)});
    }
    return table;
  });
  const auto* from = static_cast<const std::uint8_t*>(x);
  auto* to = static_cast<float*>(y);
  for (std::int64_t i = 0; i < count; ++i) to[i] = numbers[from[i]];
}

template <auto to_code>
void narrow_8(const void* x, void* y, std::int64_t count) {
  const auto* from = static_cast<const float*>(x);
  auto* to = static_cast<std::uint8_t*>(y);
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_code(from[i]).bits;
}

/// By way of f32 rounded to odd, so that what rounds a second time sees on which side of a tie the number
/// was.
void narrow_halves(DType to, const double* x, std::uint16_t* y, std::int64_t count) noexcept {
  constexpr std::int64_t block = 256;
  float odd[block];
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t some = std::min(block, count - first);
    elementwise_kernels().round_to_odd(x + first, odd, some);
    narrow(to, odd, y + first, some);
  }
}

}  // namespace

Compute compute_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f32:
      return Compute::f32;
    case DType::f64:
      return Compute::f64;
    case DType::u32:
    case DType::i64:
    case DType::u64:  // by its bits
      return Compute::i64;
    default:
      return Compute::i32;
  }
}

bool is_computed_as_stored(DType dtype) noexcept {
  return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u64 || dtype == DType::f32 ||
         dtype == DType::f64;
}

void widen(DType from, const void* x, void* y, std::int64_t count) noexcept {
  switch (from) {
    case DType::f16:
      return f16_to_f32(static_cast<const std::uint16_t*>(x), static_cast<float*>(y), count);
    case DType::bf16:
      return bf16_to_f32(static_cast<const std::uint16_t*>(x), static_cast<float*>(y), count);
    case DType::f8_e4m3:
      return widen_8<float8_e4m3>(x, y, count);
    case DType::f8_e5m2:
      return widen_8<float8_e5m2>(x, y, count);
    default:
      if (const auto convert = conversion_kernels().widening(from)) return convert(x, y, count);
      std::memcpy(y, x, static_cast<std::size_t>(count * block_bytes(from)));
  }
}

void narrow(DType to, const void* x, void* y, std::int64_t count) noexcept {
  switch (to) {
    case DType::f16:
      return f32_to_f16(static_cast<const float*>(x), static_cast<std::uint16_t*>(y), count);
    case DType::bf16:
      return f32_to_bf16(static_cast<const float*>(x), static_cast<std::uint16_t*>(y), count);
    case DType::f8_e4m3:
      return narrow_8<to_float8_e4m3>(x, y, count);
    case DType::f8_e5m2:
      return narrow_8<to_float8_e5m2>(x, y, count);
    default:
      if (const auto convert = conversion_kernels().narrowing(to)) return convert(x, y, count);
      std::memcpy(y, x, static_cast<std::size_t>(count * block_bytes(to)));
  }
}

void narrow_sums(DType to, const std::int64_t* x, void* y, std::int64_t count) noexcept {
  switch (to) {
    case DType::i64:
    case DType::u64:
      std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof *x);
      return;
    case DType::i32:
    case DType::u32:
      return conversion_kernels().narrowing(DType::u32)(x, y, count);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        store_int64(to, static_cast<std::byte*>(y) + i * block_bytes(to), x[i]);
      }
  }
}

void narrow_sums(DType to, const double* x, void* y, std::int64_t count) noexcept {
  switch (to) {
    case DType::f64:
      std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof *x);
      return;
    case DType::f32:
      return conversion_kernels().saturation(Compute::f64, DType::f32)(x, y, count);
    case DType::f16:
    case DType::bf16:
      return narrow_halves(to, x, static_cast<std::uint16_t*>(y), count);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        store_double(to, static_cast<std::byte*>(y) + i * block_bytes(to), x[i]);
      }
  }
}

void arithmetic(Compute type, Arithmetic op, const void* a, std::int64_t a_step, const void* b,
                std::int64_t b_step, void* y, std::int64_t count) noexcept {
  elementwise_kernels().arithmetic(type, op, a, a_step, b, b_step, y, count);
}

void compare(Compute type, Comparison op, const void* a, std::int64_t a_step, const void* b,
             std::int64_t b_step, std::uint8_t* y, std::int64_t count) noexcept {
  elementwise_kernels().compare(type, op, a, a_step, b, b_step, y, count);
}

void choose(std::int64_t unit, const std::uint8_t* c, std::int64_t c_step, const void* a,
            std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
            std::int64_t count) noexcept {
  elementwise_kernels().choose(unit, c, c_step, a, a_step, b, b_step, y, count);
}

void quantize_codes(const QuantizeCall& call, std::uint8_t* y, std::int64_t count) noexcept {
  elementwise_kernels().quantize_codes(call, y, count);
}

void dequantize_codes(const DequantizeCall& call, float* y, std::int64_t count) noexcept {
  elementwise_kernels().dequantize_codes(call, y, count);
}

void accumulate(Compute type, Gathering op, const void* x, std::int64_t count, void* sums,
                std::int64_t width) noexcept {
  elementwise_kernels().accumulate(type, op, x, count, sums, width);
}

void accumulate_rows(Compute type, Gathering op, const void* x, std::int64_t count,
                     std::int64_t rows, std::int64_t step, void* sums) noexcept {
  elementwise_kernels().accumulate_rows(type, op, x, count, rows, step, sums);
}

void accumulate_columns(Compute type, Gathering op, const void* x, std::int64_t columns,
                        std::int64_t rows, std::int64_t step, void* sums) noexcept {
  elementwise_kernels().accumulate_columns(type, op, x, columns, rows, step, sums);
}

void find_places(Compute type, bool greatest, const void* x, std::int64_t columns,
                 std::int64_t rows, std::int64_t step, std::int64_t* places) noexcept {
  elementwise_kernels().find_places(type, greatest, x, columns, rows, step, places);
}

void fold_rows(Compute type, Gathering op, const void* x, std::int64_t step, std::int64_t rows,
               std::int64_t count, void* sums) noexcept {
  elementwise_kernels().fold_rows(type, op, x, step, rows, count, sums);
}

}  // namespace tenon::cpu
