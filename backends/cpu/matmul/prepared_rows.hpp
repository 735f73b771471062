#pragma once

#include "../cpu_features.hpp"
#include "matmul_kernels.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tenon::cpu {

/// The form of activations that the fast kernels read.
enum class RowForm : std::uint8_t {
  int8,  ///< a byte per element, a scale per 32 elements
  bf16,  ///< rounded to bf16, in AMX tile order
};

/// Where the numbers of one int8 row are stored: element i's code at [4 * step * (i / 4) + i % 4],
/// of 32 elements g the others at [step * g].
struct Int8Row : RowNumbers {
  std::int64_t step;

  std::int8_t code(std::int64_t i) const noexcept { return codes[4 * step * (i / 4) + i % 4]; }
};

/// Outlier residuals of a row: entry e is for the group groups[e].
struct OutlierResiduals {
  Int8Row row;
  const std::int32_t* groups;
  std::int64_t count;
};

/// Activation rows X[M, K] in a form that several linear layers can share.
///
/// A view of memory that the caller provides (at least `size_bytes`, 64-byte aligned), so that a
/// memory plan can place it. Copyable, owns nothing.
///
/// int8: with a = max |x| over 32 elements, scale = a / 127 and q = round-to-even(x * 127 / a) in
/// [-127, 127]; sums of q per 16 and 32 elements are kept for weights with offsets. A NaN or
/// infinity makes the scale of its 32 elements, and so every output of its row, NaN or infinite.
/// Rows are interleaved in blocks of as many rows as a kernel's tile has (`rows_of_block`), so that
/// a tile reads one stream.
///
/// An outlier makes the scale of its group, and with it the error of the group's 31 other elements,
/// many times larger than in other groups. Groups whose scale exceeds three times the root mean
/// square of the row's scales, at most a quarter of them, therefore have an outlier residual: what
/// their codes leave over, quantised to int8 again. In language models these are a few percent of
/// the groups; without them SmolLM2's divergence from exact is 0.00165 instead of 0.00106. The rows
/// of a block share the list of such groups, since outliers recur in the same channels; a row that
/// does not need one has zeros there.
class PreparedRows {
 public:
  /// The form that M rows take for W[N, K] of `dtype` in fast precision: for block types int8, or
  /// bf16 tiles from 28 rows on where `isa` has AMX; for bf16 such tiles from 5 rows on, for f16
  /// from 16. None where rows stay f32. Rows of one buffer can feed all layers that take their
  /// form.
  static std::optional<RowForm> form_for(DType dtype, std::int64_t rows, std::int64_t inputs,
                                         Isa isa = active_isa()) noexcept;

  /// K is the row length; must be a multiple of 32.
  static std::size_t size_bytes(RowForm form, std::int64_t rows, std::int64_t inputs) noexcept;

  PreparedRows() = default;
  PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs, std::byte* memory,
               Isa isa = active_isa()) noexcept;

  RowForm form() const noexcept { return form_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t inputs() const noexcept { return inputs_; }

  /// int8 form. Blocks are contiguous: the arrays of a block's first row start where those of
  /// row-major rows would.
  Int8Row row(std::int64_t row) const noexcept;

  OutlierResiduals outlier_residuals(std::int64_t row) const noexcept;

  /// int8 form: what a kernel reads.
  const RowNumbers& numbers() const noexcept { return numbers_; }
  const RowNumbers& outliers() const noexcept { return outliers_; }
  std::int32_t* outlier_groups() const noexcept { return outlier_groups_; }
  std::int32_t* outlier_count() const noexcept { return outlier_count_; }
  std::int64_t block_rows() const noexcept { return block_rows_; }

  // bf16 form: tiles of 16 rows by 32 elements, tiles of one row block adjacent; M padded to 16.
  std::uint16_t* tile(std::int64_t row_block, std::int64_t k_block) const noexcept {
    return bf16_ + (row_block * (inputs_ / 32) + k_block) * (16 * 32);
  }

 private:
  struct Block {
    std::int64_t first, count;
  };
  Block block_of(std::int64_t row) const noexcept;
  Int8Row row_of(const RowNumbers& numbers, std::int64_t row) const noexcept;
  template <class Carver>
  void carve(Carver& carver) noexcept;

  RowForm form_ = RowForm::int8;
  std::int64_t rows_ = 0;
  std::int64_t inputs_ = 0;
  std::int64_t block_rows_ = 1;
  RowNumbers numbers_{};
  RowNumbers outliers_{};
  std::int32_t* outlier_groups_ = nullptr;
  std::int32_t* outlier_count_ = nullptr;
  std::uint16_t* bf16_ = nullptr;
};

/// Computes this thread's share of `out` from x, row-major with `stride` elements from row to row.
/// All threads in [0, threads) must call it and then synchronise before a `linear` reads `out`.
/// `isa` must be that of `out`.
void prepare_rows(const float* x, std::int64_t stride, const PreparedRows& out, int thread,
                  int threads, Isa isa = active_isa()) noexcept;

/// One row in bf16 form. Other threads may write other rows at the same time.
void round_row(const float* x, const PreparedRows& out, std::int64_t row) noexcept;

}  // namespace tenon::cpu
