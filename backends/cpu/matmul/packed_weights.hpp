#pragma once

#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "aligned_buffer.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tenon::cpu {

/// Rows of a weight matrix that one panel interleaves; N is padded to a multiple of it.
inline constexpr std::int64_t panel_rows = 16;

/// The weights W[N, K] of a linear layer in the order its kernels read them.
///
/// One layout serves every instruction set, so packed weights are written to disk and mapped again,
/// on another machine too: a change of the layout needs another `packed_layout` in layout.hpp.
/// Panels of 16 rows follow one another; inside a panel the k-axis is outermost. See layout.hpp for
/// the bytes. The block types keep their bits per weight: the packed form is at most 1.07 times the
/// file's bytes (plus padding of N to 16). Types whose elements come from a lattice or share digits
/// do not: iq1 and iq2 take 3.6 bits, iq3 4.3, and tq1_0 and tq2_0 2.6.
///
/// dtypes: f32 f16 bf16 (any K >= 0) and q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl mxfp4 nvfp4 (K
/// a multiple of 32), q2_k ... q6_k, iq1_s ... iq4_xs, tq1_0 tq2_0 (K a multiple of 256).
class PackedWeights {
 public:
  PackedWeights() = default;

  /// Allocates room for W[outputs, inputs]; `pack` fills it.
  /// Errors: unsupported_dtype; bad_shape (negative, or K no multiple of the block); out_of_memory.
  PackedWeights(DType dtype, std::int64_t outputs, std::int64_t inputs);

  /// Uses packed bytes of somebody else (a mapped file); this object holds their `owner`. Errors as
  /// above, and bad_alignment unless `bytes` starts at a multiple of 64, bad_shape unless its size
  /// is `packed_bytes(...)`. The contents are numbers only: no content can make a kernel read out
  /// of bounds.
  static PackedWeights borrow(DType dtype, std::int64_t outputs, std::int64_t inputs,
                              std::span<const std::byte> bytes,
                              std::shared_ptr<const void> owner = nullptr);

  /// W[first, last) alone, `first` a multiple of panel_rows: of these bytes, which must outlive it.
  PackedWeights rows(std::int64_t first, std::int64_t last) const noexcept;

  static bool is_packable(DType dtype) noexcept;
  static std::size_t packed_bytes(DType dtype, std::int64_t outputs, std::int64_t inputs);

  /// Fills this thread's share of an allocated object from rows as files store them: row-major,
  /// rows contiguous, blocks along K. Every thread in [0, threads) must call it (in any order, no
  /// barrier needed inside); afterwards synchronise before use.
  void pack(const std::byte* rows, int thread, int threads) noexcept {
    pack(rows, {0, panels()}, thread, threads);
  }
  /// As above for some panels only; `rows` is still the first of all.
  void pack(const std::byte* rows, Range panels, int thread, int threads) noexcept;

  /// Writes W[row, 0..K) as f32, bit-equal to dequantising the file's row. For embedding look-up
  /// from a matrix that is tied to the output head.
  void dequantize_row(std::int64_t row, float* out) const noexcept;

  DType dtype() const noexcept { return dtype_; }
  std::int64_t outputs() const noexcept { return outputs_; }
  std::int64_t inputs() const noexcept { return inputs_; }
  std::int64_t panels() const noexcept { return ceil_div(outputs_, panel_rows); }
  std::size_t panel_bytes() const noexcept { return panel_bytes_; }
  const std::byte* panel(std::int64_t index) const noexcept {
    return bytes_ + static_cast<std::size_t>(index) * panel_bytes_;
  }
  std::span<const std::byte> bytes() const noexcept { return {bytes_, size_}; }
  bool owns_bytes() const noexcept { return owned_.data() != nullptr; }

 private:
  AlignedBuffer owned_;
  std::shared_ptr<const void> owner_;  // of borrowed bytes
  const std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t panel_bytes_ = 0;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  DType dtype_ = DType::f32;
};

}  // namespace tenon::cpu
