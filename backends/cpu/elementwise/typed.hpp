// Kernels on other element types than f32. They compute in four types; the narrower ones are
// widened to one of them block by block.
#pragma once

#include <tenon/dtype.hpp>

#include <cstdint>

namespace tenon::cpu {

enum class Compute : std::uint8_t { i32, i64, f32, f64 };

/// bool, i8 .. i32 and u8, u16: i32; u32 and i64: i64; f16, bf16 and f32: f32; f64: f64.
/// `dtype` is a plain type.
Compute compute_type(DType dtype) noexcept;
constexpr std::int64_t compute_bytes(Compute type) noexcept {
  return type == Compute::i32 || type == Compute::f32 ? 4 : 8;
}
/// Whether elements of that type lie in memory as kernels compute with them.
bool is_computed_as_stored(DType dtype) noexcept;

/// Elements of `from` as its compute type; a bool as 0 or 1.
void widen(DType from, const void* x, void* y, std::int64_t count) noexcept;
/// Back to `to` from its compute type: modulo 2^bits, rounded to nearest even; to bool: not 0.
void narrow(DType to, const void* x, void* y, std::int64_t count) noexcept;

/// Elements of any plain type from sums or extremes, which are within a whole number's range: of
/// floating types rounded once, to nearest even; to bool: not 0.
void narrow_sums(DType to, const std::int64_t* x, void* y, std::int64_t count) noexcept;
void narrow_sums(DType to, const double* x, void* y, std::int64_t count) noexcept;

/// Whole numbers wrap around, and are divided as Div, Remainder and Fmod have it; a NaN makes minimum and maximum NaN. Not for
/// f32, see elementwise.hpp; what follows maximum only for whole numbers.
enum class Arithmetic : std::uint8_t {
  add,
  sub,
  mul,
  div,
  minimum,
  maximum,
  remainder,
  fmod,
  shift_left,
  shift_right
};
/// y[i] = f(a[i * a_step], b[i * b_step]), steps 0 or 1, all of type `type`; y may be a or b.
void arithmetic(Compute type, Arithmetic op, const void* a, std::int64_t a_step, const void* b,
                std::int64_t b_step, void* y, std::int64_t count) noexcept;

enum class Comparison : std::uint8_t { eq, ne, lt, le, gt, ge };
/// y[i] = 1 where the comparison holds, else 0.
void compare(Compute type, Comparison op, const void* a, std::int64_t a_step, const void* b,
             std::int64_t b_step, std::uint8_t* y, std::int64_t count) noexcept;

/// y[i] = c[i] ? a[i] : b[i], elements of `unit` bytes (1, 2, 4, 8), steps as above.
void choose(std::int64_t unit, const std::uint8_t* c, std::int64_t c_step, const void* a,
            std::int64_t a_step, const void* b, std::int64_t b_step, void* y,
            std::int64_t count) noexcept;

/// y[i] = clamp(round(x[i] / scale[i]) + zero[i], low, high), one byte each, of i8 or u8: the
/// contract of QuantizeLinear. Steps as above; zero: null for 0.
struct QuantizeCall {
  const float *x, *scale;
  const std::int32_t* zero;
  std::int64_t x_step, scale_step, zero_step;
  std::int32_t low, high;
};
void quantize_codes(const QuantizeCall& call, std::uint8_t* y, std::int64_t count) noexcept;
/// y[i] = float(q[i] - zero[i]) * scale[i], differences modulo 2^32: that of DequantizeLinear.
struct DequantizeCall {
  const std::int32_t *q, *zero;
  const float* scale;
  std::int64_t q_step, zero_step, scale_step;
};
void dequantize_codes(const DequantizeCall& call, float* y, std::int64_t count) noexcept;

enum class Gathering : std::uint8_t { sum, product, max, min };
/// sums[i % width] = f(sums[i % width], x[i]), in order. Sums and products are i64 for whole numbers and f64 for others,
/// extremes of the type itself. A NaN makes max and min NaN. `count` is a multiple of width, or less than it.
void accumulate(Compute type, Gathering op, const void* x, std::int64_t count, void* sums,
                std::int64_t width) noexcept;
/// The same with width 16 of `rows` rows of `count` elements, `step` bytes apart, one behind the
/// other. `count` is a multiple of 16, or divides it.
void accumulate_rows(Compute type, Gathering op, const void* x, std::int64_t count,
                     std::int64_t rows, std::int64_t step, void* sums) noexcept;
/// sums[c] = f(sums[c], x) of the numbers x of column c, in order: `rows` rows of `columns` adjacent elements, `step` bytes
/// apart.
void accumulate_columns(Compute type, Gathering op, const void* x, std::int64_t columns,
                        std::int64_t rows, std::int64_t step, void* sums) noexcept;
/// sums[r] = what the `count` elements of row r fold to, from 1 on. Element i belongs to sum i mod 16, and the 16 are folded
/// by halves; less than 16 in order; extremes in any order. Rows are `step` bytes apart. Of f32, but for products, what sum_row, max_row and
/// min_row of elementwise.hpp give.
void fold_rows(Compute type, Gathering op, const void* x, std::int64_t step, std::int64_t rows,
               std::int64_t count, void* sums) noexcept;

/// places[c] = the row of the greatest (smallest) number of column c, of equal ones the first; a NaN beats all. `rows`, from 1
/// on and less than 2^31, of `columns` adjacent elements, `step` bytes apart.
void find_places(Compute type, bool greatest, const void* x, std::int64_t columns,
                 std::int64_t rows, std::int64_t step, std::int64_t* places) noexcept;

}  // namespace tenon::cpu
