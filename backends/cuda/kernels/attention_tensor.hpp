// Attention of many queries in tensor cores, with online softmax. A block has 4 warps, a warp 32
// queries of a head, or 16 where heads are long. The block goes through the keys that any of its
// queries sees, a tile at a time, and copies the next tile meanwhile. Keys and values are multiplied
// as they are, f16 or bf16; queries and weights are rounded to that type.
//
// Half of a query stays in registers, and half in shared memory, so that both have room for sums.
// Source of the order of loops: Dao, FlashAttention-2 (2023).
#pragma once

#include "kernels/attention.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

/// How a block divides its work, for heads of up to `size` elements. Shared memory has chunks of
/// eight elements: the second halves of the queries, then two pairs of a tile of keys and one of
/// values. A row's chunks are permuted, so that eight rows have one in different banks each.
template <std::uint32_t size>
struct TensorTiles {
  static constexpr std::uint32_t queries = tensor_query_elements / size;
  static constexpr std::uint32_t warp_rows = queries / (tensor_attention_threads / warp_size);
  static constexpr std::uint32_t row_tiles = warp_rows / 16;
  static constexpr std::uint32_t keys = tensor_key_elements / size;
  static constexpr std::uint32_t parts = size / 8, half_parts = parts / 2;
  static constexpr std::uint32_t half_steps = size / 32;  // of 16 elements
  static constexpr std::uint32_t tile_chunks = keys * parts;
  static constexpr std::uint32_t first_stage = queries * half_parts;
  static constexpr std::uint32_t chunks = first_stage + 4 * tile_chunks;
  // The first halves of queries are where the second pair will be, until they are in registers.
  static constexpr std::uint32_t first_halves = first_stage + 2 * tile_chunks;
  static_assert(queries * half_parts <= 2 * tile_chunks && row_tiles >= 1);
};
/// Where the permutation puts a row's chunk.
TENON_DEVICE std::uint32_t chunk_of(std::uint32_t row, std::uint32_t parts, std::uint32_t part) {
  return row * parts + (part ^ row % 8);
}

/// Weights of f16 are this power of two larger, as is their sum: small ones keep their precision.
template <bool is_half>
TENON_DEVICE float weight_exponent() {
  return is_half ? 15.0f : 0.0f;
}
inline constexpr float log2_of_e = 1.44269504f;

/// Whether all rows begin, and end, at multiples of 16 bytes.
TENON_DEVICE bool are_rows_aligned(Address base, const std::int64_t (&steps)[3],
                                   std::uint32_t depth) {
  const Address all = base | static_cast<Address>(steps[0] | steps[1] | steps[2]) | 2 * depth;
  return all % sizeof(Words4) == 0;
}
/// Eight elements of a row that begins anywhere into shared memory, at once. An address of 0: zeros.
template <class Chunks>
TENON_DEVICE void copy_unaligned(Chunks& chunks, std::uint32_t at, Address row, std::uint32_t k,
                                 std::uint32_t depth) {
  chunks[at] = {};
  if (row == 0) return;
  for (std::uint32_t i = 0; i < 8 && k + i < depth; ++i) {
    chunks[at].at[i / 2] |= std::uint32_t{global<const std::uint16_t>(row + 2 * k)[i]}
                            << (i % 2 * 16);
  }
}

/// What a block computes.
struct TensorBlock {
  std::uint32_t b, h, key_head, first;  ///< its first query
  std::int64_t position;
};
/// Heads of a group follow each other; of these, queries that see most keys are first.
template <std::uint32_t size>
TENON_DEVICE TensorBlock tensor_block(const AttentionArgs& args, std::uint32_t block) {
  constexpr std::uint32_t queries = TensorTiles<size>::queries;
  const std::uint32_t tiles = (args.queries + queries - 1) / queries;
  const std::uint32_t begin = block / (tiles * args.group_heads) * args.group_heads;
  const std::uint32_t rest = args.batch * args.heads - begin;
  const std::uint32_t heads = args.group_heads < rest ? args.group_heads : rest;
  const std::uint32_t place = block - begin * tiles, row = begin + place % heads;
  TensorBlock result;
  result.b = row / args.heads;
  result.h = row % args.heads;
  result.key_head = result.h / (args.heads / args.key_heads);
  result.first = (tiles - 1 - place / heads) * queries;
  result.position = position_of(args, result.b);
  return result;
}

