#include "prepared_rows.hpp"

#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "matmul_kernels.hpp"
#include "tile_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

// Allocates consecutive 64-byte aligned arrays; without memory it only counts bytes.
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

/// Quantises what the codes of a group of 32 elements leave over: entry `entry` of the outlier
/// residuals.
void add_outlier_residuals(const float* x, const Int8Row& first, std::int64_t group,
                           const Int8Row& residual, std::int64_t entry) {
  const float scale = first.scales[first.step * group];
  const float inverse = 254.0f / scale;  // what is left over is at most half a step
  const std::int64_t at = residual.step * entry;
  std::int32_t sums[2] = {};
  for (int i = 0; i < 32; ++i) {
    const float left = x[i] - static_cast<float>(first.code(32 * group + i)) * scale;
    const auto code =
        static_cast<std::int32_t>(std::clamp(rounded(left * inverse), -127.0f, 127.0f));
    residual.codes[32 * at + 4 * residual.step * (i / 4) + i % 4] = static_cast<std::int8_t>(code);
    sums[i / 16] += code;
  }
  residual.scales[at] = scale / 254.0f;
  residual.sums[at] = residual.scales[at] * static_cast<float>(sums[0] + sums[1]);
  residual.negative_sums[at] = -sums[0] - sums[1];
  for (int half = 0; half < 2; ++half) {
    residual.half_sums[2 * at + half * residual.step] =
        residual.scales[at] * static_cast<float>(sums[half]);
    residual.negative_half_sums[2 * at + half * residual.step] = -sums[half];
  }
}

void clear_entry(const Int8Row& residual, std::int64_t entry) {
  const std::int64_t at = residual.step * entry;
  for (int quad = 0; quad < 8; ++quad) {
    std::memset(residual.codes + 32 * at + 4 * residual.step * quad, 0, 4);
  }
  residual.scales[at] = residual.sums[at] = 0.0f;
  residual.negative_sums[at] = 0;
  for (int half = 0; half < 2; ++half) {
    residual.half_sums[2 * at + half * residual.step] = 0.0f;
    residual.negative_half_sums[2 * at + half * residual.step] = 0;
  }
}

/// Groups get outlier residuals whose scale exceeds the root mean square of the row's scales times
/// this.
constexpr double outlier_threshold = 3;

/// The largest square of a scale that needs no outlier residual in this row.
double limit_of(const Int8Row& row, std::int64_t groups) {
  double squares = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto scale = static_cast<double>(row.scales[row.step * g]);
    squares += scale * scale;
  }
  // A scale that is not finite makes the limit not finite, and nothing exceeds it.
  return outlier_threshold * outlier_threshold * squares / static_cast<double>(groups);
}

/// Outlier residuals for the groups of a block of rows that need them, after its codes and scales
/// have been computed.
void add_outlier_residuals(const float* x, std::int64_t stride, const PreparedRows& out,
                           std::int64_t first, std::int64_t count) {
  constexpr float smallest = 1e-30f;  // scales that 254 can divide
  const std::int64_t groups = out.inputs() / 32, most = groups / 4;
  struct Row {
    Int8Row codes, residual;
    double limit;
    std::int64_t entries = 0;
  };
  Row rows[max_interleaved_rows];
  for (std::int64_t r = 0; r < count; ++r) {
    const Int8Row row = out.row(first + r);
    rows[r] = {row, out.outlier_residuals(first + r).row, limit_of(row, groups)};
  }
  std::int32_t entries = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    unsigned needing = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const float scale = rows[r].codes.scales[rows[r].codes.step * g];
      const auto wide = static_cast<double>(scale);
      if (wide * wide > rows[r].limit && scale >= smallest && rows[r].entries < most) {
        needing |= 1u << r;
      }
    }
    if (needing == 0) continue;
    for (std::int64_t r = 0; r < count; ++r) {
      Row& row = rows[r];
      if ((needing >> r & 1u) == 0) {
        clear_entry(row.residual, entries);
        continue;
      }
      add_outlier_residuals(x + r * stride + 32 * g, row.codes, g, row.residual, entries);
      ++row.entries;
    }
    out.outlier_groups()[first * groups + entries++] = static_cast<std::int32_t>(g);
  }
  out.outlier_count()[first] = entries;
}

}  // namespace

PreparedRows::PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs, std::byte* memory,
                           Isa isa) noexcept
    : form_(form),
      rows_(rows),
      inputs_(inputs),
      block_rows_(rows <= direct_rows ? direct_block_rows : matmul_kernels(isa).block_rows) {
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
  for (RowNumbers* numbers : {&numbers_, &outliers_}) {
    numbers->codes = carver.template take<std::int8_t>(rows_ * inputs_);
    numbers->scales = carver.template take<float>(groups);
    numbers->sums = carver.template take<float>(groups);
    numbers->negative_sums = carver.template take<std::int32_t>(groups);
    numbers->half_sums = carver.template take<float>(2 * groups);
    numbers->negative_half_sums = carver.template take<std::int32_t>(2 * groups);
  }
  outlier_groups_ = carver.template take<std::int32_t>(groups);
  outlier_count_ = carver.template take<std::int32_t>(rows_);
}

PreparedRows::Block PreparedRows::block_of(std::int64_t row) const noexcept {
  // Only the last full block may be followed by smaller ones.
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

Int8Row PreparedRows::row(std::int64_t row) const noexcept { return row_of(numbers_, row); }

OutlierResiduals PreparedRows::outlier_residuals(std::int64_t row) const noexcept {
  const std::int64_t first = block_of(row).first;
  return {row_of(outliers_, row), outlier_groups_ + first * (inputs_ / 32), outlier_count_[first]};
}

std::optional<RowForm> PreparedRows::form_for(DType dtype, std::int64_t rows, std::int64_t inputs,
                                              Isa isa) noexcept {
  // Where tiles break even: widening a block type's weights to bf16 costs as much as an int8 GEMM
  // with so many rows, rounding f16 weights as much as an f32 GEMM. Weights of bf16 need neither:
  // tiles read them at the speed of memory, an f32 GEMM does so with up to four rows only.
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
    // A few tiles at a time: the lines of one tile are contiguous, those of a row's tiles are not.
    constexpr std::int64_t at_once = 4 * 32;
    const std::int64_t columns = ceil_div(inputs, at_once);
    const Range items = split(ceil_div(out.rows(), 16) * columns, thread, threads);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t block = item / columns, first = item % columns * at_once;
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
    add_outlier_residuals(x + first * stride, stride, out, first, count);
    first += count;
  }
}

void round_row(const float* x, const PreparedRows& out, std::int64_t row) noexcept {
  amx::round_row(x, out.inputs(), out.tile(row / 16, 0) + row % 16 * 32);
}

}  // namespace tenon::cpu
