// Products of up to `gemv_rows` rows, which take as long as their weights take to be read.
//
// A column's depth is cut in slices of 32 pieces (pieces.hpp). A team of warps shares its columns:
// each warp takes every `team`-th slice of all of them, copies these to shared memory, some stages
// ahead, and multiplies what is there. What the warps of a team sum up is added in their order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/linear.hpp"
#include "kernels/pieces.hpp"

#include <cstdint>

namespace tenon::cuda {

template <class Type>
inline constexpr std::uint32_t slice_elements = warp_size * Piece<Type>::elements;
/// Words of 16 bytes that a slice has room in: it begins at any byte of the first, and `read_words`
/// reads a word behind its end.
template <class Type>
inline constexpr std::uint32_t slice_room = (Piece<Type>::slice_bytes + 15) / 16 + 2;

/// What a warp multiplies: slices `member`, `member + team`, ... of its team's columns.
struct WarpShare {
  Address w;  ///< the team's first column
  std::uint32_t first, columns, member;
};
TENON_DEVICE WarpShare share_of(const Thread& thread, const LinearArgs& args, std::uint32_t tile,
                                std::int64_t group) {
  const std::uint32_t teams = thread.count() / warp_size / args.team;
  const std::uint32_t team = tile * teams + warp_of(thread) / args.team;
  WarpShare share{};
  share.first = team * args.team_columns;
  share.member = warp_of(thread) % args.team;
  if (share.first < args.columns) {
    const std::uint32_t left = args.columns - share.first;
    share.columns = left < args.team_columns ? left : args.team_columns;
  }
  share.w = args.w + static_cast<Address>(share.first * args.w_step + group * args.w_group_step);
  return share;
}

/// Elements of a slice of a row of `depth`, 0 behind its end.
template <class Type>
TENON_DEVICE std::uint32_t elements_of_slice(std::uint32_t slice, std::uint32_t depth) {
  const std::uint32_t begin = slice * slice_elements<Type>;
  if (begin >= depth) return 0;
  return depth - begin < slice_elements<Type> ? depth - begin : slice_elements<Type>;
}

/// Copies `bytes` bytes to shared memory that begins elsewhere in its 16 bytes, two at a time.
template <class Ring>
TENON_DEVICE void copy_unaligned(const Thread& thread, Ring& ring, std::uint32_t to, Address from,
                                 std::uint32_t bytes) {
  for (std::uint32_t i = lane_of(thread); 4 * i < bytes; i += warp_size) {
    const auto* const halves = global<const std::uint16_t>(from + 4 * i);
    std::uint32_t word = halves[0];
    if (4 * i + 2 < bytes) word |= std::uint32_t{halves[1]} << 16;
    ring[to + i / 4].at[i % 4] = word;
  }
}

/// A warp's slices, on their way to shared memory: `stages` of them, of `at_once` columns each.
template <class Type, std::uint32_t at_once>
struct WeightStream {
  static constexpr std::uint32_t stages = at_once == 1 ? 4 : 2;
  static constexpr std::uint32_t stage_room = at_once * slice_room<Type>;

  std::uint32_t column = 0, slice, stage = 0;  ///< of the next copy