/// Keys that any of `count` queries from `first` on sees; tiles that have some of them, and those of
/// which every query sees all keys.
struct TensorRange {
  std::uint32_t first_key, behind_key, begin, end, full_begin, full_end;
};
template <std::uint32_t keys>
TENON_DEVICE TensorRange tensor_range(const AttentionArgs& args, const TensorBlock& block,
                                      std::uint32_t first, std::uint32_t count) {
  if (first >= args.queries) return {};
  const std::uint32_t last = (args.queries - first < count ? args.queries - first : count) - 1;
  const KeyRange front = visible_keys(args, block.position, first);
  const KeyRange back = visible_keys(args, block.position, first + last);
  if (back.end <= front.begin) return {};
  const auto begin = static_cast<std::uint32_t>(front.begin);
  const auto end = static_cast<std::uint32_t>(back.end);
  return {begin,
          end,
          begin / keys,
          (end - 1) / keys + 1,
          static_cast<std::uint32_t>((back.begin + keys - 1) / keys),
          static_cast<std::uint32_t>(front.end / keys)};
}

/// What a thread copies next, where rows are aligned and not in pages.
struct RowsToCopy {
  Address key, value;
};
template <std::uint32_t size>
TENON_DEVICE RowsToCopy rows_to_copy(const Thread& thread, const AttentionArgs& args,
                                     const TensorBlock& block, std::uint32_t tile) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t t = tile * Tiles::keys + thread.index() / Tiles::parts;
  const Address bytes = thread.index() % Tiles::parts * sizeof(Words4);
  return {moved(args.k, args.k_steps, block.b, t, block.key_head) + bytes,
          moved(args.v, args.v_steps, block.b, t, block.key_head) + bytes};
}

/// Tile `tile` of keys and values, from chunk `stage` on: zeros where nobody sees it.
template <std::uint32_t size, class Chunks>
TENON_DEVICE void copy_tile(const Thread& thread, const AttentionArgs& args,
                            const TensorBlock& block, const TensorRange& seen, bool is_aligned,
                            std::uint32_t tile, std::uint32_t stage, RowsToCopy& rows,
                            Chunks& chunks) {
  using Tiles = TensorTiles<size>;
  constexpr std::uint32_t rows_at_once = tensor_attention_threads / Tiles::parts;
  const std::uint32_t part = thread.index() % Tiles::parts, d = 8 * part;
  if (is_aligned && args.table == 0) {
    const std::uint32_t row = thread.index() / Tiles::parts, t = tile * Tiles::keys + row;
    const std::uint32_t at = stage + chunk_of(row, Tiles::parts, part);
    TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::keys / rows_at_once; ++i) {
      // chunk_of() of a row that is further behind.
      const std::uint32_t to = (at ^ i * rows_at_once % 8) + i * rows_at_once * Tiles::parts;
      const bool is_seen = t + i * rows_at_once - seen.first_key < seen.behind_key - seen.first_key;
      copy_async(chunks, to, rows.key, is_seen && d < args.depth);
      copy_async(chunks, to + Tiles::tile_chunks, rows.value, is_seen && d < args.value_depth);
      rows.key += static_cast<Address>(rows_at_once * args.k_steps[1]);
      rows.value += static_cast<Address>(rows_at_once * args.v_steps[1]);
    }
  } else {
    for (std::uint32_t i = 0; i < 2 * Tiles::keys / rows_at_once; ++i) {
      const std::uint32_t row = i / 2 * rows_at_once + thread.index() / Tiles::parts;
      const std::uint32_t t = tile * Tiles::keys + row;
      const bool is_key = i % 2 == 0;
      const std::uint32_t depth = is_key ? args.depth : args.value_depth;
      const std::uint32_t at =
          stage + (is_key ? 0 : Tiles::tile_chunks) + chunk_of(row, Tiles::parts, part);
      Address from = 0;
      if (t >= seen.first_key && t < seen.behind_key) {
        from = is_key ? key_row(args, args.k, args.k_steps, block.b, t, block.key_head)
                      : key_row(args, args.v, args.v_steps, block.b, t, block.key_head);
      }
      if (is_aligned) {
        copy_async(chunks, at, from + 2 * d, from != 0 && d < depth);
      } else {
        copy_unaligned(chunks, at, from, d, depth);
      }
    }
  }
  commit_copies();
}

/// What a lane has of a query: by what a product is an exponent of 2, or where there is a mask or a
/// soft cap the inverse of what the query was multiplied by; the highest score so far; the lane's part
/// of the weights' sum.
struct RowState {
  float factor, peak, total;
};
/// The power of two by which a row whose largest magnitude this is comes to about 1, and its inverse.
struct RowScale {
  float down, up;
};
TENON_DEVICE RowScale scale_of_row(float largest) {
  if (!(largest < infinity())) return {1, 1};
  std::uint32_t exponent = float_to_bits(largest) >> 23;
  if (exponent < 1) exponent = 1;
  if (exponent > 253) exponent = 253;
  return {bits_to_float((254 - exponent) << 23), bits_to_float(exponent << 23)};
}

