#pragma once

#include "../cpu_features.hpp"
#include "dense_blocking.hpp"
#include "dense_kernels.hpp"
#include "packed_weights.hpp"
#include "prepared_rows.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// y[M, N] = f(x[M, K] * W[N, K]^T + bias[N] + residual[M, N])
///
/// Two precisions, chosen by which input is set:
///  * fast:  `prepared` holds x as int8 blocks or bf16 tiles; W is of a block type. Integer dot
///           products per block, f32 across blocks (bf16 tiles accumulate in f32).
///  * exact: `x` holds f32; W is of any packable type, widened to f32, accumulated in f32.
///
/// The bits of y do not depend on how the work is split over threads. A row's result does not
/// depend on M either, except that int8 and bf16 rows differ from each other; levels avx2 to
/// avx512_vnni give the same bits in fast precision with int8 rows.
///
///   // Once, at bind time:
///   PackedWeights w(DType::q4_1, N, K);
///   pool.run([&](Worker& t) { w.pack(file_bytes, t.thread, t.threads); });
///
///   // Each step; one region, as many layers as wanted inside:
///   const RowForm form = *PreparedRows::form_for(w.dtype(), M, K);
///   PreparedRows rows(form, M, K, memory);  // size_bytes(form, M, K), 64-byte aligned
///   pool.run([&](Worker& t) {
///     prepare_rows(x, K, rows, t.thread, t.threads);
///     if (!t.sync()) return;
///     linear({.weights = &wq, .prepared = &rows, .rows = M, .y = q, .y_stride = Nq}, t.thread,
///            t.threads);
///     linear({.weights = &wk, .prepared = &rows, .rows = M, .y = k, .y_stride = Nk}, t.thread,
///            t.threads);
///   });
struct LinearArgs {
  const PackedWeights* weights = nullptr;  ///< required
  const PreparedRows* prepared = nullptr;  ///< fast precision; rows() >= rows, inputs() == K
  const float* x = nullptr;                ///< exact precision
  std::int64_t x_stride = 0;               ///< elements from row to row of x
  std::int64_t rows = 0;                   ///< M
  float* y = nullptr;                      ///< must not overlap x
  std::int64_t y_stride = 0;               ///< elements from row to row, >= N
  /// In place of y: the result rounded to bf16 tiles, the rows of the next linear layer. Only where
  /// `prepared` holds bf16 tiles, N is a multiple of 32 and there is no residual.
  const PreparedRows* y_tiles = nullptr;
  const float* bias = nullptr;      ///< optional
  const float* residual = nullptr;  ///< optional; may be y itself
  std::int64_t residual_stride = 0;
  Activation activation{};       ///< optional; of the sum of all that
  std::byte* scratch = nullptr;  ///< this thread's linear_scratch_bytes, 64-byte aligned
  /// Optional: lets calls of linear_range with the same arguments and scratch use one copy of rows.
  RowCopy* copy = nullptr;
  /// Optional: dense_blocking of these sizes, for callers with many short calls.
  const DenseBlocking* blocking = nullptr;
  Isa isa = active_isa();
};

/// Bytes that each thread needs at `scratch`, on any instruction set. Depends on sizes and
/// precision; of pointers only on whether they are null.
std::size_t linear_scratch_bytes(const LinearArgs& args) noexcept;

/// Computes this thread's share. All threads in [0, threads) must call it; no barrier inside.
void linear(const LinearArgs& args, int thread, int threads) noexcept;

/// The same by work items, for a caller that balances load itself: items [begin, end) of
/// `linear_items`. Items may run in any order on any thread.
std::int64_t linear_items(const LinearArgs& args) noexcept;
void linear_range(const LinearArgs& args, std::int64_t begin, std::int64_t end) noexcept;

/// c[b, M, N] = a[b, M, K] * b[b, K, N], f32, any strides (in elements; negative and 0 allowed for
/// inputs). Empty K gives zeros. c must not overlap the inputs and has stride 1 along N.
struct MatmulArgs {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t a_batch = 0, a_row = 0, a_column = 1;
  const float* b = nullptr;
  std::int64_t b_batch = 0, b_row = 0, b_column = 1;
  float* c = nullptr;
  std::int64_t c_batch = 0, c_row = 0;
  /// [batches]: where each batch begins in a and b, in place of even steps; both or none.
  const std::int64_t *a_starts = nullptr, *b_starts = nullptr;
  std::byte* scratch = nullptr;          ///< this thread's matmul_scratch_bytes, 64-byte aligned
  const Interrupt* interrupt = nullptr;  ///< optional: leaves the rest out once it is due
  Isa isa = active_isa();
};

std::size_t matmul_scratch_bytes(const MatmulArgs& args) noexcept;

/// Computes this thread's share. All threads in [0, threads) must call it; no barrier inside.
void matmul(const MatmulArgs& args, int thread, int threads) noexcept;
}  // namespace tenon::cpu