  /// Starts a copy into the next stage.
  template <class Ring>
  TENON_DEVICE void fetch(const Thread& thread, const LinearArgs& args, const WarpShare& share,
                          Ring& ring) {
    const std::uint32_t count = elements_of_slice<Type>(slice, args.depth);
    TENON_UNROLL for (std::uint32_t j = 0; j < at_once; ++j) {
      if (column + j >= share.columns || count == 0) continue;
      const std::uint32_t to = begin_of(thread, stage) + j * slice_room<Type>;
      copy_slice(thread, ring, to, slice_at(args, share, column + j, slice), count);
    }
    commit_copies();
    column += at_once;
    if (column >= share.columns) {
      column = 0;
      slice += args.team;
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
  }

  /// Where a stage's column j is: a byte of shared memory.
  static TENON_DEVICE std::uint32_t place(const Thread& thread, std::uint32_t stage,
                                          std::uint32_t j, Address from) {
    const std::uint32_t room = begin_of(thread, stage) + j * slice_room<Type>;
    return 16 * room + (Piece<Type>::alignment == 16 ? 0 : static_cast<std::uint32_t>(from % 16));
  }
  static TENON_DEVICE Address slice_at(const LinearArgs& args, const WarpShare& share,
                                       std::uint32_t column, std::uint32_t slice) {
    const std::uint32_t bytes = Piece<Type>::bytes(slice * slice_elements<Type>);
    return share.w + static_cast<Address>(column * args.w_step) + bytes;
  }

 private:
  static TENON_DEVICE std::uint32_t begin_of(const Thread& thread, std::uint32_t stage) {
    return (warp_of(thread) * stages + stage) * stage_room;
  }
  template <class Ring>
  static TENON_DEVICE void copy_slice(const Thread& thread, Ring& ring, std::uint32_t to,
                                      Address from, std::uint32_t count) {
    const std::uint32_t bytes = Piece<Type>::bytes(count);
    if (Piece<Type>::alignment == 16 && from % 16 != 0) {
      copy_unaligned(thread, ring, to, from, bytes);
      return;
    }
    const Address first = from / 16 * 16;
    const auto end = static_cast<std::uint32_t>(from - first) + bytes;
    TENON_UNROLL for (std::uint32_t i = 0; i < slice_room<Type>; i += warp_size) {
      const std::uint32_t own = i + lane_of(thread);
      if (16 * own < end) copy_async(&ring[to + own], global<const Words4>(first + 16 * own));
    }
  }
};

/// Four elements of a row of x from k on, zeros behind its end.
struct FourFloats {
  float at[4];
};
TENON_CALLED FourFloats load_four_singly(DType dtype, Address row, std::uint32_t k,
                                         std::uint32_t depth) {
  FourFloats four{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Address at = row + std::uint64_t{k + i} * (dtype == DType::f32 ? 4 : 2);
    if (k + i < depth) four.at[i] = load_real(dtype, at);
  }
  return four;
}
TENON_DEVICE FourFloats load_four_floats(Address row, std::uint32_t k) {
  const Words4 words = *global<const Words4>(row + std::uint64_t{k} * 4);
  FourFloats four;
  for (std::uint32_t i = 0; i < 4; ++i) four.at[i] = bits_to_float(words.at[i]);
  return four;
}
TENON_DEVICE FourFloats load_four_halves(DType dtype, Address row, std::uint32_t k) {
  const Words2 words = *global<const Words2>(row + std::uint64_t{k} * 2);
  FourFloats four;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto bits = static_cast<std::uint16_t>(words.at[i / 2] >> (i % 2 * 16));
    four.at[i] = dtype == DType::f16 ? widen_half(bits) : widen_bfloat16(bits);
  }
  return four;
}

/// Calls `use` with a function that loads four elements of a row: one of three, so that what `use`
/// loops over has no switch in it.
template <class Use>
TENON_DEVICE void with_x(const LinearArgs& args, const Use& use) {
  const std::uint32_t depth = args.depth;
  const DType dtype = args.x_dtype;
  const unsigned wide = dtype == DType::f32 ? 16 : 8;
  const bool is_wide = depth % 4 == 0 && args.x % wide == 0 && args.x_step % wide == 0;
  if (!is_wide) {
    use([=](Address row, std::uint32_t k) { return load_four_singly(dtype, row, k, depth); });
  } else if (dtype == DType::f32) {
    use([=](Address row, std::uint32_t k) {
      return k < depth ? load_four_floats(row, k) : FourFloats{};
    });
  } else {
    use([=](Address row, std::uint32_t k) {
      return k < depth ? load_four_halves(dtype, row, k) : FourFloats{};
    });
  }
}

/// sum += one segment of a piece times x, of which `dot` and `total` are the sums with and without
/// codes.
template <class Type>
TENON_DEVICE void add_segment(const typename Piece<Type>::Values& values, std::uint32_t segment,
                              float dot, float total, float& sum) {
  sum += values.scales[segment] * dot;
  if constexpr (Piece<Type>::has_offsets) sum += values.offsets[segment] * total;
}

TENON_DEVICE float sum_of_warp(const Thread& thread, float sum) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) sum += thread.shuffle_xor(sum, mask);
  return sum;
}