template <std::uint32_t size>
TENON_DEVICE std::uint32_t query_chunk(std::uint32_t row, std::uint32_t part) {
  using Tiles = TensorTiles<size>;
  const bool is_first = part < Tiles::half_parts;
  return (is_first ? Tiles::first_halves : 0) +
         chunk_of(row, Tiles::half_parts, part % Tiles::half_parts);
}

/// A warp's queries into shared memory, rounded to the keys' type. Of f16 they are multiplied by a
/// power of two each, whose inverse goes to `rows`.
template <bool is_half, std::uint32_t size, class Chunks>
TENON_DEVICE void convert_queries(const Thread& thread, const AttentionArgs& args,
                                  const TensorBlock& block, Chunks& chunks,
                                  RowState (&rows)[TensorTiles<size>::row_tiles][2]) {
  using Tiles = TensorTiles<size>;
  constexpr std::uint32_t pairs = size / 2 / warp_size, at_once = 16 / pairs;
  const std::uint32_t lane = lane_of(thread), warp_row = warp_of(thread) * Tiles::warp_rows;
  for (std::uint32_t begin = 0; begin < Tiles::warp_rows; begin += at_once) {
    float values[at_once][pairs][2];
    const auto load = [&](DType dtype, std::uint32_t bytes) {
      TENON_UNROLL for (std::uint32_t i = 0; i < at_once; ++i) {
        const std::uint32_t s = block.first + warp_row + begin + i;
        const std::uint32_t depth = s < args.queries ? args.depth : 0;
        const Address q = moved(args.q, args.q_steps, block.b, s, block.h);
        TENON_UNROLL for (std::uint32_t j = 0; j < 2 * pairs; ++j) {
          const std::uint32_t d = 2 * (lane + j / 2 * warp_size) + j % 2;
          values[i][j / 2][j % 2] = d < depth ? load_real(dtype, q + d * bytes) : 0.0f;
        }
      }
    };
    if (args.dtype == DType::f32) {
      load(DType::f32, 4);
    } else {
      load(is_half ? DType::bf16 : DType::f16, 2);
    }
    TENON_UNROLL for (std::uint32_t i = 0; i < at_once; ++i) {
      RowScale scale{1, 1};
      if (is_half) {
        std::uint32_t largest = 0;  // bits of magnitudes; those of a NaN are larger than others
        TENON_UNROLL for (std::uint32_t j = 0; j < 2 * pairs; ++j) {
          const std::uint32_t bits = float_to_bits(fabsf(values[i][j / 2][j % 2]));
          if (bits > largest) largest = bits;
        }
        scale = scale_of_row(bits_to_float(thread.highest(largest)));
      }
      TENON_UNROLL for (std::uint32_t j = 0; j < pairs; ++j) {
        const std::uint32_t word = lane + j * warp_size;
        chunks[query_chunk<size>(warp_row + begin + i, word / 4)].at[word % 4] =
            narrow_two<is_half>(values[i][j][0] * scale.down, values[i][j][1] * scale.down);
      }
      TENON_UNROLL for (std::uint32_t j = 0; j < 2 * Tiles::row_tiles; ++j) {
        if (8 * j + lane / 4 == begin + i) rows[j / 2][j % 2].factor = scale.up;
      }
    }
  }
}

/// A warp's queries: the first half of each goes to registers.
template <bool is_half, std::uint32_t size, class Chunks>
TENON_DEVICE void load_queries(
    const Thread& thread, const AttentionArgs& args, const TensorBlock& block, bool is_plain,
    Chunks& chunks, RowState (&rows)[TensorTiles<size>::row_tiles][2],
    FragmentA (&queries)[TensorTiles<size>::row_tiles][TensorTiles<size>::half_steps]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread), warp_row = warp_of(thread) * Tiles::warp_rows;
  TENON_UNROLL for (auto& two : rows) two[0] = two[1] = {1, -infinity(), 0};
  if (args.dtype == (is_half ? DType::f16 : DType::bf16)) {
    const bool is_aligned = are_rows_aligned(args.q, args.q_steps, args.depth);
    for (std::uint32_t i = lane; i < Tiles::warp_rows * Tiles::parts; i += warp_size) {
      const std::uint32_t row = warp_row + i / Tiles::parts, s = block.first + row;
      const Address q =
          s < args.queries ? moved(args.q, args.q_steps, block.b, s, block.h) : Address{0};
      const std::uint32_t d = i % Tiles::parts * 8, at = query_chunk<size>(row, d / 8);
      if (is_aligned) {
        copy_async(chunks, at, q + 2 * d, q != 0 && d < args.depth);
      } else {
        copy_unaligned(chunks, at, q, d, args.depth);
      }
    }
    commit_copies();
    wait_copies<0>();
  } else {
    convert_queries<is_half, size>(thread, args, block, chunks, rows);
  }
  if (is_plain) {
    TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
      float& factor = rows[row / 2][row % 2].factor;
      // Never 0, so that an infinity stays one.
      factor = fminf(fmaxf(args.scale * log2_of_e * factor, 0x1p-126f), 0x1p127f);
    }
  }
  thread.sync_warp();
  TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
    TENON_UNROLL for (std::uint32_t step = 0; step < Tiles::half_steps; ++step) {
      const std::uint32_t row = warp_row + 16 * m + lane % 16;
      queries[m][step] =
          load_matrices<false>(thread, chunks, query_chunk<size>(row, 2 * step + lane / 16));
    }
  }
}

