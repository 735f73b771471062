// What kernels are called with: plain structs that the host fills in and the device reads.
#pragma once

#include "kernels/address.hpp"

#include <tenon/dtype.hpp>

#include <cstdint>

namespace tenon::cuda {

inline constexpr int max_axes = 8;
inline constexpr std::uint32_t more_parts = 2;  ///< of LinearArgs

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
  bool is_dense;             ///< all arrays are f32, one element behind the other
  float reals[2];            ///< parameters of ops of real numbers
  std::int64_t integers[2];  ///< the same of integers
};

/// `outer`: the result's axes; x has steps for them and, in `inner_steps`, for what is reduced.
struct ReduceArgs {
  Axes outer, inner;
  Array y, x;
  Steps inner_steps;
  std::int32_t op;
  float divisor;  ///< of the result, of real numbers
  /// Blocks that share a result's elements, `part_count` each. What they reduce them to, a float or an
  /// i64, is at `partial`, dense; an address of 0: one block, whose result is y's.
  std::uint32_t parts, part_count;
  Address partial;
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
  // Sorted in runs of `run` elements, which begin at multiples of it. Of each the first `kept` are
  // stored in a lane of `length` elements: values, and where they were (u32). 0: in y, sorted.
  std::uint32_t run;
  Address from_values, from_indices, to_values, to_indices;
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
  bool centres;      ///< whether the mean is taken off
  bool reads_ahead;  ///< weight and bias are constants, which may be read while earlier kernels run
  Address digits;    ///< 0, or where rows of y become DigitsOfStep, too: of dense rows of f32
};

/// Weights of a launch that multiplies the same rows by several, and their results.
struct LinearPart {
  Address w, y, bias;
  std::int64_t y_step, bias_step;
  DType bias_dtype;
  std::uint32_t columns;  ///< 0: there is no such part
};

/// y[m, n] = sum_k x[m, k] w[n, k] + bias[n] + residual[m, n], rows dense.
struct LinearArgs {
  Address x, w, y, bias, residual;  ///< 0: none
  std::int64_t x_step, w_step, y_step, residual_step, bias_step;
  std::uint32_t rows, columns, depth;
  DType x_dtype, y_dtype, bias_dtype;
  // In tensor cores: the summands of bf16 that an operand is (1 or 2), or both operands are f16.
  std::uint32_t x_terms, w_terms;
  bool multiplies_halves;
  // With groups: row m is multiplied by w[group[m]], x[m / choices] or x[m].
  Address group;
  DType group_dtype;
  std::int64_t group_step, w_group_step, bias_group_step;
  std::uint32_t groups, choices;
  // Of up to gemv_rows rows: warps that share columns, how many of these, tiles of all columns.
  std::uint32_t team, team_columns, column_tiles;
  bool reads_ahead;  ///< weights are constants, which may be read while earlier kernels run
  Reporter reporter;
  // With weights that are codes: DigitsOfStep of all rows of x, and weights of the same type and steps
  // behind the first.
  Address digits;
  LinearPart parts[more_parts];
  // Parts of `split_depth` of the depth, whose sums are at `partial`: f32 [splits, rows, columns].
  Address partial;
  std::uint32_t splits, split_depth;
};

/// c[.., m, n] = sum_k a[.., m, k] b[.., k, n] for every index of `batch`.
struct MatmulArgs {
  Axes batch;
  Array a, b, c;  ///< steps of the batch
  /// Taken off integers before they are multiplied: one number, or one of each column; an address
  /// of 0: none.
  Array a_zero, b_zero;
  std::int64_t a_row, a_depth, b_depth, b_column, c_row, c_column;
  std::uint32_t rows, columns, depth;
};

