#include "prepared_rows.hpp"

#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "kernels.hpp"
#include "tile_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

constexpr std::size_t line = 64;
std::size_t round_to_line(std::size_t bytes) { return round_up(bytes, line); }

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

/// What the codes of 32 elements leave over, as entry `entry` of the second digits.
void add_second_digits(const float* x, const Int8Row& first, std::int64_t group,
                       const Int8Row& second, std::int64_t entry) {
  const float scale = first.scales[first.step * group];
  const float inverse = 254.0f / scale;  // what is left over is at most half a step
  const std::int64_t at = second.step * entry;
  std::int32_t sums[2] = {};
  for (int i = 0; i < 32; ++i) {
    const float left = x[i] - static_cast<float>(first.code(32 * group + i)) * scale;
    const auto code =
        static_cast<std::int32_t>(std::clamp(rounded(left * inverse), -127.0f, 127.0f));
    second.codes[32 * at + 4 * second.step * (i / 4) + i % 4] = static_cast<std::int8_t>(code);
    sums[i / 16] += code;
  }
  second.scales[at] = scale / 254.0f;
  second.sums[at] = second.scales[at] * static_cast<float>(sums[0] + sums[1]);
  second.negative_sums[at] = -sums[0] - sums[1];
  for (int half = 0; half < 2; ++half) {
    second.half_sums[2 * at + half * second.step] =
        second.scales[at] * static_cast<float>(sums[half]);
    second.negative_half_sums[2 * at + half * second.step] = -sums[half];
  }
}

void clear_entry(const Int8Row& second, std::int64_t entry) {
  const std::int64_t at = second.step * entry;
  for (int quad = 0; quad < 8; ++quad) {
    std::memset(second.codes + 32 * at + 4 * second.step * quad, 0, 4);
  }
  second.scales[at] = second.sums[at] = 0.0f;
  second.negative_sums[at] = 0;
  for (int half = 0; half < 2; ++half) {
    second.half_sums[2 * at + half * second.step] = 0.0f;
    second.negative_half_sums[2 * at + half * second.step] = 0;
  }
}

/// Times the root of a row's mean squared scale: the scales from which on groups get second digits.
constexpr double second_digits_from = 3;

/// The largest square of a scale in a row that needs no second digits.
double limit_of(const Int8Row& row, std::int64_t groups) {
  double squares = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto scale = static_cast<double>(row.scales[row.step * g]);
    squares += scale * scale;
  }
  // A scale that is not finite makes the limit so, which nothing exceeds.
  return second_digits_from * second_digits_from * squares / static_cast<double>(groups);
}

/// Second digits for the groups of a block of rows that need them; its codes and scales are there.
void add_second_digits(const float* x, std::int64_t stride, const PreparedRows& out,
                       std::int64_t first, std::int64_t count) {
  constexpr float smallest = 1e-30f;  // scales that 254 can divide
  const std::int64_t groups = out.inputs() / 32, most = groups / 4;
  struct Row {
    Int8Row first, second;
    double limit;
    std::int64_t entries = 0;
  };
  Row rows[max_interleaved_rows];
  for (std::int64_t r = 0; r < count; ++r) {
    const Int8Row row = out.row(first + r);
    rows[r] = {row, out.second_digits(first + r).row, limit_of(row, groups)};
  }
  std::int32_t entries = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    unsigned needing = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const float scale = rows[r].first.scales[rows[r].first.step * g];
      const auto wide = static_cast<double>(scale);
      if (wide * wide > rows[r].limit && scale >= smallest && rows[r].entries < most) {
        needing |= 1u << r;
      }
    }
    if (needing == 0) continue;
    for (std::int64_t r = 0; r < count; ++r) {
      Row& row = rows[r];
      if ((needing >> r & 1u) == 0) {
        clear_entry(row.second, entries);
        continue;
      }
      add_second_digits(x + r * stride + 32 * g, row.first, g, row.second, entries);
      ++row.entries;
    }
    out.second_groups()[first * groups + entries++] = static_cast<std::int32_t>(g);
  }
  out.second_count()[first] = entries;
}

}  // namespace

PreparedRows::PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs, std::byte* memory,
                           Isa isa) noexcept
    : form_(form), rows_(rows), inputs_(inputs), block_rows_(matmul_kernels(isa).block_rows) {
  Carver carver{memory};
  carve(carver);
}

