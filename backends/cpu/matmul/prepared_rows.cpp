#include "prepared_rows.hpp"

#include "../thread_pool.hpp"
#include "kernels.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr std::size_t line = 64;
std::size_t round_to_line(std::size_t bytes) { return (bytes + line - 1) / line * line; }

// Hands out consecutive 64-byte aligned arrays; with no memory behind it, it measures.
struct Carver {
  std::byte* memory;
  std::size_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    T* result = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += round_to_line(static_cast<std::size_t>(count) * sizeof(T));
    return result;
  }
};

/// Rounds to nearest even; |x| < 2^22.
float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }

SecondDigits second_digits_of(const float* x, const std::int8_t* codes, float scale,
                              std::int64_t group) {
  SecondDigits digits{};
  digits.group = static_cast<std::int32_t>(group);
  digits.scale = scale / 254.0f;  // what is left over is at most half a step
  const float inverse = 254.0f / scale;
  std::int32_t sums[2] = {};
  for (int i = 0; i < 32; ++i) {
    const float left = x[i] - static_cast<float>(codes[i]) * scale;
    const auto code =
        static_cast<std::int32_t>(std::clamp(rounded(left * inverse), -127.0f, 127.0f));
    digits.codes[i] = static_cast<std::int8_t>(code);
    sums[i / 16] += code;
  }
  for (int half = 0; half < 2; ++half) {
    digits.half_sums[half] = digits.scale * static_cast<float>(sums[half]);
    digits.negative_half_sums[half] = -sums[half];
  }
  digits.sum = digits.scale * static_cast<float>(sums[0] + sums[1]);
  digits.negative_sum = -sums[0] - sums[1];
  return digits;
}

/// Second digits for the groups of a row that need them; its codes and scales are there.
void add_second_digits(const float* x, const PreparedRows& out, std::int64_t row) {
  constexpr float smallest = 1e-30f;  // scales that 254 can divide
  const std::int64_t groups = out.inputs() / 32;
  const float* scales = out.scales(row);
  double squares = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    squares += static_cast<double>(scales[g]) * static_cast<double>(scales[g]);
  }
  // A scale that is not finite makes the limit so, which nothing exceeds.
  const double limit = 4 * squares / static_cast<double>(groups);
  std::int32_t count = 0;
  for (std::int64_t g = 0; g < groups && count < out.second_capacity(); ++g) {
    const double scale = static_cast<double>(scales[g]);
    if (!(scale * scale > limit) || scales[g] < smallest) continue;
    out.second_digits(row)[count++] =
        second_digits_of(x + 32 * g, out.codes(row) + 32 * g, scales[g], g);
  }
  *out.second_count(row) = count;
}

}  // namespace

PreparedRows::PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs,
                           std::byte* memory) noexcept
    : form_(form), rows_(rows), inputs_(inputs) {
  Carver carver{memory};
  carve(carver);
}

template <class C>
void PreparedRows::carve(C& carver) noexcept {
  if (form_ == RowForm::bf16) {
    bf16_ = carver.template take<std::uint16_t>((rows_ + 31) / 32 * 32 * inputs_);
    return;
  }
  const std::int64_t groups = rows_ * (inputs_ / 32);
  codes_ = carver.template take<std::int8_t>(rows_ * inputs_);
  scales_ = carver.template take<float>(groups);
  sums_ = carver.template take<float>(groups);
  negative_sums_ = carver.template take<std::int32_t>(groups);
  half_sums_ = carver.template take<float>(2 * groups);
  negative_half_sums_ = carver.template take<std::int32_t>(2 * groups);
  second_ = carver.template take<SecondDigits>(rows_ * second_capacity());
  second_count_ = carver.template take<std::int32_t>(rows_);
}

SecondDigits* PreparedRows::second_digits(std::int64_t row) const noexcept {
  return second_ + row * second_capacity();
}

std::size_t PreparedRows::size_bytes(RowForm form, std::int64_t rows,
                                     std::int64_t inputs) noexcept {
  Carver carver{nullptr};
  PreparedRows measure;
  measure.form_ = form;
  measure.rows_ = rows;
  measure.inputs_ = inputs;
  measure.carve(carver);
  return carver.used;
}

RowForm PreparedRows::preferred_form(std::int64_t rows, Isa isa) noexcept {
  return rows >= 16 && matmul_kernels(isa).tiles != nullptr ? RowForm::bf16 : RowForm::int8;
}

void prepare_rows(const float* x, std::int64_t stride, const PreparedRows& out, int thread,
                  int threads, Isa isa) noexcept {
  const std::int64_t inputs = out.inputs();
  if (out.form() == RowForm::bf16) {
    const Range blocks = split((out.rows() + 31) / 32, thread, threads);
    for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
      const std::int64_t row = 32 * b;
      amx::round_rows(x + row * stride, stride, std::min<std::int64_t>(32, out.rows() - row),
                      inputs, out.tile(2 * b, 0));
    }
    return;
  }
  const Range rows = split(out.rows(), thread, threads);
  matmul_kernels(isa).quantize({x + rows.begin * stride, stride, rows.end - rows.begin, inputs,
                                out.codes(rows.begin), out.scales(rows.begin), out.sums(rows.begin),
                                out.negative_sums(rows.begin), out.half_sums(rows.begin),
                                out.negative_half_sums(rows.begin)});
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    add_second_digits(x + row * stride, out, row);
  }
}

}  // namespace tenon::cpu
