// Attention of many queries in tensor cores, with online softmax: a warp has 16 queries of a head, and
// a block goes through the keys that any of its queries sees. Keys and values are multiplied as they
// are, f16 or bf16. A query of another type is the sum of two of the keys' type, times a power of
// two that keeps it in range; so are then the weights that values are multiplied with.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

/// Eight elements of a row of 16 bits, in pairs; zeros behind `depth`.
struct alignas(16) EightHalves {
  std::uint32_t pairs[4];
};
TENON_DEVICE EightHalves load_halves(Address row, std::uint32_t k, std::uint32_t depth) {
  const Address at = row + 2 * k;
  if (k + 8 <= depth && at % sizeof(EightHalves) == 0) return *global<const EightHalves>(at);
  EightHalves halves{};
  for (std::uint32_t i = 0; i < 8 && k + i < depth; ++i) {
    halves.pairs[i / 2] |= std::uint32_t{global<const std::uint16_t>(at)[i]} << (i % 2 * 16);
  }
  return halves;
}

/// Two elements, with a zero in place of an infinity or a NaN.
template <bool is_half>
TENON_DEVICE std::uint32_t finite_pair(std::uint32_t pair) {
  const std::uint32_t exponent = is_half ? 0x7C00u : 0x7F80u;
  if ((pair & exponent) == exponent) pair &= 0xFFFF0000u;
  if ((pair >> 16 & exponent) == exponent) pair &= 0xFFFFu;
  return pair;
}

/// Two values as pairs of their first terms and of what these lack.
struct PairTerms {
  std::uint32_t first, second;
};
template <bool is_half>
TENON_DEVICE PairTerms terms_of(float low, float high) {
  PairTerms terms{};
  for (unsigned part = 0; part < 2; ++part) {
    const float value = part == 0 ? low : high;
    const std::uint16_t bits = narrow_to<is_half>(value);
    const float held = is_half ? widen_half(bits) : widen_bfloat16(bits);
    terms.first |= std::uint32_t{bits} << (16 * part);
    if (!(fabsf(held) < infinity())) continue;  // what it lacks is none
    terms.second |= std::uint32_t{narrow_to<is_half>(value - held)} << (16 * part);
  }
  return terms;
}

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

/// A warp's 16 queries into shared memory, from word `at` of each term on. `scales`: of its rows.
template <bool is_half, std::uint32_t size, class Words, class Scales>
TENON_DEVICE void load_queries(const Thread& thread, const AttentionArgs& args, std::uint32_t b,
                               std::uint32_t first, std::uint32_t h, bool has_terms, Words& words,
                               Scales& scales) {
  constexpr std::uint32_t line = size / 2 + 4, term = (tensor_query_elements / size) * line;
  const std::uint32_t bytes = args.dtype == DType::f32 ? 4 : 2;
  for (std::uint32_t r = 0; r < 16; ++r) {
    const std::uint32_t row = warp_of(thread) * 16 + r, s = first + row;
    const std::uint32_t depth = s < args.queries ? args.depth : 0;
    const Address q = moved(args.q, args.q_steps, b, s, h);
    const auto element = [&](std::uint32_t d) {
      return d < depth ? load_real(args.dtype, q + d * bytes) : 0.0f;
    };
    RowScale scale{1, 1};
    if (has_terms) {
      float largest = 0;
      for (std::uint32_t d = lane_of(thread); d < depth; d += warp_size) {
        const float magnitude = fabsf(element(d));
        if (!(magnitude <= largest)) largest = magnitude;
      }
      scale = scale_of_row(warp_max(thread, largest));
    }
    if (lane_of(thread) == 0) scales[row] = scale.up;
    for (std::uint32_t word = lane_of(thread); word < size / 2; word += warp_size) {
      const PairTerms pair =
          terms_of<is_half>(element(2 * word) * scale.down, element(2 * word + 1) * scale.down);
      words[row * line + word] = pair.first;
      if (has_terms) words[term + row * line + word] = pair.second;
    }
  }
}

