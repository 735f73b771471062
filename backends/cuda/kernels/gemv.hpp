// Products of up to `gemv_rows` rows, which take as long as their weights take to be read.
//
// A column's depth is cut in slices of 32 pieces (pieces.hpp). A team of warps shares its columns:
// each warp takes every `team`-th slice of all of them, copies these to shared memory, some stages
// ahead, and multiplies what is there. What the warps of a team sum up is added in their order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/eights.hpp"
#include "kernels/linear.hpp"
#include "kernels/pieces.hpp"

#include <cstdint>

namespace tenon::cuda {

template <class Type>
inline constexpr std::uint32_t slice_elements = warp_size * Piece<Type>::elements;
/// Words of 16 bytes that a slice has room in. One that is not aligned begins at any byte of the
/// first, and `read_words` reads a word behind its end.
template <class Type>
inline constexpr std::uint32_t slice_room =
    Piece<Type>::slice_bytes / 16 + (Piece<Type>::alignment == 16 ? 0 : 3);

/// What a warp multiplies: slices `member`, `member + team`, ... of its team's columns.
struct WarpShare {
  Address w;  ///< the team's first column
  std::uint32_t first, columns, member;
};
/// i / size, below `gemv_teams`: in less time than a division takes.
TENON_DEVICE std::uint32_t team_of(std::uint32_t i, std::uint32_t size) {
  std::uint32_t team = 0;
  TENON_UNROLL for (std::uint32_t t = 1; t < gemv_teams; ++t) team += i >= t * size ? 1 : 0;
  return team;
}
TENON_DEVICE WarpShare share_of(const Thread& thread, const LinearArgs& args, std::uint32_t tile,
                                std::int64_t group) {
  const std::uint32_t teams = team_of(thread.count() / warp_size - 1, args.team) + 1;
  const std::uint32_t own = team_of(warp_of(thread), args.team);
  WarpShare share{};
  share.first = (tile * teams + own) * args.team_columns;
  share.member = warp_of(thread) - own * args.team;
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

/// A warp's slices, on their way to shared memory: `stages` of two columns each.
template <class Type>
class WeightStream {
 public:
  static constexpr std::uint32_t stages = slice_room<Type> > 46 ? 2 : 3;
  static constexpr std::uint32_t stage_room = 2 * slice_room<Type>;

  template <class Words>
  TENON_DEVICE WeightStream(const Thread& thread, const LinearArgs& args, const WarpShare& share,
                            const Words& words)
      : lane_bytes_(kept(16 * lane_of(thread))),
        columns_(share.columns),
        begin_(kept(words.at(warp_of(thread) * stages * stage_room))),
        first_(share.w),
        slice_(share.member),
        fetched_(begin_),
        read_(begin_) {
    find_slice(args);
  }

  /// Starts a copy into the next stage.
  template <class Words>
  TENON_DEVICE void fetch(const LinearArgs& args, const Words& words) {
    TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
      copy_slice(words, fetched_ + 16 * j * slice_room<Type>, left_ > j ? bytes_ : 0);
      from_ += static_cast<Address>(args.w_step);
    }
    commit_copies();
    fetched_ = after(fetched_);
    if (left_ > 2) {
      left_ -= 2;
    } else {
      slice_ += args.team;
      find_slice(args);
    }
  }

  /// The address of column j of the oldest stage.
  TENON_DEVICE std::uint32_t place(const LinearArgs& args, std::uint32_t j) const {
    const std::uint32_t room = read_ + 16 * j * slice_room<Type>;
    if (is_aligned) return room;
    return room + (low_ + j * static_cast<std::uint32_t>(args.w_step)) % 16;
  }
  /// Goes on to the next stage, of the same slice.
  TENON_DEVICE void step(const LinearArgs& args) {
    read_ = after(read_);
    low_ += 2 * static_cast<std::uint32_t>(args.w_step);
  }
  /// Goes back to the first column, of slice `slice`.
  TENON_DEVICE void start_slice(std::uint32_t slice) {
    low_ = static_cast<std::uint32_t>(first_) + Piece<Type>::bytes(slice * slice_elements<Type>);
  }

 private:
  static constexpr bool is_aligned = Piece<Type>::alignment == 16;

  TENON_DEVICE std::uint32_t after(std::uint32_t stage) const {
    constexpr std::uint32_t bytes = 16 * stage_room;
    return stage == begin_ + (stages - 1) * bytes ? begin_ : stage + bytes;
  }
  TENON_DEVICE void find_slice(const LinearArgs& args) {
    bytes_ = Piece<Type>::bytes(elements_of_slice<Type>(slice_, args.depth));
    left_ = bytes_ == 0 ? 0 : columns_;
    from_ = first_ + Piece<Type>::bytes(slice_ * slice_elements<Type>) + lane_bytes_;
  }
  template <class Words>
  TENON_DEVICE void copy_slice(const Words& words, std::uint32_t to, std::uint32_t bytes) {
    const std::uint32_t skipped = is_aligned ? 0 : static_cast<std::uint32_t>(from_) % 16;
    const std::uint32_t end = bytes == 0 ? 0 : bytes + skipped;
    const Address first = from_ - skipped;
    to += lane_bytes_;
    TENON_UNROLL for (std::uint32_t i = 0; i < 16 * slice_room<Type>; i += 16 * warp_size) {
      const std::uint32_t at = i + lane_bytes_;
      const auto* const source = global<const Words4>(first + i);
      if constexpr (Piece<Type>::is_padded) {
        const std::uint32_t left = at < end ? end - at : 0;
        words.copy_async(to + i, source, left < 16 ? left : 16);
      } else if (at < end) {
        words.copy_async(to + i, source);
      }
    }
  }

  const std::uint32_t lane_bytes_, columns_, begin_;
  const Address first_;
  Address from_ = 0;  ///< of the next copy, as what follows
  std::uint32_t bytes_ = 0, left_ = 0, slice_, fetched_;
  std::uint32_t read_, low_ = 0;  ///< of the oldest stage
};

TENON_DEVICE FourFloats load_four_floats(Address at) {
  const Words4 words = *global<const Words4>(at);
  FourFloats four;
  for (std::uint32_t i = 0; i < 4; ++i) four.of[i] = bits_to_float(words.at[i]);
  return four;
}
TENON_DEVICE FourFloats load_four_halves(DType dtype, Address at) {
  const Words2 words = *global<const Words2>(at);
  FourFloats four;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto bits = static_cast<std::uint16_t>(words.at[i / 2] >> (i % 2 * 16));
    four.of[i] = dtype == DType::f16 ? widen_half(bits) : widen_bfloat16(bits);
  }
  return four;
}
/// The first `count` of four, and zeros.
TENON_CALLED FourFloats load_four(DType dtype, Address at, bool is_wide, std::uint32_t count) {
  if (is_wide && dtype != DType::f32) return load_four_halves(dtype, at);
  FourFloats four{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (i < count) four.of[i] = load_real(dtype, at + i * (dtype == DType::f32 ? 4 : 2));
  }
  return four;
}