/// Whether the lane has a piece of a slice of `left` elements.
template <class Type>
TENON_DEVICE bool has_piece(const Thread& thread, std::uint32_t left) {
  return Piece<Type>::is_plain || lane_of(thread) * Piece<Type>::elements < left;
}

/// The sums of a team's warps, in shared memory: [warp, column, row].
template <class Sums>
TENON_DEVICE void finish_columns(const Thread& thread, const LinearArgs& args, const Sums& sums,
                                 std::uint32_t tile, std::uint32_t first_row,
                                 std::uint32_t row_room, std::int64_t group) {
  thread.sync();
  const std::uint32_t teams = thread.count() / warp_size / args.team;
  const std::uint32_t rows = args.rows - first_row < row_room ? args.rows - first_row : row_room;
  const std::uint32_t count = teams * args.team_columns;
  for (std::uint32_t i = thread.index(); i < count * rows; i += thread.count()) {
    const std::uint32_t place = i % count, m = i / count, n = tile * count + place;
    if (n >= args.columns) continue;
    const std::uint32_t warp = place / args.team_columns * args.team;
    float sum = 0.0f;
    for (std::uint32_t member = 0; member < args.team; ++member) {
      const std::uint32_t column = (warp + member) * gemv_columns + place % args.team_columns;
      sum += sums[column * row_room + m];
    }
    finish(args, first_row + m, n, group, sum);
  }
}

/// One row, whose elements stay in registers. Blocks: tiles of columns, for every row.
template <class Type>
TENON_DEVICE void gemv(const Thread& thread, const LinearArgs& args) {
  using Stream = WeightStream<Type, 1>;
  constexpr std::uint32_t elements = Piece<Type>::elements, segments = Piece<Type>::segments;
  TENON_SHARED(thread, Words4, ring, gemv_warps * Stream::stages * Stream::stage_room);
  TENON_SHARED(thread, float, sums, gemv_warps* gemv_columns);
  const std::uint32_t tile = thread.block() % args.column_tiles;
  const std::uint32_t row = thread.block() / args.column_tiles;
  const std::int64_t group = group_of(args, row);
  if (group < 0) return;
  const WarpShare share = share_of(thread, args, tile, group);
  const std::uint32_t lane = lane_of(thread), own_sums = warp_of(thread) * gemv_columns;
  Stream stream{.slice = share.member};
  TENON_UNROLL for (std::uint32_t i = 0; i + 1 < Stream::stages; ++i) {
    stream.fetch(thread, args, share, ring);
  }
  // What is above reads weights alone.
  if (lane < share.columns) sums[own_sums + lane] = 0.0f;
  std::uint32_t stage = 0;
  for (std::uint32_t slice = share.member;; slice += args.team) {
    const std::uint32_t left = elements_of_slice<Type>(slice, args.depth);
    if (left == 0) break;
    float x[elements] = {}, totals[segments] = {};
    with_x(args, [&](const auto& load) {
      if (!has_piece<Type>(thread, left)) return;
      TENON_UNROLL for (std::uint32_t q = 0; q < elements / 4; ++q) {
        const std::uint32_t k = slice * slice_elements<Type> + Piece<Type>::place(lane, q);
        const FourFloats four = load(x_row(args, row), k);
        TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) x[4 * q + i] = four.at[i];
      }
    });
    TENON_UNROLL for (std::uint32_t i = 0; i < elements; ++i) {
      totals[i / (elements / segments)] += x[i];
    }
    for (std::uint32_t column = 0; column < share.columns; ++column) {
      wait_copies<Stream::stages - 2>();
      thread.sync_warp();
      stream.fetch(thread, args, share, ring);
      float sum = 0.0f;
      if (has_piece<Type>(thread, left)) {
        typename Piece<Type>::Values values;
        const Address from = Stream::slice_at(args, share, column, slice);
        Piece<Type>::read(ring, Stream::place(thread, stage, 0, from), lane, left, values);
        TENON_UNROLL for (std::uint32_t s = 0; s < segments; ++s) {
          float dot = 0.0f;
          TENON_UNROLL for (std::uint32_t i = 0; i < elements / segments; ++i) {
            dot += values.codes[s * (elements / segments) + i] * x[s * (elements / segments) + i];
          }
          add_segment<Type>(values, s, dot, totals[s], sum);
        }
      }
      sum = sum_of_warp(thread, sum);
      if (lane == 0) sums[own_sums + column] += sum;
      stage = stage + 1 == Stream::stages ? 0 : stage + 1;
    }
  }
  finish_columns(thread, args, sums, tile, row, 1, group);
}