/// Keys from `first` on, of which those in `seen` are read.
struct KeyTile {
  std::int64_t first;
  KeyRange seen;
};
/// Row `row` of a tile of keys or values; 0 where it is not read.
TENON_DEVICE Address tile_row(const AttentionArgs& args, Address base,
                              const std::int64_t (&steps)[3], std::uint32_t b, const KeyTile& tile,
                              std::uint32_t row, std::uint32_t key_head) {
  const std::int64_t t = tile.first + row;
  if (t < tile.seen.begin || t >= tile.seen.end) return 0;
  return key_row(args, base, steps, b, t, key_head);
}

/// A tile's keys, zeros where it has none: pairs of a row's elements.
template <std::uint32_t size, class Words>
TENON_DEVICE void load_keys(const Thread& thread, const AttentionArgs& args, std::uint32_t b,
                            std::uint32_t key_head, const KeyTile& tile, Words& words) {
  constexpr std::uint32_t line = size / 2 + 4, parts = size / 8;
  for (std::uint32_t i = thread.index(); i < (tensor_key_elements / size) * parts;
       i += thread.count()) {
    const std::uint32_t row = i / parts, d = i % parts * 8;
    const Address key = tile_row(args, args.k, args.k_steps, b, tile, row, key_head);
    const EightHalves halves = load_halves(key, d, key != 0 ? args.depth : 0);
    for (std::uint32_t j = 0; j < 4; ++j) words[row * line + d / 2 + j] = halves.pairs[j];
  }
}

/// The same of values: pairs of an element of two rows. Zeros take the place of infinities and NaNs;
/// returns whether there are any.
template <bool is_half, std::uint32_t size, class Words>
TENON_DEVICE bool load_values(const Thread& thread, const AttentionArgs& args, std::uint32_t b,
                              std::uint32_t key_head, const KeyTile& tile, Words& words) {
  constexpr std::uint32_t line = size + 8, parts = size / 8;
  bool is_odd = false;
  for (std::uint32_t i = thread.index(); i < (tensor_key_elements / size) / 2 * parts;
       i += thread.count()) {
    const std::uint32_t pair = i / parts, d = i % parts * 8;
    EightHalves rows[2];
    for (std::uint32_t j = 0; j < 2; ++j) {
      const Address value = tile_row(args, args.v, args.v_steps, b, tile, 2 * pair + j, key_head);
      rows[j] = load_halves(value, d, value != 0 ? args.value_depth : 0);
    }
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t low = finite_pair<is_half>(rows[0].pairs[j]);
      const std::uint32_t high = finite_pair<is_half>(rows[1].pairs[j]);
      words[pair * line + d + 2 * j] = (low & 0xFFFFu) | high << 16;
      words[pair * line + d + 2 * j + 1] = low >> 16 | (high & 0xFFFF0000u);
      is_odd = is_odd || low != rows[0].pairs[j] || high != rows[1].pairs[j];
    }
  }
  return is_odd;
}

/// What a lane has of two queries, of rows g and g + 8 of its warp (tensor_core.hpp).
struct RowState {
  KeyRange range;
  float scale, peak, total;
};

/// Highest of, and sum over, the four lanes that have a row.
TENON_DEVICE float row_max(const Thread& thread, float value) {
  value = fmaxf(value, thread.shuffle_xor(value, 1));
  return fmaxf(value, thread.shuffle_xor(value, 2));
}
TENON_DEVICE float row_sum(const Thread& thread, float value) {
  value += thread.shuffle_xor(value, 1);
  return value + thread.shuffle_xor(value, 2);
}