template <class C>
void PreparedRows::carve(C& carver) noexcept {
  if (form_ == RowForm::bf16) {
    bf16_ = carver.template take<std::uint16_t>(round_up(rows_, 16) * inputs_);
    return;
  }
  const std::int64_t groups = rows_ * (inputs_ / 32);
  for (RowNumbers* numbers : {&first_, &second_}) {
    numbers->codes = carver.template take<std::int8_t>(rows_ * inputs_);
    numbers->scales = carver.template take<float>(groups);
    numbers->sums = carver.template take<float>(groups);
    numbers->negative_sums = carver.template take<std::int32_t>(groups);
    numbers->half_sums = carver.template take<float>(2 * groups);
    numbers->negative_half_sums = carver.template take<std::int32_t>(2 * groups);
  }
  second_groups_ = carver.template take<std::int32_t>(groups);
  second_count_ = carver.template take<std::int32_t>(rows_);
}

PreparedRows::Block PreparedRows::block_of(std::int64_t row) const noexcept {
  // Only the last block of whole size may be followed by others.
  std::int64_t first = std::min(row, rows_) / block_rows_ * block_rows_;
  std::int64_t count = rows_of_block(rows_ - first, block_rows_);
  while (row >= first + count && first + count < rows_) {
    first += count;
    count = rows_of_block(rows_ - first, block_rows_);
  }
  return {first, count};
}

Int8Row PreparedRows::row_of(const RowNumbers& numbers, std::int64_t row) const noexcept {
  const Block block = block_of(row);
  const std::int64_t groups = inputs_ / 32, in = row - block.first;
  const std::int64_t at = block.first * groups + in, half_at = 2 * block.first * groups + in;
  return {{numbers.codes + block.first * inputs_ + 4 * in, numbers.scales + at, numbers.sums + at,
           numbers.negative_sums + at, numbers.half_sums + half_at,
           numbers.negative_half_sums + half_at},
          block.count};
}

Int8Row PreparedRows::row(std::int64_t row) const noexcept { return row_of(first_, row); }

SecondDigits PreparedRows::second_digits(std::int64_t row) const noexcept {
  const std::int64_t first = block_of(row).first;
  return {row_of(second_, row), second_groups_ + first * (inputs_ / 32), second_count_[first]};
}

std::optional<RowForm> PreparedRows::form_for(DType dtype, std::int64_t rows, std::int64_t inputs,
                                              Isa isa) noexcept {
  // Widening a block type's weights to bf16 costs as much as integer products with these rows,
  // rounding f16 as much as f32 products; bf16 needs neither, and is as fast as memory gives it
  // where f32 products of more than four rows fall behind.
  constexpr std::int64_t tiles_of_blocks = 28, tiles_of_f16 = 16, tiles_of_bf16 = 5;
  const bool has_tiles = matmul_kernels(isa).tiles != nullptr;
  if (is_block(dtype)) {
    return has_tiles && rows >= tiles_of_blocks ? RowForm::bf16 : RowForm::int8;
  }
  if (!has_tiles || inputs % 32 != 0) return std::nullopt;
  const bool is_profitable = (dtype == DType::bf16 && rows >= tiles_of_bf16) ||
                             (dtype == DType::f16 && rows >= tiles_of_f16);
  return is_profitable ? std::optional(RowForm::bf16) : std::nullopt;
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

void prepare_rows(const float* x, std::int64_t stride, const PreparedRows& out, int thread,
                  int threads, Isa isa) noexcept {
  const std::int64_t inputs = out.inputs();
  if (out.form() == RowForm::bf16) {
    // A few tiles at a time: lines of one tile follow one another, those of a row's tiles lie
    // apart.
    constexpr std::int64_t at_once = 4 * 32;
    const std::int64_t stretches = ceil_div(inputs, at_once);
    const Range items = split(ceil_div(out.rows(), 16) * stretches, thread, threads);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t block = item / stretches, first = item % stretches * at_once;
      const amx::RoundingJob job{x + 16 * block * stride, stride,
                                 std::min<std::int64_t>(16, out.rows() - 16 * block),
                                 out.tile(block, 0)};
      amx::round_rows(job, first, std::min(first + at_once, inputs));
    }
    return;
  }
  const QuantizeKernel quantize = matmul_kernels(isa).quantize;
  const std::int64_t most = out.block_rows();
  const Range whole = split(ceil_div(out.rows(), most), thread, threads);
  const std::int64_t end = std::min(whole.end * most, out.rows());
  for (std::int64_t first = whole.begin * most; first < end;) {
    const std::int64_t count = rows_of_block(out.rows() - first, most);
    for (std::int64_t row = first; row < first + count; ++row) {
      const Int8Row to = out.row(row);
      quantize({x + row * stride, inputs, to.step, to});
    }
    add_second_digits(x + first * stride, stride, out, first, count);
    first += count;
  }
}

void round_row(const float* x, const PreparedRows& out, std::int64_t row) noexcept {
  amx::round_row(x, out.inputs(), out.tile(row / 16, 0) + row % 16 * 32);
}

}  // namespace tenon::cpu