/// Up to `gemv_rows` rows, which are loaded for two columns at a time. Blocks: tiles of columns.
template <class Type>
TENON_DEVICE void gemv_rows_at_once(const Thread& thread, const LinearArgs& args) {
  using Stream = WeightStream<Type, 2>;
  constexpr std::uint32_t elements = Piece<Type>::elements, segments = Piece<Type>::segments;
  TENON_SHARED(thread, Words4, ring, gemv_warps * Stream::stages * Stream::stage_room);
  TENON_SHARED(thread, float, sums, gemv_warps* gemv_columns* gemv_rows);
  const WarpShare share = share_of(thread, args, thread.block(), 0);
  const std::uint32_t lane = lane_of(thread);
  const std::uint32_t own_sums = warp_of(thread) * gemv_columns * gemv_rows;
  Stream stream{.slice = share.member};
  stream.fetch(thread, args, share, ring);
  // What is above reads weights alone.
  for (std::uint32_t i = lane; i < share.columns * gemv_rows; i += warp_size) {
    sums[own_sums + i] = 0.0f;
  }
  std::uint32_t stage = 0;
  for (std::uint32_t slice = share.member;; slice += args.team) {
    const std::uint32_t left = elements_of_slice<Type>(slice, args.depth);
    if (left == 0) break;
    for (std::uint32_t column = 0; column < share.columns; column += 2) {
      wait_copies<0>();
      thread.sync_warp();
      stream.fetch(thread, args, share, ring);
      typename Piece<Type>::Values values[2] = {};
      if (has_piece<Type>(thread, left)) {
        TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
          const Address from = Stream::slice_at(args, share, column + j, slice);
          Piece<Type>::read(ring, Stream::place(thread, stage, j, from), lane, left, values[j]);
        }
      }
      with_x(args, [&](const auto& load) {
        for (std::uint32_t m = 0; m < args.rows; ++m) {
          float both[2] = {};
          if (has_piece<Type>(thread, left)) {
            TENON_UNROLL for (std::uint32_t s = 0; s < segments; ++s) {
              float dots[2] = {}, total = 0.0f;
              TENON_UNROLL for (std::uint32_t i = 0; i < elements / segments; i += 4) {
                const std::uint32_t at = s * (elements / segments) + i;
                const std::uint32_t k =
                    slice * slice_elements<Type> + Piece<Type>::place(lane, at / 4);
                const FourFloats four = load(x_row(args, m), k);
                TENON_UNROLL for (std::uint32_t c = 0; c < 4; ++c) {
                  dots[0] += values[0].codes[at + c] * four.at[c];
                  dots[1] += values[1].codes[at + c] * four.at[c];
                  total += four.at[c];
                }
              }
              add_segment<Type>(values[0], s, dots[0], total, both[0]);
              add_segment<Type>(values[1], s, dots[1], total, both[1]);
            }
          }
          both[0] = sum_of_warp(thread, both[0]);
          both[1] = sum_of_warp(thread, both[1]);
          if (lane < 2 && column + lane < share.columns) {
            sums[own_sums + (column + lane) * gemv_rows + m] += lane == 0 ? both[0] : both[1];
          }
        }
      });
      stage = 1 - stage;
    }
  }
  finish_columns(thread, args, sums, thread.block(), 0, gemv_rows, 0);
}

}  // namespace tenon::cuda