/// Scores of a warp's queries and a tile of keys from chunk `stage` on.
template <bool is_half, std::uint32_t size, class Chunks>
TENON_DEVICE void multiply_keys(
    const Thread& thread, const AttentionArgs& args, const Chunks& chunks, std::uint32_t stage,
    const FragmentA (&queries)[TensorTiles<size>::row_tiles][TensorTiles<size>::half_steps],
    FragmentC (&scores)[TensorTiles<size>::row_tiles][TensorTiles<size>::keys / 8]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread), warp_row = warp_of(thread) * Tiles::warp_rows;
  // An even part and another bit: chunk_of(row, part + bit) is chunk_of(row, bit) ^ part.
  const std::uint32_t key = stage + chunk_of(lane / 16 * 8 + lane % 8, Tiles::parts, lane / 8 % 2);
  const std::uint32_t query = chunk_of(warp_row + lane % 16, Tiles::half_parts, lane / 16);
  const auto add_step = [&](std::uint32_t step, const FragmentA(&rows)[Tiles::row_tiles]) {
    TENON_UNROLL for (std::uint32_t j = 0; j < Tiles::keys / 16; ++j) {
      const FragmentA two =
          load_matrices<false>(thread, chunks, (key ^ 2 * step) + 16 * j * Tiles::parts);
      const FragmentB low{{two.pairs[0], two.pairs[1]}}, high{{two.pairs[2], two.pairs[3]}};
      TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
        multiply_fragments<is_half>(thread, rows[m], low, scores[m][2 * j]);
        multiply_fragments<is_half>(thread, rows[m], high, scores[m][2 * j + 1]);
      }
    }
  };
  const auto add_first_half = [&] {
    TENON_UNROLL for (std::uint32_t step = 0; step < Tiles::half_steps; ++step) {
      FragmentA rows[Tiles::row_tiles];
      TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) rows[m] = queries[m][step];
      add_step(step, rows);
    }
  };
  // Each case is one run of instructions, in which loads go ahead of what they are needed for.
  if (args.depth <= size / 2) return add_first_half();
  add_first_half();
  TENON_UNROLL for (std::uint32_t step = 0; step < Tiles::half_steps; ++step) {
    FragmentA rows[Tiles::row_tiles];
    TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
      rows[m] =
          load_matrices<false>(thread, chunks, (query ^ 2 * step) + 16 * m * Tiles::half_parts);
    }
    add_step(Tiles::half_steps + step, rows);
  }
}

/// softcap * tanh(score / softcap), within 2^-18 of it.
TENON_DEVICE float capped_score(float score, float softcap) {
  const float x = score * reciprocal_of(softcap), square = x * x;
  const float series = score * (1 + square * (square * (2.0f / 15) - 1.0f / 3));
  const float rest = softcap - 2 * softcap * reciprocal_of(exp2_of(x * (2 * log2_of_e)) + 1);
  return fabsf(x) < 0.0625f ? series : rest;
}

/// What lane and row see of a tile: of columns 8 j + i those that lie in [begin, end).
struct SeenColumns {
  std::int32_t begin, end;
};
template <std::uint32_t size>
TENON_DEVICE SeenColumns seen_columns(const Thread& thread, const AttentionArgs& args,
                                      const TensorBlock& block, std::uint32_t tile,
                                      std::uint32_t s) {
  constexpr std::int64_t keys = TensorTiles<size>::keys;
  if (s >= args.queries) return {0, 0};
  const KeyRange seen = visible_keys(args, block.position, s);
  const std::int64_t first = tile * keys;
  const std::int64_t begin = seen.begin > first ? seen.begin - first : 0;
  const std::int64_t end = seen.end < first + keys ? seen.end - first : keys;
  const auto of_lane = static_cast<std::int32_t>(2 * (lane_of(thread) % 4));
  return {static_cast<std::int32_t>(begin < keys ? begin : keys) - of_lane,
          static_cast<std::int32_t>(end > 0 ? end : 0) - of_lane};
}

