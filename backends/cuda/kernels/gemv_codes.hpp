// Products of up to `gemv_rows` rows with weights of `code_types.def`, in tensor cores: weights are the
// first operand, whose 16 rows are 16 columns of the result, and digits of rows the second, whose 8
// columns are the digits of two rows. So an instruction multiplies 16 by 32 codes, and little else is
// done for a code than to take it out of its word.
//
// The warps of a block share its columns: each takes every `code_warps`-th step of 256 elements of all
// of them, copies these to shared memory, a stage or two ahead, and multiplies what is there. What the
// warps sum up is added in their order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/code_steps.hpp"
#include "kernels/gemv.hpp"

#include <cstdint>

namespace tenon::cuda {

/// A warp's steps of tiles of 16 columns, on their way to shared memory.
template <class Type>
class CodeStream {
 public:
  static constexpr bool is_aligned = CodeStep<Type>::is_aligned;
  /// Words of 16 bytes of a column, an odd number: lanes find eight columns' words in different banks.
  static constexpr std::uint32_t chunks =
      (CodeStep<Type>::bytes + (is_aligned ? 0 : 15) + 15) / 16 | 1;
  static constexpr std::uint32_t stage_chunks = code_tile_columns * chunks;
  static constexpr std::uint32_t stages = chunks <= 13 ? 3 : 2;

  template <class Words>
  TENON_DEVICE CodeStream(const Thread& thread, const LinearArgs& args, Address w,
                          std::uint32_t columns, const Words& words)
      : lane_(lane_of(thread)),
        columns_(columns),
        begin_(kept(words.at(warp_of(thread) * stages * stage_chunks))),
        first_(w),
        step_(warp_of(thread)),
        fetched_(begin_),
        read_(begin_) {
    TENON_UNROLL for (std::uint32_t r = 0; r < copies; ++r) {
      const std::uint32_t i = lane_ + 32 * r, column = i / chunks;
      offsets_[r] = columns_apart(args, column) + (is_aligned ? (i - column * chunks) * 16 : 0);
    }
    start_step(args);
  }

  /// Starts a copy into the next stage.
  template <class Words>
  TENON_DEVICE void fetch(const LinearArgs& args, const Words& words) {
    const std::uint32_t left =
        columns_ - tile_ < code_tile_columns ? columns_ - tile_ : code_tile_columns;
    const std::uint32_t end = bytes_ == 0 ? 0 : left * chunks;
    TENON_UNROLL for (std::uint32_t r = 0; r < copies; ++r) {
      const std::uint32_t i = lane_ + 32 * r;
      const Address from = from_ + static_cast<Address>(std::int64_t{offsets_[r]});
      if constexpr (is_aligned) {
        if (i < end) {
          words.copy_async(fetched_ + 16 * i, global<const Words4>(from));
        }
      } else {
        const std::uint32_t skipped = static_cast<std::uint32_t>(from) % 16, at = i % chunks * 16;
        if (i < end && at < skipped + bytes_) {
          words.copy_async(fetched_ + 16 * i, global<const Words4>(from - skipped + at));
        }
      }
    }
    commit_copies();
    fetched_ = after(fetched_);
    tile_ += code_tile_columns;
    from_ += static_cast<Address>(std::int64_t{columns_apart(args, code_tile_columns)});
    if (tile_ >= columns_) {
      step_ += code_warps;
      start_step(args);
    }
  }

  /// Where the oldest stage has column g + 8 i of the tile that begins with column `tile`, at step
  /// `step`.
  TENON_DEVICE std::uint32_t place(const LinearArgs& args, std::uint32_t step, std::uint32_t tile,
                                   std::uint32_t i) const {
    const std::uint32_t column = lane_ / 4 + 8 * i, at = read_ + 16 * chunks * column;
    if (is_aligned) return at;
    const auto low = static_cast<std::uint32_t>(first_) + step * CodeStep<Type>::bytes;
    return at + (low + (tile + column) * static_cast<std::uint32_t>(args.w_step)) % 16;
  }
  TENON_DEVICE void next() { read_ = after(read_); }

 private:
  static constexpr std::uint32_t copies = (stage_chunks + warp_size - 1) / warp_size;
  /// In bytes; columns are less than 2^27 apart.
  static TENON_DEVICE std::int32_t columns_apart(const LinearArgs& args, std::uint32_t columns) {
    return static_cast<std::int32_t>(args.w_step) * static_cast<std::int32_t>(columns);
  }
  TENON_DEVICE std::uint32_t after(std::uint32_t stage) const {
    constexpr std::uint32_t bytes = 16 * stage_chunks;
    return stage == begin_ + (stages - 1) * bytes ? begin_ : stage + bytes;
  }
  TENON_DEVICE void start_step(const LinearArgs& args) {
    tile_ = 0;
    bytes_ = 0;
    if (step_ * digit_step < args.depth) {
      const std::uint32_t left = args.depth - step_ * digit_step;
      bytes_ = left < digit_step ? CodeStep<Type>::bytes / 8 * (left / 32) : CodeStep<Type>::bytes;
    }
    from_ = first_ + Address{step_} * CodeStep<Type>::bytes;
  }

