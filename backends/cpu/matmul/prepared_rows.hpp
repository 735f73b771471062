#pragma once

#include "../cpu_features.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

struct SecondDigits;

/// How activations are handed to the fast kernels.
enum class RowForm : std::uint8_t {
  int8,  ///< a byte per element, a scale per 32 elements
  bf16,  ///< rounded to bf16, in AMX tile order
};

/// Activation rows X[M, K] in a form that several linear layers can share.
///
/// A view of memory that the caller provides (at least `size_bytes`, 64-byte aligned), so that a
/// memory plan can place it. Copyable, owns nothing.
///
/// int8: with a = max |x| over 32 elements, scale = a / 127 and q = round-to-even(x * 127 / a) in
/// [-127, 127]; sums of q per 16 and 32 elements are kept for weights with offsets. A NaN or
/// infinity makes the scale of its 32 elements, and so every output of its row, NaN or infinite.
///
/// An outlier makes its group's scale, and with it the error of its 31 neighbours, many times
/// larger than the other groups'. Groups whose scale exceeds twice the root of the row's mean
/// squared scale, at most a quarter of them, therefore get second digits: what their codes leave
/// over, in int8 again. In language models some five groups in a hundred are such; they make three
/// quarters of the error (SmolLM2's divergence from exact falls to two fifths).
class PreparedRows {
 public:
  /// The form that `linear` wants for M rows and weights of `dtype` at `isa`: bf16 tiles for
  /// M >= 16 on AMX, otherwise int8 for block types. Rows of one buffer can feed all block types.
  static RowForm preferred_form(std::int64_t rows, Isa isa = active_isa()) noexcept;

  /// K is the row length; must be a multiple of 32.
  static std::size_t size_bytes(RowForm form, std::int64_t rows, std::int64_t inputs) noexcept;

  PreparedRows() = default;
  PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs, std::byte* memory) noexcept;

  RowForm form() const noexcept { return form_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t inputs() const noexcept { return inputs_; }

  // int8 form; one array per row, arrays of consecutive rows adjacent.
  std::int8_t* codes(std::int64_t row) const noexcept { return codes_ + row * inputs_; }
  float* scales(std::int64_t row) const noexcept { return scales_ + row * (inputs_ / 32); }
  /// scale * (sum of 32 codes)
  float* sums(std::int64_t row) const noexcept { return sums_ + row * (inputs_ / 32); }
  /// minus the sum of 32 codes
  std::int32_t* negative_sums(std::int64_t row) const noexcept {
    return negative_sums_ + row * (inputs_ / 32);
  }
  /// The same two per 16 elements.
  float* half_sums(std::int64_t row) const noexcept { return half_sums_ + row * (inputs_ / 16); }
  std::int32_t* negative_half_sums(std::int64_t row) const noexcept {
    return negative_half_sums_ + row * (inputs_ / 16);
  }

  /// Up to second_capacity() groups of a row, and how many they are.
  SecondDigits* second_digits(std::int64_t row) const noexcept;
  std::int32_t* second_count(std::int64_t row) const noexcept { return second_count_ + row; }
  std::int64_t second_capacity() const noexcept { return inputs_ / 32 / 4; }

  // bf16 form: tiles of 16 rows by 32 elements, tiles of one row block adjacent; M padded to 32
  // with zeros.
  std::uint16_t* tile(std::int64_t row_block, std::int64_t k_block) const noexcept {
    return bf16_ + (row_block * (inputs_ / 32) + k_block) * (16 * 32);
  }

 private:
  template <class Carver>
  void carve(Carver& carver) noexcept;

  RowForm form_ = RowForm::int8;
  std::int64_t rows_ = 0;
  std::int64_t inputs_ = 0;
  std::int8_t* codes_ = nullptr;
  float* scales_ = nullptr;
  float* sums_ = nullptr;
  std::int32_t* negative_sums_ = nullptr;
  float* half_sums_ = nullptr;
  std::int32_t* negative_half_sums_ = nullptr;
  SecondDigits* second_ = nullptr;
  std::int32_t* second_count_ = nullptr;
  std::uint16_t* bf16_ = nullptr;
};

/// Fills this thread's share of `out` from x, row-major with `stride` elements from row to row.
/// All threads in [0, threads) must call it, then synchronise, before a `linear` reads `out`.
void prepare_rows(const float* x, std::int64_t stride, const PreparedRows& out, int thread,
                  int threads, Isa isa = active_isa()) noexcept;

}  // namespace tenon::cpu