/// Makes scores of products where there is a mask or a soft cap, and hides what a query does not see.
template <std::uint32_t size>
TENON_DEVICE void finish_scores(
    const Thread& thread, const AttentionArgs& args, const TensorBlock& block, std::uint32_t tile,
    bool is_plain, const RowState (&rows)[TensorTiles<size>::row_tiles][2],
    FragmentC (&scores)[TensorTiles<size>::row_tiles][TensorTiles<size>::keys / 8]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread);
  TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
    const std::uint32_t s = block.first + warp_of(thread) * Tiles::warp_rows + 8 * row + lane / 4;
    const SeenColumns seen = seen_columns<size>(thread, args, block, tile, s);
    if (!is_plain) {
      const float factor = args.scale * rows[row / 2][row % 2].factor;
      TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::keys / 4; ++i) {
        float& score = scores[row / 2][i / 2].sums[row % 2 * 2 + i % 2];
        score *= factor;
        if (args.softcap > 0) score = capped_score(score, args.softcap);
      }
    }
    if (args.mask != 0) {
      const std::int64_t t = std::int64_t{tile} * Tiles::keys + 2 * (lane % 4);
      const std::int64_t at = block.b * args.mask_steps[0] + block.h * args.mask_steps[1] +
                              s * args.mask_steps[2] + t * args.mask_steps[3];
      TENON_UNROLL for (std::int32_t i = 0; i < static_cast<std::int32_t>(Tiles::keys) / 4; ++i) {
        const std::int32_t column = i / 2 * 8 + i % 2;
        if (column < seen.begin || column >= seen.end) continue;
        scores[row / 2][i / 2].sums[row % 2 * 2 + i % 2] += *global<const float>(
            args.mask + static_cast<Address>(at + column * args.mask_steps[3]));
      }
    }
    TENON_UNROLL for (std::int32_t i = 0; i < static_cast<std::int32_t>(Tiles::keys) / 4; ++i) {
      const std::int32_t column = i / 2 * 8 + i % 2;
      float& score = scores[row / 2][i / 2].sums[row % 2 * 2 + i % 2];
      score = column >= seen.begin && column < seen.end ? score : -infinity();
    }
  }
}

/// Highest of, and sum over, the four lanes that have a row.
TENON_DEVICE float row_max(const Thread& thread, float value) {
  value = fmaxf(value, thread.shuffle_xor(value, 1));
  return fmaxf(value, thread.shuffle_xor(value, 2));
}
TENON_DEVICE float row_sum(const Thread& thread, float value) {
  value += thread.shuffle_xor(value, 1);
  return value + thread.shuffle_xor(value, 2);
}

/// Makes weights of scores. Where a peak has moved, what was summed up before is scaled down.
template <bool is_half, std::uint32_t size>
TENON_DEVICE void weigh_scores(
    const Thread& thread, bool is_plain, RowState (&rows)[TensorTiles<size>::row_tiles][2],
    FragmentC (&scores)[TensorTiles<size>::row_tiles][TensorTiles<size>::keys / 8],
    FragmentC (&sums)[TensorTiles<size>::row_tiles][size / 8]) {
  using Tiles = TensorTiles<size>;
  float kept[2 * Tiles::row_tiles];
  bool has_moved = false;
  TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
    RowState& state = rows[row / 2][row % 2];
    float highest = state.peak;
    TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::keys / 4; ++i) {
      highest = fmaxf(highest, scores[row / 2][i / 2].sums[row % 2 * 2 + i % 2]);
    }
    highest = row_max(thread, highest);
    const float peak = highest == -infinity() ? 0.0f : highest;
    const float factor = is_plain ? state.factor : log2_of_e;
    // Differences first: they are exactly 0 where nothing moved, and never above it.
    kept[row] = exp2_of((state.peak - peak) * factor);
    has_moved = has_moved || highest != state.peak;
    state.peak = highest;
    float total = 0;
    TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::keys / 4; ++i) {
      float& score = scores[row / 2][i / 2].sums[row % 2 * 2 + i % 2];
      score = exp2_of(fmaf(score - peak, factor, weight_exponent<is_half>()));
      total += score;
    }
    state.total = fmaf(state.total, kept[row], total);
  }
  if (thread.ballot(has_moved) == 0) return;
  TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
    TENON_UNROLL for (std::uint32_t j = 0; j < size / 8; ++j) {
      sums[row / 2][j].sums[row % 2 * 2] *= kept[row];
      sums[row / 2][j].sums[row % 2 * 2 + 1] *= kept[row];
    }
  }
}