/// Adds the infinities and NaNs among a tile's values, but where their weight is 0: that hides
/// whatever a value may be.
template <bool is_half, std::uint32_t size>
TENON_DEVICE void add_odd_values(const Thread& thread, const AttentionArgs& args, std::uint32_t b,
                                 std::uint32_t key_head, const KeyTile& tile,
                                 const FragmentC (&weights)[tensor_key_elements / size / 8],
                                 FragmentC (&sums)[size / 8]) {
  const std::uint32_t lane = lane_of(thread);
  for (std::uint32_t key = 0; key < tensor_key_elements / size; ++key) {
    float weight[2];
    TENON_UNROLL for (std::uint32_t r = 0; r < 2; ++r) {
      float held[2] = {};
      TENON_UNROLL for (std::uint32_t j = 0; j < tensor_key_elements / size / 8; ++j) {
        if (key / 8 != j) continue;
        held[0] = weights[j].sums[2 * r];
        held[1] = weights[j].sums[2 * r + 1];
      }
      const float mine = key % 2 == 0 ? held[0] : held[1];
      weight[r] = bits_to_float(thread.shuffle(float_to_bits(mine), lane / 4 * 4 + key % 8 / 2));
    }
    const Address row = tile_row(args, args.v, args.v_steps, b, tile, key, key_head);
    if (row == 0) continue;
    TENON_UNROLL for (std::uint32_t i = 0; i < size / 4; ++i) {
      const std::uint32_t d = i / 2 * 8 + 2 * (lane % 4) + i % 2;
      if (d >= args.value_depth) continue;
      const float value = load_real(is_half ? DType::f16 : DType::bf16, row + 2 * d);
      if (fabsf(value) < infinity()) continue;
      TENON_UNROLL for (std::uint32_t r = 0; r < 2; ++r) {
        if (weight[r] != 0) sums[i / 2].sums[2 * r + i % 2] += weight[r] * value;
      }
    }
  }
}