struct AttentionArgs {
  Address q, k, v, y, position, mask, sinks, table;  ///< 0: none
  // Steps of batch, step, head; the last axis is dense. Of k and v with a table: of page, row of a
  // page, head.
  std::int64_t q_steps[3], k_steps[3], v_steps[3], y_steps[3];
  std::int64_t mask_steps[4], position_step, sinks_step, table_steps[2];
  DType dtype;  ///< of q and y
  std::uint32_t batch, queries, keys, heads, key_heads, depth, value_depth;
  std::uint32_t pages, page_size;  ///< with a table
  float scale, softcap;
  std::int64_t window;
  bool causal;
  /// A block has `rows` heads of a query, which share a key head; `row_groups` of these have all of
  /// that key head's. 2^lane_bits lanes of a warp read a key together.
  std::uint32_t rows, row_groups, lane_bits;
  /// Blocks that share the keys of such heads. What they sum up is at `partial`, by row and split, in
  /// `partial_fours` groups of four floats: peak and total, then the values' sums. The last one to come
  /// to the heads' ticket joins it. Tickets are 0 before a launch and after it.
  std::uint32_t splits, partial_fours;
  Address partial, tickets;
  std::uint32_t group_heads;  ///< in tensor cores: heads, of all rows, whose blocks run together
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

/// What a layer of a language model does with its heads before attention. What `keys` gives is in
/// `key_cache` alone.
struct HeadsArgs {
  RopeArgs queries, keys;
  CacheArgs key_cache, value_cache;
};

/// One side of windows over images: `windows` of `taps` elements each, of an axis of `size`.
struct WindowSide {
  std::int64_t stride, dilation, before, taps, size, windows;
};

struct ConvolutionArgs {
  Axes axes;                            ///< of y
  Array x, w, y, bias, x_zero, w_zero;  ///< of these three an address of 0: none
  WindowSide rows, columns;
  std::int64_t channels;  ///< of a group; of a transposed convolution, of x
  std::uint32_t group_outputs;
};

/// x: the image, y: the filter.
struct FilterGradientArgs {
  Axes axes;  ///< of y
  Array x, upstream, y;
  WindowSide rows, columns;
  std::int64_t images, group_outputs;
};

struct PoolArgs {
  Axes axes;  ///< of y
  Array x, y;
  WindowSide rows, columns;
  bool takes_max;
  float divisor;  ///< of sums; 0: the elements that the window has on x
};

/// Of a mean `winners` is 0; of a maximum it says for each window which element of its plane it is:
/// i32, dense, -1 for none. pool2d_winners writes it, with axes of the windows.
struct PoolGradientArgs {
  Axes axes;  ///< of y, x's
  Array x, upstream, y;
  Address winners;
  WindowSide rows, columns;
  float divisor;
};

/// Windows of images as columns, [N, C * taps, places], or the sums of what columns hold.
struct FoldArgs {
  Axes axes;  ///< of y
  Array x, y;
  WindowSide rows, columns;
};

/// What the elements along an axis of y are mixed from: i's sources are sources[begin[i]] to
/// sources[begin[i + 1]], exclusive, with their weights: i32, i32, f32.
struct MixTable {
  Address begin, sources, weights;
};
inline constexpr int max_mixed_axes = 3;
/// The last `mixed` axes of x mixed into those of y.
struct MixArgs {
  Axes axes;  ///< of y
  Array x, y;
  MixTable tables[max_mixed_axes];  ///< of an axis that is not mixed: not used
  std::int32_t mixed;
};

/// A place on an image, in pixels, and its derivative by the element of the grid.
struct GridPlace {
  double column, column_slope, row, row_slope;
};
/// Places of grid [N, H', W', 2] on images of x [N, C, H, W]. `upstream`: of y.
struct GridArgs {
  Axes axes;  ///< of what is computed
  Array x, grid, upstream, y;
  Address places;  ///< GridPlace[N, H', W']
  std::uint32_t channels, height, width, grid_height, grid_width;
  bool is_nearest, holds, reflects, aligns_corners;
};

/// A box of roi_align, by rows and columns: where it begins, the size of a cell, the samples along
/// one; `image` is -1 where it is out of range.
struct RoiBox {
  double begin[2], cell[2];
  std::int64_t parts[2], image;
};
struct RoiArgs {
  Axes axes;  ///< of what is computed
  Array x, box, image, upstream, y;
  Address boxes;  ///< RoiBox[R]
  double scale;
  std::int64_t sampling_ratio;
  std::uint32_t count, images, height, width, cells[2];
  bool is_aligned;
  Reporter reporter;
};

struct BoxArgs {
  Axes classes;  ///< image, class
  Array boxes, scores, y;
  Address picked, counts, hidden;  ///< i32[classes, max_kept], i32[classes], u8[classes, boxes]
  std::uint32_t count, max_kept;   ///< boxes of an image; kept ones of a class
  std::int64_t capacity;
  double iou_threshold, score_threshold;
  bool is_centred;
};

struct RandomArgs {
  Axes axes;
  Array y, key, first;  ///< first: an address of 0: none
  std::uint64_t stream;
};

/// Row-wise binary search: axes of the values.
struct SearchArgs {
  Axes axes;
  Array sorted, values, y;
  std::int64_t sorted_step;
  std::uint32_t length;
  bool takes_right;
};

/// Recurrences with one state of `states` numbers per row, head and channel: those of the operands'
/// places in the op. `y` has the steps' results, [row, step, head, channel], and behind them the last
/// states; with every_state the states after each step, [row, step, number, head, channel].
struct RecurrenceArgs {
  Axes axes;  ///< row, head, channel
  Array in[7], y;
  Address lengths;  ///< i32; 0: none
  std::int64_t lengths_step;
  std::uint32_t steps, states, heads_of_group;
  bool has_one_decay, every_state;
  Reporter reporter;
};

/// One factor of a Fourier transform: for each lane, n numbers of which `done` were transformed by
/// earlier factors.
struct FourierArgs {
  Axes lanes;
  Array x, y;  ///< steps of the lanes
  std::int64_t x_step, y_step;
  std::int64_t x_part, y_part;           ///< from the real to the imaginary part; 0: real numbers
  Address roots;                         ///< float[2 * n]: of unity, e^(-2 pi i k / n)
  std::uint32_t n, done, radix, stored;  ///< the first `stored` elements are stored
  bool is_half;  ///< x has n / 2 + 1 elements, the others are their conjugates
  bool is_inverse;
  float scale;
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

/// Rows of x, `x_step` bytes apart, as bf16 in a row at y.
struct RoundArgs {
  Address x, y;
  std::int64_t x_step;
  std::uint32_t rows, depth;
};

/// Digits of rows of x, `x_step` bytes apart, by steps: y is DigitsOfStep [rows, steps].
struct DigitArgs {
  Address x, y;
  std::int64_t x_step;
  std::uint32_t rows, depth;
  DType x_dtype;
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