/// Adds a tile's values, from chunk `stage` on, times their weights.
template <bool is_half, std::uint32_t size, class Chunks>
TENON_DEVICE void multiply_values(
    const Thread& thread, const AttentionArgs& args, const Chunks& chunks, std::uint32_t stage,
    const FragmentC (&weights)[TensorTiles<size>::row_tiles][TensorTiles<size>::keys / 8],
    FragmentC (&sums)[TensorTiles<size>::row_tiles][size / 8]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread);
  const std::uint32_t value = stage + chunk_of(lane % 16, Tiles::parts, lane / 16);
  FragmentA rows[Tiles::keys / 16][Tiles::row_tiles];
  TENON_UNROLL for (std::uint32_t k = 0; k < Tiles::keys / 16; ++k) {
    TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
      TENON_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
        const float* const two = weights[m][2 * k + i / 2].sums + i % 2 * 2;
        rows[k][m].pairs[i] = narrow_two<is_half>(two[0], two[1]);
      }
    }
  }
  const auto add_column = [&](std::uint32_t k, std::uint32_t j) {
    const FragmentA two =
        load_matrices<true>(thread, chunks, (value ^ 2 * j) + 16 * k * Tiles::parts);
    const FragmentB low{{two.pairs[0], two.pairs[1]}}, high{{two.pairs[2], two.pairs[3]}};
    TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
      multiply_fragments<is_half>(thread, rows[k][m], low, sums[m][2 * j]);
      multiply_fragments<is_half>(thread, rows[k][m], high, sums[m][2 * j + 1]);
    }
  };
  if (args.value_depth <= size / 2) {
    TENON_UNROLL for (std::uint32_t k = 0; k < Tiles::keys / 16; ++k) {
      TENON_UNROLL for (std::uint32_t j = 0; j < size / 32; ++j) add_column(k, j);
    }
  } else {
    TENON_UNROLL for (std::uint32_t k = 0; k < Tiles::keys / 16; ++k) {
      TENON_UNROLL for (std::uint32_t j = 0; j < size / 16; ++j) add_column(k, j);
    }
  }
}

/// Puts zeros in place of a tile's infinities and NaNs.
template <bool is_half, std::uint32_t size, class Chunks>
TENON_DEVICE void clear_odd_values(const Thread& thread, Chunks& chunks, std::uint32_t stage) {
  constexpr std::uint32_t exponent = is_half ? 0x7C00u : 0x7F80u;
  for (std::uint32_t i = thread.index(); i < TensorTiles<size>::tile_chunks; i += thread.count()) {
    TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
      std::uint32_t& pair = chunks[stage + i].at[j];
      if ((pair & exponent) == exponent) pair &= 0xFFFF0000u;
      if ((pair >> 16 & exponent) == exponent) pair &= 0xFFFFu;
    }
  }
}

/// Adds the infinities and NaNs among a tile's values, but where their weight is 0: that hides
/// whatever a value may be.
template <bool is_half, std::uint32_t size>
TENON_DEVICE void add_odd_values(
    const Thread& thread, const AttentionArgs& args, const TensorBlock& block,
    const TensorRange& seen, std::uint32_t tile,
    const FragmentC (&weights)[TensorTiles<size>::row_tiles][TensorTiles<size>::keys / 8],
    FragmentC (&sums)[TensorTiles<size>::row_tiles][size / 8]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread);
  for (std::uint32_t key = 0; key < Tiles::keys; ++key) {
    float weight[2 * Tiles::row_tiles];
    TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
      float mine = 0;
      TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::keys / 4; ++i) {
        if (key / 8 == i / 2 && key % 2 == i % 2) {
          mine = weights[row / 2][i / 2].sums[row % 2 * 2 + i % 2];
        }
      }
      weight[row] = bits_to_float(thread.shuffle(float_to_bits(mine), lane / 4 * 4 + key % 8 / 2));
    }
    const std::uint32_t t = tile * Tiles::keys + key;
    if (t < seen.first_key || t >= seen.behind_key) continue;
    const Address value = key_row(args, args.v, args.v_steps, block.b, t, block.key_head);
    if (value == 0) continue;
    TENON_UNROLL for (std::uint32_t i = 0; i < size / 4; ++i) {
      const std::uint32_t d = i / 2 * 8 + 2 * (lane % 4) + i % 2;
      if (d >= args.value_depth) continue;
      const float element = load_real(is_half ? DType::f16 : DType::bf16, value + 2 * d);
      if (fabsf(element) < infinity()) continue;
      TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
        if (weight[row] == 0) continue;
        sums[row / 2][i / 2].sums[row % 2 * 2 + i % 2] += weight[row] * element;
      }
    }
  }
}

