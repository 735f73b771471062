// Attention with online softmax: a block per query and head, whose warps take every fourth group of
// 32 keys. A lane computes the score of a key, then sums a part of the value's elements. The warps'
// sums are joined in order at the end. Few queries with many keys have them split over blocks.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/weights.hpp"

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t attention_warps = attention_threads / warp_size;

struct KeyRange {
  std::int64_t begin, end;
};
/// Attention::visible_keys.
TENON_DEVICE KeyRange visible_keys(const AttentionArgs& args, std::int64_t p, std::int64_t s) {
  const std::int64_t queries = args.queries, keys = args.keys;
  std::int64_t begin = 0, end = p + (args.causal ? s + 1 : queries);
  if (end > keys) end = keys;
  if (args.window > 0) {
    if (p + s - args.window + 1 > begin) begin = p + s - args.window + 1;
    if (!args.causal && p + s + args.window < end) end = p + s + args.window;
  }
  return {begin, end > begin ? end : begin};
}

TENON_DEVICE Address moved(Address base, const std::int64_t (&steps)[3], std::uint32_t b,
                           std::int64_t t, std::uint32_t h) {
  return base + static_cast<Address>(b * steps[0] + t * steps[1] + h * steps[2]);
}

/// Row t of keys or values of row b; 0 where the table has no page for it.
TENON_DEVICE Address key_row(const AttentionArgs& args, Address base,
                             const std::int64_t (&steps)[3], std::uint32_t b, std::int64_t t,
                             std::uint32_t h) {
  if (args.table == 0) return moved(base, steps, b, t, h);
  const auto key = static_cast<std::uint32_t>(t);
  const std::int64_t at = b * args.table_steps[0] + key / args.page_size * args.table_steps[1];
  const std::int32_t page = *global<const std::int32_t>(args.table + static_cast<Address>(at));
  if (page < 0 || static_cast<std::uint32_t>(page) >= args.pages) {
    report(args.reporter, page, args.pages);
    return 0;
  }
  return moved(base, steps, static_cast<std::uint32_t>(page), key % args.page_size, h);
}

TENON_DEVICE float warp_max(const Thread& thread, float value) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, thread.shuffle_xor(value, mask));
  }
  return value;
}
TENON_DEVICE float warp_sum(const Thread& thread, float value) {
  for (unsigned mask = warp_size / 2; mask > 0; mask /= 2) {
    value += thread.shuffle_xor(value, mask);
  }
  return value;
}

/// e^(x - peak), 0 where x is -inf.
TENON_DEVICE float weight_of(float x, float peak) {
  return x == -infinity() ? 0.0f : expf(x - peak);
}

/// The score of query s and key t, whose product is `dot`.
TENON_DEVICE float score_of_dot(const AttentionArgs& args, float dot, std::uint32_t b,
                                std::uint32_t h, std::uint32_t s, std::int64_t t) {
  float score = args.scale * dot;
  if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
  if (args.mask != 0) {
    const std::int64_t at = b * args.mask_steps[0] + h * args.mask_steps[1] +
                            s * args.mask_steps[2] + t * args.mask_steps[3];
    score += *global<const float>(args.mask + static_cast<Address>(at));
  }
  return score;
}

template <class Type, class Query>
TENON_DEVICE float score_of(const AttentionArgs& args, const Query& query, Address key,
                            std::uint32_t b, std::uint32_t h, std::uint32_t s, std::int64_t t) {
  float dot = 0;
  for (std::uint32_t d = 0; d < args.depth; d += 8) {
    float eight[8];
    Row<Type>::load_eight(key, d, args.depth, eight);
    for (std::uint32_t i = 0; i < 8; ++i) dot += query[d + i] * eight[i];
  }
  return score_of_dot(args, dot, b, h, s, t);
}

/// Where the queries of row b stand; -1 where that is out of range.
TENON_DEVICE std::int64_t position_of(const AttentionArgs& args, std::uint32_t b) {
  const std::int64_t last = std::int64_t{args.keys} - args.queries;
  if (args.position == 0) return last;
  const std::int64_t p =
      load_integer(DType::i32, args.position + static_cast<Address>(b * args.position_step));
  if (p >= 0 && p <= last) return p;
  report(args.reporter, p, last + 1);
  return -1;
}

/// The part of a query's keys that one of the blocks takes which share them.
TENON_DEVICE KeyRange range_of_split(const AttentionArgs& args, KeyRange range,
                                     std::uint32_t split) {
  if (args.splits == 1) return range;
  const std::int64_t first = std::int64_t{split} * args.split_keys;
  const std::int64_t behind = first + args.split_keys;
  if (range.begin < first) range.begin = first;
  if (range.end > behind) range.end = behind;
  return range;
}
TENON_DEVICE float* partial_of(const AttentionArgs& args, std::uint32_t row, std::uint32_t split) {
  return global<float>(args.partial) +
         (std::uint64_t{row} * args.splits + split) * (args.value_depth + 2);
}
TENON_DEVICE float sink_of(const AttentionArgs& args, std::uint32_t h) {
  if (args.sinks == 0) return -infinity();
  return *global<const float>(args.sinks + static_cast<Address>(h * args.sinks_step));
}
TENON_DEVICE void store_attended(const AttentionArgs& args, Address y, std::uint32_t d, float value,
                                 float denominator) {
  const std::uint32_t bytes = args.dtype == DType::f32 ? 4 : 2;
  store_real(args.dtype, y + d * bytes, denominator == 0 ? 0.0f : value / denominator);
}