/// Where a lane's piece of x begins: element k of a row.
struct XPiece {
  Address at;
  std::uint32_t k;
};
template <class Type>
TENON_DEVICE XPiece x_piece(const LinearArgs& args, std::uint32_t m, std::uint32_t slice,
                            std::uint32_t lane) {
  const std::uint32_t k = slice * slice_elements<Type> + Piece<Type>::place(lane, 0);
  return {x_row(args, m) + std::uint64_t{k} * (args.x_dtype == DType::f32 ? 4 : 2), k};
}

/// Calls `use` with a function that loads elements 4 q to 4 q + 3 of a piece of x, zeros behind the
/// row's end: one of several, so that what `use` loops over has no switch in it. `has_halves`:
/// whether f16 and bf16 have their own.
template <class Type, bool has_halves, class Use>
TENON_DEVICE void with_x(const LinearArgs& args, const Use& use) {
  const std::uint32_t depth = args.depth;
  const DType dtype = args.x_dtype;
  const std::uint32_t places =
      static_cast<std::uint32_t>(args.x) | static_cast<std::uint32_t>(args.x_step);
  const bool is_wide = depth % 4 == 0 && places % (dtype == DType::f32 ? 16u : 8u) == 0;
  const auto is_inside = [depth](const XPiece& piece, std::uint32_t q) {
    return !Piece<Type>::is_padded || piece.k + Piece<Type>::place(0, q) < depth;
  };
  if (is_wide && dtype == DType::f32) {
    use([=](const XPiece& piece, std::uint32_t q) {
      if (!is_inside(piece, q)) return FourFloats{};
      return load_four_floats(piece.at + 4 * Piece<Type>::place(0, q));
    });
    return;
  }
  if constexpr (has_halves) {
    if (is_wide) {
      use([=](const XPiece& piece, std::uint32_t q) {
        if (!is_inside(piece, q)) return FourFloats{};
        return load_four_halves(dtype, piece.at + 2 * Piece<Type>::place(0, q));
      });
      return;
    }
  }
  use([=](const XPiece& piece, std::uint32_t q) {
    if (!is_inside(piece, q)) return FourFloats{};
    const std::uint32_t offset = Piece<Type>::place(0, q);
    const std::uint32_t bytes = offset * (dtype == DType::f32 ? 4 : 2);
    return load_four(dtype, piece.at + bytes, is_wide, depth - piece.k - offset);
  });
}