/// Whether a condition holds for any thread of the block. Overwrites chunks from `at` on.
template <class Chunks>
TENON_DEVICE bool holds_anywhere(const Thread& thread, Chunks& chunks, std::uint32_t at,
                                 bool condition) {
  const std::uint32_t lanes = thread.ballot(condition);
  thread.sync();
  if (lane_of(thread) == 0) chunks[at + warp_of(thread)].at[0] = lanes;
  thread.sync();
  std::uint32_t any = 0;
  for (std::uint32_t i = 0; i < thread.count() / warp_size; ++i) any |= chunks[at + i].at[0];
  thread.sync();
  return any != 0;
}

struct alignas(8) FloatPair {
  float first, second;
};
/// A lane's elements of a row of the result, times `scale`: those at 8 j + 2 t and behind. Rows whose
/// elements are stored in pairs are aligned to these, and of eight elements each.
template <std::uint32_t size>
TENON_DEVICE void store_row(const AttentionArgs& args, Address y, std::uint32_t t, bool is_paired,
                            float scale, std::uint32_t row,
                            const FragmentC (&sums)[TensorTiles<size>::row_tiles][size / 8]) {
  const std::uint32_t bytes = args.dtype == DType::f32 ? 4 : 2;
  const std::uint32_t behind = args.value_depth > 2 * t ? args.value_depth - 2 * t : 0;
  y += 2 * t * bytes;
  const auto each_pair = [&](const auto& store) {
    TENON_UNROLL for (std::uint32_t j = 0; j < size / 8; ++j) {
      const float* const two = sums[row / 2][j].sums + row % 2 * 2;
      if (8 * j < behind) store(8 * j, two[0] * scale, two[1] * scale);
    }
  };
  if (!is_paired) {
    each_pair([&](std::uint32_t d, float first, float second) {
      store_real(args.dtype, y + d * bytes, first);
      if (d + 1 < behind) store_real(args.dtype, y + (d + 1) * bytes, second);
    });
  } else if (args.dtype == DType::f32) {
    each_pair([&](std::uint32_t d, float first, float second) {
      *global<FloatPair>(y + 4 * d) = {first, second};
    });
  } else if (args.dtype == DType::f16) {
    each_pair([&](std::uint32_t d, float first, float second) {
      *global<std::uint32_t>(y + 2 * d) = narrow_two<true>(first, second);
    });
  } else {
    each_pair([&](std::uint32_t d, float first, float second) {
      *global<std::uint32_t>(y + 2 * d) = narrow_two<false>(first, second);
    });
  }
}

template <bool is_half, std::uint32_t size>
TENON_DEVICE void store_rows(const Thread& thread, const AttentionArgs& args,
                             const TensorBlock& block, bool is_plain,
                             const RowState (&rows)[TensorTiles<size>::row_tiles][2],
                             const FragmentC (&sums)[TensorTiles<size>::row_tiles][size / 8]) {
  using Tiles = TensorTiles<size>;
  const std::uint32_t lane = lane_of(thread);
  const float sink = sink_of(args, block.h);
  const Address all =
      args.y | static_cast<Address>(args.y_steps[0] | args.y_steps[1] | args.y_steps[2]);
  const bool is_paired = args.value_depth % 8 == 0 && all % 8 == 0;
  TENON_UNROLL for (std::uint32_t row = 0; row < 2 * Tiles::row_tiles; ++row) {
    const RowState& state = rows[row / 2][row % 2];
    const float total = row_sum(thread, state.total);
    const float peak = state.peak * (is_plain ? state.factor * (1 / log2_of_e) : 1.0f);
    const std::uint32_t s = block.first + warp_of(thread) * Tiles::warp_rows + 8 * row + lane / 4;
    if (s >= args.queries) continue;
    float highest = fmaxf(sink, peak);
    if (highest == -infinity()) highest = 0;
    const float kept = exp2_of((peak - highest) * log2_of_e);
    const float of_sink = exp2_of(fmaf(sink - highest, log2_of_e, weight_exponent<is_half>()));
    const float denominator = of_sink + kept * total;
    const float scale = denominator == 0 ? 0.0f : kept / denominator;
    const Address y = moved(args.y, args.y_steps, block.b, s, block.h);
    store_row<size>(args, y, lane % 4, is_paired, scale, row, sums);
  }
}