template <class Type>
TENON_DEVICE void attend(const Thread& thread, const AttentionArgs& args) {
  TENON_SHARED(thread, float, query, max_head);
  TENON_SHARED(thread, float, weights, attention_threads);
  TENON_SHARED(thread, Address, values, attention_threads);  // the rows that weights belong to
  TENON_SHARED(thread, float, peaks, attention_warps);
  TENON_SHARED(thread, float, totals, attention_warps);
  TENON_SHARED(thread, float, sums, attention_warps* max_head);
  const std::uint32_t split = thread.block() % args.splits, row = thread.block() / args.splits;
  const std::uint32_t h = row % args.heads;
  const std::uint32_t s = row / args.heads % args.queries;
  const std::uint32_t b = row / args.heads / args.queries;
  const std::uint32_t key_head = h / (args.heads / args.key_heads);
  const std::uint32_t warp = warp_of(thread), lane = lane_of(thread);
  const std::int64_t p = position_of(args, b);
  if (args.position != 0 && p < 0) return;
  const KeyRange range = range_of_split(args, visible_keys(args, p, s), split);

  const Address q = moved(args.q, args.q_steps, b, s, h);
  for (std::uint32_t d = thread.index(); d < max_head; d += thread.count()) {
    const std::uint32_t bytes = args.dtype == DType::f32 ? 4 : 2;
    query[d] = d < args.depth ? load_real(args.dtype, q + d * bytes) : 0.0f;
  }
  thread.sync();

  float peak = -infinity(), total = 0, sum[max_head / warp_size] = {};
  const std::int64_t first = range.begin + warp * warp_size;
  for (std::int64_t begin = first; begin < range.end; begin += attention_threads) {
    const std::int64_t t = begin + lane;
    float score = -infinity();
    if (t < range.end) {
      const Address value = key_row(args, args.v, args.v_steps, b, t, key_head);
      values[thread.index()] = value;
      if (value != 0) {
        const Address key = key_row(args, args.k, args.k_steps, b, t, key_head);
        score = score_of<Type>(args, query, key, b, h, s, t);
      }
    }
    const float higher = fmaxf(peak, warp_max(thread, score));
    const float kept = weight_of(peak, higher), weight = weight_of(score, higher);
    total = total * kept + warp_sum(thread, weight);
    for (float& element : sum) element *= kept;
    peak = higher;
    weights[thread.index()] = weight;
    thread.sync_warp();
    for (std::uint32_t i = 0; i < warp_size && begin + i < range.end; ++i) {
      const float shared = weights[warp * warp_size + i];
      if (shared == 0) continue;  // what a mask hides may be anything
      const Address value = values[warp * warp_size + i];
      for (std::uint32_t j = 0; j < max_head / warp_size; ++j) {
        const std::uint32_t d = lane + j * warp_size;
        if (d < args.value_depth) sum[j] += shared * Row<Type>::element(value, d);
      }
    }
    thread.sync_warp();
  }

  for (std::uint32_t j = 0; j < max_head / warp_size; ++j) {
    sums[warp * max_head + lane + j * warp_size] = sum[j];
  }
  if (lane == 0) {
    peaks[warp] = peak;
    totals[warp] = total;
  }
  thread.sync();
  const bool is_whole = args.splits == 1;
  const float sink = is_whole ? sink_of(args, h) : -infinity();
  float highest = sink;
  for (std::uint32_t w = 0; w < attention_warps; ++w) highest = fmaxf(highest, peaks[w]);
  float denominator = weight_of(sink, highest);
  for (std::uint32_t w = 0; w < attention_warps; ++w) {
    denominator += weight_of(peaks[w], highest) * totals[w];
  }
  const Address y = moved(args.y, args.y_steps, b, s, h);
  float* const partial = is_whole ? nullptr : partial_of(args, row, split);
  for (std::uint32_t d = thread.index(); d < args.value_depth; d += thread.count()) {
    float value = 0;
    for (std::uint32_t w = 0; w < attention_warps; ++w) {
      value += weight_of(peaks[w], highest) * sums[w * max_head + d];
    }
    if (is_whole) {
      store_attended(args, y, d, value, denominator);
    } else {
      partial[2 + d] = value;
    }
  }
  if (!is_whole && thread.index() == 0) {
    partial[0] = highest;
    partial[1] = denominator;
  }
}

/// A thread per element of the result.
TENON_DEVICE void join_splits(const Thread& thread, const AttentionArgs& args) {
  const std::uint32_t count = args.batch * args.queries * args.heads * args.value_depth;
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    const std::uint32_t d = i % args.value_depth, row = i / args.value_depth;
    const std::uint32_t h = row % args.heads;
    const float sink = sink_of(args, h);
    float highest = sink, value = 0;
    for (std::uint32_t k = 0; k < args.splits; ++k) {
      highest = fmaxf(highest, partial_of(args, row, k)[0]);
    }
    float denominator = weight_of(sink, highest);
    for (std::uint32_t k = 0; k < args.splits; ++k) {
      const float* const partial = partial_of(args, row, k);
      const float weight = weight_of(partial[0], highest);
      denominator += weight * partial[1];
      value += weight * partial[2 + d];
    }
    const std::uint32_t s = row / args.heads % args.queries, b = row / args.heads / args.queries;
    store_attended(args, moved(args.y, args.y_steps, b, s, h), d, value, denominator);
  }
}

}  // namespace tenon::cuda