/// A piece times x: `dots` and `totals` are the sums of its segments with and without codes.
template <class Type>
TENON_DEVICE float product_of(const typename Piece<Type>::Values& values,
                              const float (&dots)[Piece<Type>::segments],
                              const float (&totals)[Piece<Type>::segments]) {
  constexpr PieceForm form = Piece<Type>::form;
  constexpr bool has_scales = form == PieceForm::scales || form == PieceForm::mins;
  float sum = 0.0f, offset = 0.0f;
  TENON_UNROLL for (std::uint32_t s = 0; s < Piece<Type>::segments; ++s) {
    float dot = dots[s];
    if constexpr (Piece<Type>::zero != 0.0f) {
      dot = multiply_add(-Piece<Type>::zero, totals[s], dot);
    }
    if constexpr (has_scales) {
      sum = multiply_add(values.scales[s], dot, sum);
    } else {
      sum += dot;
    }
    if constexpr (form == PieceForm::mins) {
      offset = multiply_add(values.mins[s], totals[s], offset);
    }
    if constexpr (form == PieceForm::shifted) offset += totals[s];
  }
  if constexpr (form != PieceForm::plain) sum *= values.factor;
  if constexpr (form == PieceForm::mins || form == PieceForm::shifted) {
    sum = multiply_add(values.offset, offset, sum);
  }
  return sum;
}

TENON_DEVICE float sum_of_warp(const Thread& thread, float sum) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) sum += thread.shuffle_xor(sum, mask);
  return sum;
}

/// Whether the lane has a piece of a slice of `left` elements.
template <class Type>
TENON_DEVICE bool lane_has_piece(std::uint32_t lane, std::uint32_t left) {
  return Piece<Type>::is_padded || lane * Piece<Type>::elements < left;
}

/// Whether products are made of differences, which are a NaN where a row has an infinity.
template <class Type>
inline constexpr bool has_differences =
    Piece<Type>::zero != 0.0f || Piece<Type>::form == PieceForm::mins ||
    Piece<Type>::form == PieceForm::shifted;
/// A product of such a row, element by element.
template <class Type>
TENON_CALLED float product_of_infinities(const LinearArgs& args, std::uint32_t m, Address w) {
  float sum = 0.0f;
  for (std::uint32_t k = 0; k < args.depth; k += 8) {
    float weights[8], values[8];
    Row<Type>::load_eight(w, k, args.depth, weights);
    load_eight(args.x_dtype, x_row(args, m), k, args.depth, values);
    for (int i = 0; i < 8; ++i) sum += weights[i] * values[i];
  }
  return sum;
}
TENON_DEVICE bool is_finite(float value) {
  return (float_to_bits(value) & 0x7F800000u) != 0x7F800000u;
}