template <bool is_half, std::uint32_t size>
TENON_DEVICE void attend_tensor(const Thread& thread, const AttentionArgs& args) {
  constexpr std::uint32_t queries = tensor_query_elements / size;
  constexpr std::uint32_t keys = tensor_key_elements / size;
  constexpr std::uint32_t line = size / 2 + 4, value_line = size + 8;
  TENON_SHARED(thread, std::uint32_t, query_words, 2 * queries * line);
  TENON_SHARED(thread, std::uint32_t, words, keys* line);  // of keys, then of values
  TENON_SHARED(thread, float, scales, queries);
  TENON_SHARED(thread, std::uint32_t, odd, queries / 16);  // of each warp
  const std::uint32_t tiles = (args.queries + queries - 1) / queries;
  // Those that see most keys first.
  const std::uint32_t first = (tiles - 1 - thread.block() % tiles) * queries;
  const std::uint32_t row = thread.block() / tiles, h = row % args.heads, b = row / args.heads;
  const std::uint32_t key_head = h / (args.heads / args.key_heads);
  const std::int64_t p = position_of(args, b);
  if (args.position != 0 && p < 0) return;
  const bool has_terms = args.has_terms;
  load_queries<is_half, size>(thread, args, b, first, h, has_terms, query_words, scales);
  thread.sync_warp();

  const std::uint32_t warp_row = warp_of(thread) * 16;
  const std::uint32_t lane_row = warp_row + lane_of(thread) / 4, t4 = lane_of(thread) % 4;
  RowState rows[2];
  for (std::uint32_t r = 0; r < 2; ++r) {
    const std::uint32_t s = first + lane_row + 8 * r;
    rows[r].range = s < args.queries ? visible_keys(args, p, s) : KeyRange{0, 0};
    rows[r].scale = scales[lane_row + 8 * r];
    rows[r].peak = -infinity();
    rows[r].total = 0;
  }
  const std::uint32_t behind = first + queries < args.queries ? first + queries : args.queries;
  const KeyRange seen{visible_keys(args, p, first).begin, visible_keys(args, p, behind - 1).end};

  FragmentC sums[size / 8];
  // Tiles begin at multiples of their size, so that a query's bits do not depend on its neighbours.
  for (std::int64_t begin = seen.begin / keys * keys; begin < seen.end; begin += keys) {
    const KeyTile tile{begin, seen};
    load_keys<size>(thread, args, b, key_head, tile, words);
    thread.sync();

    FragmentC scores[keys / 8];
    for (std::uint32_t word = 0; 2 * word < args.depth; word += 8) {
      const std::uint32_t at = warp_row * line + word;
      const FragmentA a = load_a(thread, query_words, at, line);
      FragmentA rest{};
      if (has_terms) rest = load_a(thread, query_words, queries * line + at, line);
      TENON_UNROLL for (std::uint32_t j = 0; j < keys / 8; ++j) {
        const FragmentB key = load_b(thread, words, 8 * j * line + word, line);
        if (has_terms) multiply_fragments<is_half>(thread, rest, key, scores[j]);
        multiply_fragments<is_half>(thread, a, key, scores[j]);
      }
    }

    TENON_UNROLL for (std::uint32_t r = 0; r < 2; ++r) {
      RowState& state = rows[r];
      float highest = state.peak;
      TENON_UNROLL for (std::uint32_t i = 0; i < keys / 4; ++i) {
        float& score = scores[i / 2].sums[2 * r + i % 2];
        const std::int64_t t = begin + i / 2 * 8 + 2 * t4 + i % 2;
        const bool is_visible = t >= state.range.begin && t < state.range.end;
        score = is_visible
                    ? score_of_dot(args, score * state.scale, b, h, first + lane_row + 8 * r, t)
                    : -infinity();
        highest = fmaxf(highest, score);
      }
      highest = row_max(thread, highest);
      float total = 0;
      TENON_UNROLL for (std::uint32_t i = 0; i < keys / 4; ++i) {
        float& score = scores[i / 2].sums[2 * r + i % 2];
        score = weight_of(score, highest);
        total += score;
      }
      const float kept = weight_of(state.peak, highest);
      state.total = state.total * kept + row_sum(thread, total);
      state.peak = highest;
      TENON_UNROLL for (FragmentC& sum : sums) {
        sum.sums[2 * r] *= kept;
        sum.sums[2 * r + 1] *= kept;
      }
    }

    thread.sync();
    const bool is_odd = load_values<is_half, size>(thread, args, b, key_head, tile, words);
    const std::uint32_t of_lanes = thread.ballot(is_odd);
    if (lane_of(thread) == 0) odd[warp_of(thread)] = of_lanes;
    thread.sync();
    std::uint32_t of_warps = 0;
    for (std::uint32_t warp = 0; warp < queries / 16; ++warp) of_warps |= odd[warp];
    if (of_warps != 0) {
      add_odd_values<is_half, size>(thread, args, b, key_head, tile, scores, sums);
    }
    TENON_UNROLL for (std::uint32_t k = 0; k < keys / 16; ++k) {
      FragmentA a, rest;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const float* const weights = scores[2 * k + i / 2].sums + i % 2 * 2;
        const PairTerms pair = terms_of<is_half>(weights[0], weights[1]);
        a.pairs[i] = pair.first;
        rest.pairs[i] = pair.second;
      }
      TENON_UNROLL for (std::uint32_t j = 0; j < size / 8; ++j) {
        if (8 * j >= args.value_depth) continue;
        const std::uint32_t at = (8 * k + t4) * value_line + 8 * j + lane_of(thread) / 4;
        const FragmentB value{{words[at], words[at + 4 * value_line]}};
        if (has_terms) multiply_fragments<is_half>(thread, rest, value, sums[j]);
        multiply_fragments<is_half>(thread, a, value, sums[j]);
      }
    }
    thread.sync();
  }

  const float sink = sink_of(args, h);
  TENON_UNROLL for (std::uint32_t r = 0; r < 2; ++r) {
    const std::uint32_t s = first + lane_row + 8 * r;
    if (s >= args.queries) continue;
    const float highest = fmaxf(sink, rows[r].peak), kept = weight_of(rows[r].peak, highest);
    const float denominator = weight_of(sink, highest) + kept * rows[r].total;
    const Address y = moved(args.y, args.y_steps, b, s, h);
    TENON_UNROLL for (std::uint32_t i = 0; i < size / 4; ++i) {
      const std::uint32_t d = i / 2 * 8 + 2 * t4 + i % 2;
      if (d >= args.value_depth) continue;
      store_attended(args, y, d, kept * sums[i / 2].sums[2 * r + i % 2], denominator);
    }
  }
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