template <bool is_half, std::uint32_t size>
TENON_DEVICE void attend_tensor(const Thread& thread, const AttentionArgs& args) {
  using Tiles = TensorTiles<size>;
  TENON_SHARED(thread, Words4, chunks, Tiles::chunks);
  const TensorBlock block = tensor_block<size>(args, thread.block());
  if (args.position != 0 && block.position < 0) return;
  const TensorRange tiles = tensor_range<Tiles::keys>(args, block, block.first, Tiles::queries);
  const TensorRange own = tensor_range<Tiles::keys>(
      args, block, block.first + warp_of(thread) * Tiles::warp_rows, Tiles::warp_rows);
  const bool is_plain = args.mask == 0 && args.softcap <= 0 && args.scale > 0;

  RowState rows[Tiles::row_tiles][2];
  FragmentA queries[Tiles::row_tiles][Tiles::half_steps];
  FragmentC sums[Tiles::row_tiles][size / 8];

  const bool is_aligned = are_rows_aligned(args.k, args.k_steps, args.depth) &&
                          are_rows_aligned(args.v, args.v_steps, args.value_depth);
  RowsToCopy next_rows = rows_to_copy<size>(thread, args, block, tiles.begin);
  const auto copy = [&](std::uint32_t tile, std::uint32_t stage) {
    if (tile >= tiles.end) return;
    copy_tile<size>(thread, args, block, tiles, is_aligned, tile, stage, next_rows, chunks);
  };
  copy(tiles.begin, Tiles::first_stage);
  load_queries<is_half, size>(thread, args, block, is_plain, chunks, rows, queries);

  // An infinity or a NaN among values leaves one in some sum, even where its weight is 0. It is all
  // computed again then, with zeros in their place.
  for (bool has_odd = false;;) {
    TENON_UNROLL for (std::uint32_t m = 0; m < Tiles::row_tiles; ++m) {
      TENON_UNROLL for (RowState& row : rows[m]) row = {row.factor, -infinity(), 0};
      TENON_UNROLL for (FragmentC& sum : sums[m]) sum = {};
    }
    // Tiles begin at multiples of their size, so that a query's bits do not depend on its neighbours.
    for (std::uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const std::uint32_t other = (tile + 1 - tiles.begin) % 2 * 2 * Tiles::tile_chunks;
      const std::uint32_t stage = Tiles::first_stage + 2 * Tiles::tile_chunks - other;
      wait_copies<0>();
      thread.sync();
      copy(tile + 1, Tiles::first_stage + other);
      // Most tiles, without the branches that others take.
      if (!has_odd && is_plain && tile >= own.full_begin && tile < own.full_end) {
        FragmentC scores[Tiles::row_tiles][Tiles::keys / 8];
        multiply_keys<is_half, size>(thread, args, chunks, stage, queries, scores);
        weigh_scores<is_half, size>(thread, true, rows, scores, sums);
        multiply_values<is_half, size>(thread, args, chunks, stage + Tiles::tile_chunks, scores,
                                       sums);
        continue;
      }
      if (has_odd) {
        clear_odd_values<is_half, size>(thread, chunks, stage + Tiles::tile_chunks);
        thread.sync();
      }
      if (tile < own.begin || tile >= own.end) continue;
      FragmentC scores[Tiles::row_tiles][Tiles::keys / 8];
      multiply_keys<is_half, size>(thread, args, chunks, stage, queries, scores);
      if (!is_plain || tile < own.full_begin || tile >= own.full_end) {
        finish_scores<size>(thread, args, block, tile, is_plain, rows, scores);
      }
      weigh_scores<is_half, size>(thread, is_plain, rows, scores, sums);
      if (has_odd) {
        add_odd_values<is_half, size>(thread, args, block, tiles, tile, scores, sums);
      }
      multiply_values<is_half, size>(thread, args, chunks, stage + Tiles::tile_chunks, scores,
                                     sums);
    }
    if (has_odd) break;
    float none[4] = {};  // a NaN where any sum is one, or an infinity
    TENON_UNROLL for (std::uint32_t i = 0; i < Tiles::row_tiles * size / 2; ++i) {
      none[i % 4] += 0 * sums[i / (size / 2)][i % (size / 2) / 4].sums[i % 4];
    }
    has_odd = holds_anywhere(thread, chunks, Tiles::first_stage,
                             (none[0] + none[1]) + (none[2] + none[3]) != 0);
    if (!has_odd) break;
    next_rows = rows_to_copy<size>(thread, args, block, tiles.begin);
    copy(tiles.begin, Tiles::first_stage);
  }
  store_rows<is_half, size>(thread, args, block, is_plain, rows, sums);
}

template <bool is_half>
TENON_DEVICE void attend_short_heads(const Thread& thread, const AttentionArgs& args) {
  attend_tensor<is_half, short_head>(thread, args);
}
template <bool is_half>
TENON_DEVICE void attend_long_heads(const Thread& thread, const AttentionArgs& args) {
  attend_tensor<is_half, max_head>(thread, args);
}

}  // namespace tenon::cuda