/// Columns whose sums have room, of each warp.
template <std::uint32_t row_room>
inline constexpr std::uint32_t column_room = row_room == 1 ? gemv_columns : gemv_columns_of_rows;

/// The sums of a team's warps, in shared memory: [warp, column, row].
template <class Type, std::uint32_t row_room, class Sums>
TENON_DEVICE void finish_columns(const Thread& thread, const LinearArgs& args, const Sums& sums,
                                 std::uint32_t tile, std::uint32_t first_row, std::int64_t group) {
  thread.sync();
  const std::uint32_t teams = team_of(thread.count() / warp_size - 1, args.team) + 1;
  const std::uint32_t rows = row_room == 1 ? 1 : args.rows;
  const std::uint32_t count = teams * args.team_columns;
  for (std::uint32_t i = thread.index(); i < count * rows; i += thread.count()) {
    const std::uint32_t m = row_room == 1 ? 0 : i / count, place = i - m * count;
    const std::uint32_t n = tile * count + place;
    if (n >= args.columns) continue;
    const std::uint32_t team = team_of(place, args.team_columns);
    const std::uint32_t column = place - team * args.team_columns;
    float sum = 0.0f;
    for (std::uint32_t member = 0; member < args.team; ++member) {
      const std::uint32_t warp = team * args.team + member;
      sum += sums[(warp * column_room<row_room> + column) * row_room + m];
    }
    if constexpr (has_differences<Type>) {
      if (!is_finite(sum)) {
        const auto at = static_cast<Address>(n * args.w_step + group * args.w_group_step);
        sum = product_of_infinities<Type>(args, first_row + m, args.w + at);
      }
    }
    finish(args, first_row + m, n, group, sum);
  }
}

/// The first step of `sum_of_warp` of two numbers: of the first in the lower lanes, of the second in
/// the upper ones.
TENON_DEVICE float half_sums(const Thread& thread, float first, float second) {
  const bool is_lower = lane_of(thread) < warp_size / 2;
  return (is_lower ? first : second) + thread.shuffle_xor(is_lower ? second : first, warp_size / 2);
}
/// Its other steps, for half sums [column / 2, lane] in shared memory: eight lanes for each column.
template <class Halves, class Sums>
TENON_DEVICE void add_half_sums(const Thread& thread, const Halves& halves,
                                std::uint32_t own_halves, Sums& sums, std::uint32_t own_sums,
                                std::uint32_t columns) {
  thread.sync_warp();
  const std::uint32_t part = lane_of(thread) % 8;
  for (std::uint32_t first = 0; first < columns; first += 4) {
    const std::uint32_t column = first + lane_of(thread) / 8;
    const std::uint32_t at = own_halves + column * (warp_size / 2) + part;
    float sum = column < columns ? halves[at] + halves[at + 8] : 0.0f;
    for (unsigned mask = 4; mask > 0; mask /= 2) sum += thread.shuffle_xor(sum, mask);
    if (part == 0 && column < columns) sums[own_sums + column] += sum;
  }
  thread.sync_warp();
}