  const std::uint32_t lane_, columns_, begin_;
  const Address first_;
  Address from_ = 0;  ///< of the next copy, as what follows
  /// Of a lane's words from the tile's begin, or where columns are not aligned of their columns.
  std::int32_t offsets_[copies];
  std::uint32_t step_, tile_ = 0, bytes_ = 0, fetched_, read_;
};

/// Reads the digits of a step of rows `first` to first + 2 pairs - 1, zeros behind the last of `rows`.
template <class Type, std::uint32_t pairs>
TENON_DEVICE void read_digits(const Thread& thread, const LinearArgs& args, std::uint32_t first,
                              std::uint32_t rows, std::uint32_t step, StepDigits<pairs>& out) {
  const std::uint32_t lane = lane_of(thread), g = lane / 4, t = lane % 4;
  const std::uint32_t steps = (args.depth + digit_step - 1) / digit_step;
  const bool is_there = step < steps;
  const auto* const all = global<const DigitsOfStep>(args.digits) + step;
  TENON_UNROLL for (std::uint32_t p = 0; p < pairs; ++p) {
    out.unit[p] = 0.0f;
    TENON_UNROLL for (std::uint32_t b = 0; b < 4; ++b) out.sums[p][b] = 0.0f;
    TENON_UNROLL for (std::uint32_t i = 0; i < 16; ++i) out.words[p][i] = 0;
    if (const std::uint32_t row = first + 2 * p + g / 4; is_there && row < rows) {
      const std::uint32_t* const plane = all[row * steps].planes[g % 4];
      TENON_UNROLL for (std::uint32_t j = 0; j < 8; ++j) {
        if constexpr (CodeStep<Type>::in_halves) {
          out.words[p][2 * j] = plane[8 * j + t];
          out.words[p][2 * j + 1] = plane[8 * j + 4 + t];
        } else {
          const Words2 words = reinterpret_cast<const Words2*>(plane)[4 * j + t];
          out.words[p][2 * j] = words.at[0];
          out.words[p][2 * j + 1] = words.at[1];
        }
      }
    }
    if (const std::uint32_t row = first + 2 * p + t / 2; is_there && row < rows) {
      const DigitsOfStep& own = all[row * steps];
      const Words4 sums = *reinterpret_cast<const Words4*>(own.sums + 4 * (t % 2));
      TENON_UNROLL for (std::uint32_t b = 0; b < 4; ++b) {
        out.sums[p][b] = bits_to_float(sums.at[b]);
      }
      out.unit[p] = t % 2 == 0 ? own.unit : 65536.0f * own.unit;
    }
  }
}

/// A launch multiplies the same rows by several weights of a type: what is a part's own.
TENON_DEVICE LinearPart part_of(const LinearArgs& args, std::uint32_t& tile) {
  LinearPart part = whole_part(args);
  TENON_UNROLL for (std::uint32_t i = 0; i < more_parts; ++i) {
    const std::uint32_t tiles = (part.columns + args.team_columns - 1) / args.team_columns;
    if (tile < tiles || args.parts[i].columns == 0) break;
    tile -= tiles;
    part = args.parts[i];
  }
  return part;
}

/// Stores a block's columns from `first` on, whose weights are at `w`, of the rows from `row` on:
/// sums what its warps have in `totals`.
template <class Type, std::uint32_t pairs, std::uint32_t tiles_room, class Totals>
TENON_DEVICE void finish_codes(const Thread& thread, const LinearArgs& args, const LinearPart& part,
                               const Totals& totals, Address w, std::uint32_t first,
                               std::uint32_t columns, std::uint32_t row, std::int64_t group) {
  // A column has two lanes' sums of a row in every warp.
  const std::uint32_t rows = pairs == 1 ? 1 : args.rows;
  for (std::uint32_t i = thread.index(); i < columns * rows; i += thread.count()) {
    const std::uint32_t m = pairs == 1 ? 0 : i / columns, column = i - m * columns;
    const std::uint32_t half = column / 8 % 2;
    const std::uint32_t from =
        (column / code_tile_columns * pairs * 2 + m / 2 * 2 + half) * warp_size + column % 8 * 4 +
        m % 2 * 2;
    float sum = 0.0f;
    TENON_UNROLL for (std::uint32_t other = 0; other < code_warps; ++other) {
      const std::uint32_t at = from + other * tiles_room * pairs * 2 * warp_size;
      sum += totals[at] + totals[at + 1];
    }
    if (!is_finite(sum)) {
      const Address own = w + static_cast<Address>(column * args.w_step);
      sum = product_of_infinities<Type>(args, row + m, own);
    }
    finish(args, part, row + m, first + column, group, sum);
  }
}

/// Blocks: tiles of columns, for every row (of one pair), or for all rows.
template <class Type, std::uint32_t pairs>
TENON_DEVICE void gemv_codes(const Thread& thread, const LinearArgs& args) {
  using Stream = CodeStream<Type>;
  constexpr std::uint32_t tiles_room = pairs == 1 ? code_tiles : 1;
  TENON_SHARED(thread, Words4, ring, code_warps * Stream::stages * Stream::stage_chunks + 1);
  // [warp, tile, pair, half of the tile, lane]
  TENON_SHARED(thread, float, totals, code_warps* tiles_room* pairs * 2 * warp_size);
  const std::uint32_t row = pairs > 1 || args.rows == 1 ? 0 : thread.block() / args.column_tiles;
  std::uint32_t tile = thread.block() - row * args.column_tiles;
  const LinearPart part = part_of(args, tile);
  if (!args.reads_ahead || !has_pieces<Type>(args, part.w)) wait_for_earlier();
  const std::int64_t group = group_of(args, row);
  if (group < 0) return;
  const Address of_group = part.w + static_cast<Address>(group * args.w_group_step);
  const std::uint32_t first = tile * args.team_columns;
  const std::uint32_t columns =
      part.columns - first < args.team_columns ? part.columns - first : args.team_columns;
  if (!has_pieces<Type>(args, part.w)) {
    return multiply_unaligned<Type>(thread, args, part, of_group, first, columns, row, 2 * pairs,
                                    group);
  }
  const Address w = of_group + static_cast<Address>(first * args.w_step);
  const std::uint32_t warp = warp_of(thread), lane = lane_of(thread);
  const SharedWords words(ring);
  Stream stream(thread, args, w, columns, words);
  TENON_UNROLL for (std::uint32_t i = 0; i + 1 < Stream::stages; ++i) stream.fetch(args, words);
  wait_for_earlier();  // what is above reads weights alone
  const std::uint32_t own_totals = warp * tiles_room * pairs * 2 * warp_size + lane;
  TENON_UNROLL for (std::uint32_t i = 0; i < tiles_room * pairs * 2; ++i) {
    totals[own_totals + i * warp_size] = 0.0f;
  }
  const std::uint32_t first_digits = args.choices == 1 ? row : row / args.choices;
  const std::uint32_t last_digits = pairs == 1 ? first_digits + 1 : args.rows;
  StepDigits<pairs> digits;
  read_digits<Type>(thread, args, first_digits, last_digits, warp, digits);
  for (std::uint32_t step = warp; step * digit_step < args.depth; step += code_warps) {
    StepDigits<pairs> next;
    if (pairs == 1) {
      read_digits<Type>(thread, args, first_digits, last_digits, step + code_warps, next);
    }
    const std::uint32_t blocks = (args.depth - step * digit_step) / 32;
    for (std::uint32_t column = 0; column < columns; column += code_tile_columns) {
      wait_copies<Stream::stages - 2>();
      thread.sync_warp();
      stream.fetch(args, words);
      const std::uint32_t at[2] = {stream.place(args, step, column, 0),
                                   stream.place(args, step, column, 1)};
      const std::uint32_t own = own_totals + column / code_tile_columns * (pairs * 2 * warp_size);
      float sums[pairs][2];
      TENON_UNROLL for (std::uint32_t i = 0; i < 2 * pairs; ++i) {
        sums[i / 2][i % 2] = totals[own + i * warp_size];
      }
      CodeStep<Type>::multiply(thread, words, at, blocks, digits, sums);
      TENON_UNROLL for (std::uint32_t i = 0; i < 2 * pairs; ++i) {
        totals[own + i * warp_size] = sums[i / 2][i % 2];
      }
      stream.next();
    }
    if (pairs == 1) {
      digits = next;
    } else {
      read_digits<Type>(thread, args, first_digits, last_digits, step + code_warps, digits);
    }
  }
  let_next_begin();
  thread.sync();
  finish_codes<Type, pairs, tiles_room>(thread, args, part, totals, w, first, columns, row, group);
}

}  // namespace tenon::cuda
