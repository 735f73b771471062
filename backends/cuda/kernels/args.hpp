// What kernels are called with: plain structs that the host fills in and the device reads.
#pragma once

#include "kernels/address.hpp"

#include <tenon/dtype.hpp>

#include <cstdint>

namespace tenon::cuda {

inline constexpr int max_axes = 8;

/// In device memory, one per run: the first error that depends on data.
struct Status {
  std::int32_t claimed;  ///< 0: no error
  std::int32_t step;     ///< the number of the launch
  std::int64_t value;    ///< what is outside of [0, limit)
  std::int64_t limit;
};

/// Where a kernel reports an index out of range.
struct Reporter {
  Address status;
  std::int32_t step;
};

/// Sizes of what is looped over: `count` elements in row-major order, below 2^32.
struct Axes {
  std::uint32_t sizes[max_axes];
  std::uint32_t count;
  std::int32_t rank;
};

/// Bytes between the elements of each axis.
struct Steps {
  std::int64_t bytes[max_axes];
};

struct Array {
  Address data;
  Steps steps;
  DType dtype;
};

/// Pointwise ops. Bools count as integers.
struct PointArgs {
  Axes axes;
  Array y, a, b, c;
  std::int32_t op;
  float reals[2];            ///< parameters of ops of real numbers
  std::int64_t integers[2];  ///< the same of integers
};

/// `outer`: the result's axes; x has steps for them and, in `inner_steps`, for what is reduced.
struct ReduceArgs {
  Axes outer, inner;
  Array y, x;
  Steps inner_steps;
  std::int32_t op;
};

/// Rows of `length` elements along one axis.
struct RowArgs {
  Axes rows;
  Array x, y;  ///< steps of the rows
  std::int64_t x_step, y_step;
  std::uint32_t length;
  bool takes_log;
};

/// Lanes of x and y, of `length` elements: sorted, of which `kept` are stored, or summed up.
struct OrderArgs {
  Axes lanes;
  Array x, y;
  std::int64_t x_step, y_step;
  std::uint32_t length, kept;
  std::int32_t op;
  bool descends, gives_indices;
};

/// Lanes of index and source, of `length` elements, for y of `limit`.
struct ScatterArgs {
  Axes lanes;
  Array y, index, source;
  std::int64_t y_step, index_step, source_step, limit;
  std::uint32_t length;
  std::int32_t op;
  bool sets;  ///< instead of joining by `op`
  Reporter reporter;
};

/// Norms of rows of x. An element i of row r has weight (r % groups) * channels + i / positions.
struct NormArgs {
  Axes rows;
  Array x, y;
  std::int64_t x_step, y_step;
  std::uint32_t length;
  Array weight, bias;  ///< steps.bytes[0]; an address of 0: none
  std::uint32_t groups, channels, positions;
  float eps;
  bool centres;  ///< whether the mean is taken off
};

/// y[m, n] = sum_k x[m, k] w[n, k] + bias[n] + residual[m, n], rows dense.
struct LinearArgs {
  Address x, w, y, bias, residual;  ///< 0: none
  std::int64_t x_step, w_step, y_step, residual_step, bias_step;
  std::uint32_t rows, columns, depth;
  DType x_dtype, y_dtype, bias_dtype;
  // With groups: row m is multiplied by w[group[m]], x[m / choices] or x[m].
  Address group;
  DType group_dtype;
  std::int64_t group_step, w_group_step, bias_group_step;
  std::uint32_t groups, choices;
  Reporter reporter;
};

/// c[.., m, n] = sum_k a[.., m, k] b[.., k, n] for every index of `batch`.
struct MatmulArgs {
  Axes batch;
  Array a, b, c;  ///< steps of the batch
  std::int64_t a_row, a_depth, b_depth, b_column, c_row, c_column;
  std::uint32_t rows, columns, depth;
};

struct AttentionArgs {
  Address q, k, v, y, position, mask, sinks;  ///< 0: none
  // Steps of batch, step, head; the last axis is dense.
  std::int64_t q_steps[3], k_steps[3], v_steps[3], y_steps[3];
  std::int64_t mask_steps[4], position_step, sinks_step;
  DType dtype;  ///< of q and y
  std::uint32_t batch, queries, keys, heads, key_heads, depth, value_depth;
  float scale, softcap;
  std::int64_t window;
  bool causal;
  Reporter reporter;
};

struct RopeArgs {
  Axes heads;  ///< batch, step, head
  Array x, y;
  std::int64_t x_step, y_step;
  Address positions, frequencies, sections, factors;  ///< f64[pairs], i32[pairs]; factors 0: none
  std::int64_t position_steps[3];                     ///< of batch, section, step
  std::int64_t factor_step;
  std::uint32_t pairs, depth;
  float magnitude;
  bool is_interleaved;
};

/// x[B, S, H, D] into `cache` of [L, B or pages, H, T or page size, D].
struct CacheArgs {
  Axes axes;  ///< of x; of a block type the last axis in blocks
  Array x, cache;
  Address layer, position, table;  ///< i64, i32, i32; 0: no table
  DType position_dtype;
  std::int64_t position_step, table_steps[2];
  std::uint32_t layers, rows_or_pages, page_size, pages_per_row;
  Reporter reporter;
};

/// One side of a window over images: `taps` elements, of an axis of `size`.
struct WindowSide {
  std::int64_t stride, dilation, before, taps, size;
};

struct ConvolutionArgs {
  Axes axes;            ///< of y
  Array x, w, y, bias;  ///< bias: an address of 0: none
  WindowSide rows, columns;
  std::int64_t channels;  ///< of a group
  std::uint32_t group_outputs;
};

struct PoolArgs {
  Axes axes;  ///< of y
  Array x, y;
  WindowSide rows, columns;
  bool takes_max;
  float divisor;  ///< of sums; 0: the elements that the window has on x
};

/// By the channels of axis 1; an address of 0: none.
struct ChannelNormArgs {
  Axes axes;
  Array x, y, mean, variance, weight, bias;
  float eps;
};

/// Moves elements of `bytes` bytes. Element i of `axes` is at x and y.
struct CopyArgs {
  Axes axes;
  Array x, y;
  std::uint32_t bytes;
};

/// The same with x, or with `puts` y, moved by index * indexed_step; index < limit.
struct GatherArgs {
  Axes axes;
  Array x, y, index;
  std::int64_t indexed_step, limit;
  std::uint32_t bytes;
  bool puts;
  Reporter reporter;
};

/// Rows of a table by their ids, or without ids one after the other; `axes` are those of the ids,
/// `depth` elements each.
struct EmbeddingArgs {
  Axes axes;
  Array ids, y;
  Address table;
  std::int64_t row_step, y_step, rows;
  std::uint32_t depth;
  Reporter reporter;
};

struct PadArgs {
  Axes axes;  ///< of y
  Array x, y;
  std::int64_t before[max_axes], sizes[max_axes];
  std::int32_t mode;  ///< Pad::Mode
  std::uint32_t bytes;
  std::uint8_t value[8];
};

/// y_i = start + i * step, of a floating type; of integers modulo 2^bits.
struct IotaArgs {
  Axes axes;
  Array y;
  std::int64_t start, step;
};

/// Elements of `bytes` bytes, each `value`.
struct FillArgs {
  Axes axes;
  Array y;
  std::uint32_t bytes;
  std::uint8_t value[8];
};

}  // namespace tenon::cuda