/// Has what is added to a thread's first sum come near, while products are summed up.
TENON_DEVICE void prefetch_addends(const Thread& thread, const LinearArgs& args, std::uint32_t tile,
                                   std::uint32_t row, std::int64_t group) {
  const std::uint32_t teams = team_of(thread.count() / warp_size - 1, args.team) + 1;
  const std::uint32_t count = teams * args.team_columns, n = tile * count + thread.index();
  if (thread.index() >= count || n >= args.columns) return;
  if (args.bias != 0) {
    const std::int64_t at = n * args.bias_step + group * args.bias_group_step;
    prefetch(args.bias + static_cast<Address>(at));
  }
  if (args.residual != 0) {
    const std::int64_t at = row * args.residual_step + n * (args.y_dtype == DType::f32 ? 4 : 2);
    prefetch(args.residual + static_cast<Address>(at));
  }
}
/// The same of a warp's slices of x but the first, which it needs at once.
template <class Type>
TENON_DEVICE void prefetch_x(const LinearArgs& args, std::uint32_t row, std::uint32_t member,
                             std::uint32_t lane) {
  const std::uint32_t element = args.x_dtype == DType::f32 ? 4 : 2, at = 128 * lane;
  for (std::uint32_t slice = member + args.team;; slice += args.team) {
    const std::uint32_t count = elements_of_slice<Type>(slice, args.depth);
    if (count == 0) break;
    const std::uint64_t begin = std::uint64_t{slice} * slice_elements<Type> * element;
    if (at < count * element) prefetch(x_row(args, row) + begin + at);
  }
}

/// Whether rows of weights begin where their pieces need it.
template <class Type>
TENON_DEVICE bool has_pieces(const LinearArgs& args, Address w) {
  const std::int64_t steps = args.w_step | args.w_group_step;
  return Piece<Type>::alignment == 1 || (w | static_cast<Address>(steps)) % 16 == 0;
}
/// The same product where they do not: a warp for each of `count` columns from `first` on, one after
/// the other. `w`: those of the group.
template <class Type>
TENON_CALLED void multiply_unaligned(const Thread& thread, const LinearArgs& args,
                                     const LinearPart& part, Address w, std::uint32_t first,
                                     std::uint32_t count, std::uint32_t first_row,
                                     std::uint32_t row_room, std::int64_t group) {
  const std::uint32_t warps = thread.count() / warp_size;
  const std::uint32_t rows = args.rows - first_row < row_room ? args.rows - first_row : row_room;
  for (std::uint32_t i = warp_of(thread); i < count; i += warps) {
    const std::uint32_t n = first + i;
    if (n >= part.columns) break;
    const Address column = w + static_cast<Address>(n * args.w_step);
    float sums[gemv_rows] = {};
    for (std::uint32_t k = lane_of(thread) * 8; k < args.depth; k += warp_size * 8) {
      float weights[8], values[8];
      Row<Type>::load_eight(column, k, args.depth, weights);
      for (std::uint32_t m = 0; m < gemv_rows; ++m) {
        if (m >= rows) break;
        load_eight(args.x_dtype, x_row(args, first_row + m), k, args.depth, values);
        for (int c = 0; c < 8; ++c) sums[m] += weights[c] * values[c];
      }
    }
    for (std::uint32_t m = 0; m < gemv_rows; ++m) {
      if (m >= rows) break;
      sums[m] = sum_of_warp(thread, sums[m]);
      if (lane_of(thread) == 0) finish(args, part, first_row + m, n, group, sums[m]);
    }
  }
}
/// The same for a block of gemv.
template <class Type>
TENON_DEVICE void multiply_block_unaligned(const Thread& thread, const LinearArgs& args,
                                           std::uint32_t tile, std::uint32_t first_row,
                                           std::uint32_t row_room, std::int64_t group) {
  const std::uint32_t count = thread.count() / warp_size / args.team * args.team_columns;
  const Address w = args.w + static_cast<Address>(group * args.w_group_step);
  multiply_unaligned<Type>(thread, args, whole_part(args), w, tile * count, count, first_row,
                           row_room, group);
}

/// One row, whose elements stay in registers. Blocks: tiles of columns, for every row.
template <class Type>
TENON_DEVICE void gemv(const Thread& thread, const LinearArgs& args) {
  using Stream = WeightStream<Type>;
  constexpr std::uint32_t elements = Piece<Type>::elements, segments = Piece<Type>::segments;
  constexpr std::uint32_t length = elements / segments;
  TENON_SHARED(thread, Words4, ring, gemv_warps * Stream::stages * Stream::stage_room);
  constexpr std::uint32_t columns_at_once = 8;  // whose half sums have room
  TENON_SHARED(thread, float, halves, gemv_warps* columns_at_once* warp_size / 2);
  TENON_SHARED(thread, float, sums, gemv_warps* gemv_columns);
  const std::uint32_t row = args.rows == 1 ? 0 : thread.block() / args.column_tiles;
  const std::uint32_t tile = thread.block() - row * args.column_tiles;
  if (!args.reads_ahead || !has_pieces<Type>(args, args.w)) wait_for_earlier();
  const std::int64_t group = group_of(args, row);
  if (group < 0) return;
  if (!has_pieces<Type>(args, args.w)) {
    return multiply_block_unaligned<Type>(thread, args, tile, row, 1, group);
  }
  const WarpShare share = share_of(thread, args, tile, group);
  const std::uint32_t lane = lane_of(thread), own_sums = warp_of(thread) * gemv_columns;
  const std::uint32_t own_halves = kept(warp_of(thread) * columns_at_once * (warp_size / 2) + lane);
  const SharedWords words(ring);
  const typename Piece<Type>::Lane piece_lane(lane);
  Stream stream(thread, args, share, words);
  TENON_UNROLL for (std::uint32_t i = 0; i + 1 < Stream::stages; ++i) stream.fetch(args, words);
  wait_for_earlier();  // what is above reads weights alone
  prefetch_addends(thread, args, tile, row, group);
  prefetch_x<Type>(args, row, share.member, lane);
  for (std::uint32_t i = lane; i < share.columns; i += warp_size) sums[own_sums + i] = 0.0f;
  for (std::uint32_t slice = share.member;; slice += args.team) {
    const std::uint32_t left = elements_of_slice<Type>(slice, args.depth);
    if (left == 0) break;
    const bool has_piece = lane_has_piece<Type>(lane, left);
    float x[elements] = {}, totals[segments] = {};
    const XPiece piece = x_piece<Type>(args, row, slice, lane);
    with_x<Type, true>(args, [&](const auto& load) {
      if (!has_piece) return;
      TENON_UNROLL for (std::uint32_t q = 0; q < elements / 4; ++q) {
        const FourFloats four = load(piece, q);
        TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) x[4 * q + i] = four.of[i];
      }
    });
    TENON_UNROLL for (std::uint32_t i = 0; i < elements; ++i) totals[i / length] += x[i];
    stream.start_slice(slice);
    for (std::uint32_t first = 0; first < share.columns; first += columns_at_once) {
      const std::uint32_t rest = share.columns - first;
      const std::uint32_t count = rest < columns_at_once ? rest : columns_at_once;
      for (std::uint32_t column = 0; column < count; column += 2) {
        wait_copies<Stream::stages - 2>();
        thread.sync_warp();
        stream.fetch(args, words);
        float both[2];
        TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
          typename Piece<Type>::Values values;
          Piece<Type>::read(words, stream.place(args, j), piece_lane, values);
          float dots[segments] = {};
          TENON_UNROLL for (std::uint32_t i = 0; i < elements; ++i) {
            dots[i / length] = multiply_add(values.codes[i], x[i], dots[i / length]);
          }
          const float sum = product_of<Type>(values, dots, totals);
          both[j] = has_piece ? sum : 0.0f;
        }
        halves[own_halves + column * (warp_size / 2)] = half_sums(thread, both[0], both[1]);
        stream.step(args);
      }
      add_half_sums(thread, halves, own_halves - lane, sums, own_sums + first, count);
    }
  }
  finish_columns<Type, 1>(thread, args, sums, tile, row, group);
}

/// Up to `gemv_rows` rows, four of which are loaded at a time, for two columns. Blocks: tiles of
/// columns.
template <class Type>
TENON_DEVICE void gemv_rows_at_once(const Thread& thread, const LinearArgs& args) {
  using Stream = WeightStream<Type>;
  constexpr std::uint32_t elements = Piece<Type>::elements, segments = Piece<Type>::segments;
  constexpr std::uint32_t rows_at_once = 4;
  constexpr std::uint32_t length = elements / segments;
  TENON_SHARED(thread, Words4, ring, gemv_warps * Stream::stages * Stream::stage_room);
  TENON_SHARED(thread, float, sums, gemv_warps* gemv_columns_of_rows* gemv_rows);
  const std::uint32_t tile = thread.block();
  if (!args.reads_ahead || !has_pieces<Type>(args, args.w)) wait_for_earlier();
  if (!has_pieces<Type>(args, args.w)) {
    return multiply_block_unaligned<Type>(thread, args, tile, 0, gemv_rows, 0);
  }
  const WarpShare share = share_of(thread, args, tile, 0);
  const std::uint32_t lane = lane_of(thread);
  const std::uint32_t own_sums = warp_of(thread) * gemv_columns_of_rows * gemv_rows;
  const SharedWords words(ring);
  const typename Piece<Type>::Lane piece_lane(lane);
  Stream stream(thread, args, share, words);
  TENON_UNROLL for (std::uint32_t i = 0; i + 1 < Stream::stages; ++i) stream.fetch(args, words);
  wait_for_earlier();  // what is above reads weights alone
  for (std::uint32_t i = lane; i < share.columns * gemv_rows; i += warp_size) {
    sums[own_sums + i] = 0.0f;
  }
  for (std::uint32_t slice = share.member;; slice += args.team) {
    const std::uint32_t left = elements_of_slice<Type>(slice, args.depth);
    if (left == 0) break;
    const bool has_piece = lane_has_piece<Type>(lane, left);
    stream.start_slice(slice);
    for (std::uint32_t column = 0; column < share.columns; column += 2) {
      wait_copies<Stream::stages - 2>();
      thread.sync_warp();
      stream.fetch(args, words);
      typename Piece<Type>::Values values[2];
      TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
        Piece<Type>::read(words, stream.place(args, j), piece_lane, values[j]);
      }
      stream.step(args);
      with_x<Type, false>(args, [&](const auto& load) {
        for (std::uint32_t first = 0; first < args.rows; first += rows_at_once) {
          XPiece pieces[rows_at_once];
          float dots[rows_at_once][2][segments] = {}, totals[rows_at_once][segments] = {};
          TENON_UNROLL for (std::uint32_t r = 0; r < rows_at_once; ++r) {
            const std::uint32_t m = first + r < args.rows ? first + r : args.rows - 1;
            pieces[r] = x_piece<Type>(args, m, slice, lane);
          }
          if (has_piece) {
            TENON_UNROLL for (std::uint32_t i = 0; i < elements; i += 4) {
              TENON_UNROLL for (std::uint32_t r = 0; r < rows_at_once; ++r) {
                const FourFloats four = load(pieces[r], i / 4);
                TENON_UNROLL for (std::uint32_t c = 0; c < 4; ++c) {
                  dots[r][0][i / length] =
                      multiply_add(values[0].codes[i + c], four.of[c], dots[r][0][i / length]);
                  dots[r][1][i / length] =
                      multiply_add(values[1].codes[i + c], four.of[c], dots[r][1][i / length]);
                  totals[r][i / length] += four.of[c];
                }
              }
            }
          }
          TENON_UNROLL for (std::uint32_t r = 0; r < rows_at_once; ++r) {
            float both[2];
            TENON_UNROLL for (std::uint32_t j = 0; j < 2; ++j) {
              const float sum = product_of<Type>(values[j], dots[r][j], totals[r]);
              both[j] = has_piece ? sum : 0.0f;
            }
            float sum = half_sums(thread, both[0], both[1]);
            for (unsigned mask = 8; mask > 0; mask /= 2) sum += thread.shuffle_xor(sum, mask);
            const std::uint32_t n = column + lane / 16, m = first + r;
            if (lane % 16 == 0 && n < share.columns && m < args.rows) {
              sums[own_sums + n * gemv_rows + m] += sum;
            }
          }
        }
      });
    }
  }
  finish_columns<Type, gemv_rows>(thread, args, sums, tile, 0, 0);
}

}  // namespace tenon::cuda
