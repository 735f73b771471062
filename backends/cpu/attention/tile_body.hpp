#pragma once

// Attention of many queries of one head. Vector lanes are queries: with scores and outputs held as
// [key][query] and [d][query] the softmax needs no sums across lanes, and neither keys nor values
// are transposed.
#include "../matmul/dense_tile.hpp"
#include "attention_kernels.hpp"
#include "key_rows.hpp"
#include "softmax_body.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

constexpr std::int64_t tile_queries = dense_width;
constexpr int tile_vectors = dense_width / Simd::lanes;
constexpr std::int64_t tile_keys = 64;
constexpr std::int64_t chunk = 128;  // of a head dimension, widened to f32 at a time

struct TileScratch {
  alignas(64) float q[max_dim * tile_queries];         // [d][query], scaled
  alignas(64) float out[max_dim * tile_queries];       // [d][query]
  alignas(64) float scores[tile_keys * tile_queries];  // [key][query]
  alignas(64) float widened[tile_keys * chunk];
  alignas(64) float max[tile_queries];
  alignas(64) float sum[tile_queries];
};

struct TileRows {
  const float* at;
  std::int64_t row;
};

/// Columns [d, d + width) of these rows as f32: in place, or widened.
template <class Rows>
TENON_INLINE TileRows widen(const Stream<Rows>& rows, std::int64_t d, std::int64_t width,
                            float* buffer) {
  if constexpr (std::is_same_v<Rows, FloatRows>) {
    if (rows.places == nullptr) return {rows.first + d, rows.step};
  }
  for (std::int64_t j = 0; j < rows.count; ++j) {
    const typename Rows::Element* in = rows.row(j);
    float* out = buffer + j * chunk;
    std::int64_t i = 0;
    for (; i + Simd::lanes <= width; i += Simd::lanes)
      Simd::store_float(out + i, Rows::load(in, d + i));
    for (; i < width; ++i) out[i] = Rows::one(in, d + i);
  }
  return {buffer, chunk};
}

/// Transposes as many rows as a vector has lanes, in whole squares: load(i, c) gives a vector of
/// row i from column c on, and store(c, v) gets column c, whose lane i is from row i. Returns how
/// many of `columns` columns were stored.
template <class Load, class Store>
TENON_INLINE std::int64_t turn(std::int64_t columns, const Load& load, const Store& store) {
  std::int64_t c = 0;
  for (; c + Simd::lanes <= columns; c += Simd::lanes) {
    Simd::Float v[Simd::lanes];
#pragma GCC unroll 16
    for (int i = 0; i < Simd::lanes; ++i) v[i] = load(i, c);
    Simd::transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < Simd::lanes; ++i) store(c + i, v[i]);
  }
  return c;
}

/// The queries of a tile, scaled and padded with zeros.
TENON_INLINE void load_queries(const AttentionJob& job, std::int64_t head, std::int64_t first,
                               std::int64_t queries, float* to) {
  const float* const q = job.q + head * job.q_head + first * job.q_row;
  const Simd::Float scale = set(job.scale);
  for (std::int64_t at = 0; at < tile_queries; at += Simd::lanes) {
    const std::int64_t turned = turn(
        job.head_dim,
        [&](std::int64_t i, std::int64_t d) __attribute__((always_inline)) {
          if (at + i >= queries) return Simd::zero_float();
          return Simd::mul(scale, Simd::load_float(q + (at + i) * job.q_row + d));
        },
        [&](std::int64_t d, Simd::Float v)
            __attribute__((always_inline)) { Simd::store_float(to + d * tile_queries + at, v); });
    for (std::int64_t i = at; i < at + Simd::lanes; ++i) {
      for (std::int64_t d = turned; d < job.head_dim; ++d) {
        to[d * tile_queries + i] = i < queries ? job.scale * q[i * job.q_row + d] : 0.0f;
      }
    }
  }
}

/// Outputs divided by their sums, the sink's share included; zeros for a query that saw no key.
TENON_INLINE void store_outputs(const AttentionJob& job, std::int64_t head, std::int64_t first,
                                std::int64_t queries, const TileScratch& s) {
  float* const out = job.out + first * job.out_row + head * job.out_head;
  alignas(64) float factors[tile_queries];
  alignas(64) float sinks[tile_queries] = {};
  if (job.sinks != nullptr) {
    const Simd::Float sink = set(job.sinks[head]);
    for (std::int64_t i = 0; i < tile_queries; i += Simd::lanes) {
      const Simd::Float origin = Simd::max(set(-__FLT_MAX__), Simd::load_float(s.max + i));
      Simd::store_float(sinks + i, exponential(Simd::sub(sink, origin)));
    }
  }
  for (std::int64_t i = 0; i < tile_queries; ++i) {
    factors[i] = s.sum[i] == 0.0f ? 0.0f : 1.0f / (s.sum[i] + sinks[i]);
  }
  const std::int64_t turned = job.value_dim / Simd::lanes * Simd::lanes;
  for (std::int64_t at = 0; at < queries; at += Simd::lanes) {
    const Simd::Float factor = Simd::load_float(factors + at);
    for (std::int64_t d = 0; d < turned; d += Simd::lanes) {
      turn(
          Simd::lanes,
          [&](std::int64_t i, std::int64_t) __attribute__((always_inline)) {
            return Simd::mul(factor, Simd::load_float(s.out + (d + i) * tile_queries + at));
          },
          [&](std::int64_t i, Simd::Float v) __attribute__((always_inline)) {
            if (at + i < queries) Simd::store_float(out + (at + i) * job.out_row + d, v);
          });
    }
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t d = turned; d < job.value_dim; ++d) {
      out[i * job.out_row + d] = s.out[d * tile_queries + i] * factors[i];
    }
  }
}

/// Adds the mask of keys [keys.begin, keys.end).
TENON_INLINE void add_mask(const AttentionJob& job, std::int64_t head, std::int64_t first_query,
                           std::int64_t queries, KeyRange keys, float* scores) {
  const float* const mask =
      job.mask + head * job.mask_head + first_query * job.mask_row + keys.begin;
  const std::int64_t count = keys.end - keys.begin;
  const auto add = [scores](std::int64_t at, std::int64_t j, Simd::Float v)
                       __attribute__((always_inline)) {
                         float* const score = scores + j * tile_queries + at;
                         Simd::store_float(score, Simd::add(Simd::load_float(score), v));
                       };
  for (std::int64_t at = 0; at < queries; at += Simd::lanes) {
    if (job.mask_row == 0) {
      for (std::int64_t j = 0; j < count; ++j) add(at, j, set(mask[j]));
      continue;
    }
    const std::int64_t turned = turn(
        count,
        [&](std::int64_t i, std::int64_t j) __attribute__((always_inline)) {
          if (at + i >= queries) return Simd::zero_float();
          return Simd::load_float(mask + (at + i) * job.mask_row + j);
        },
        [&](std::int64_t j, Simd::Float v) __attribute__((always_inline)) { add(at, j, v); });
    for (std::int64_t i = at; i < at + Simd::lanes && i < queries; ++i) {
      for (std::int64_t j = turned; j < count; ++j) {
        scores[j * tile_queries + i] += mask[i * job.mask_row + j];
      }
    }
  }
}

/// Cap, additive mask and visibility.
TENON_INLINE void adjust(const AttentionJob& job, std::int64_t head, std::int64_t first_query,
                         std::int64_t queries, const KeyRange* ranges, KeyRange keys,
                         bool all_visible, float* scores) {
  const std::int64_t count = keys.end - keys.begin;
  if (job.soft_cap > 0.0f) {
    for (std::int64_t i = 0; i < count * tile_queries; i += Simd::lanes) {
      Simd::store_float(scores + i, capped(Simd::load_float(scores + i), job.soft_cap));
    }
  }
  if (job.mask != nullptr) add_mask(job, head, first_query, queries, keys, scores);
  if (all_visible) return;
  for (std::int64_t i = 0; i < queries; ++i) {
    float* const own = scores + i;
    std::int64_t j = 0;
    for (; j < count && keys.begin + j < ranges[i].begin; ++j)
      own[j * tile_queries] = minus_infinity;
    if (j < ranges[i].end - keys.begin) j = ranges[i].end - keys.begin;
    for (; j < count; ++j) own[j * tile_queries] = minus_infinity;
  }
}

/// Scores to weights; rescales the sums and outputs so far to the new maximum.
TENON_INLINE void weigh_block(TileScratch& s, std::int64_t count, std::int64_t value_dim) {
  for (int v = 0; v < tile_vectors; ++v) {
    const std::int64_t at = v * Simd::lanes;
    const Simd::Float old = Simd::load_float(s.max + at);
    Simd::Float largest = old;
    for (std::int64_t j = 0; j < count; ++j) {
      largest = Simd::max(largest, Simd::load_float(s.scores + j * tile_queries + at));
    }
    Simd::store_float(s.max + at, largest);
    // The origin must be finite before any key has been visible.
    const Simd::Float origin = Simd::max(set(-__FLT_MAX__), largest);
    const Simd::Float shrink = exponential(Simd::sub(old, origin));
    Simd::Float sum = Simd::mul(Simd::load_float(s.sum + at), shrink);
    for (std::int64_t j = 0; j < count; ++j) {
      float* score = s.scores + j * tile_queries + at;
      const Simd::Float p = exponential(Simd::sub(Simd::load_float(score), origin));
      Simd::store_float(score, p);
      sum = Simd::add(sum, p);
    }
    Simd::store_float(s.sum + at, sum);
    for (std::int64_t d = 0; d < value_dim; ++d) {
      float* out = s.out + d * tile_queries + at;
      Simd::store_float(out, Simd::mul(Simd::load_float(out), shrink));
    }
  }
}

template <class Rows>
void run_tile(const AttentionJob& job, std::int64_t head, std::int64_t first, std::int64_t last,
              const KeyRange* ranges) {
  TileScratch s;
  const std::int64_t queries = last - first, kv_head = head / job.group;
  const typename Rows::Element* k_places[tile_keys];
  const typename Rows::Element* v_places[tile_keys];

  load_queries(job, head, first, queries, s.q);
  __builtin_memset(s.out, 0,
                   static_cast<std::size_t>(job.value_dim * tile_queries) * sizeof(float));
  KeyRange seen = ranges[0];    // by any query
  KeyRange common = ranges[0];  // by all of them
  for (std::int64_t i = 0; i < tile_queries; ++i) {
    s.max[i] = minus_infinity;
    s.sum[i] = 0.0f;
    if (i >= queries) continue;
    if (ranges[i].begin < seen.begin) seen.begin = ranges[i].begin;
    if (ranges[i].end > seen.end) seen.end = ranges[i].end;
    if (ranges[i].begin > common.begin) common.begin = ranges[i].begin;
    if (ranges[i].end < common.end) common.end = ranges[i].end;
  }

  // Blocks start at multiples of their size, so that a query's blocks do not depend on its tile.
  for (std::int64_t block = seen.begin / tile_keys * tile_keys; block < seen.end;
       block += tile_keys) {
    const std::int64_t begin = block < seen.begin ? seen.begin : block;
    const std::int64_t end = block + tile_keys < seen.end ? block + tile_keys : seen.end;
    const std::int64_t count = end - begin;
    const auto k = stream_of<Rows>(job, job.k, kv_head, {begin, end}, k_places);
    const auto v = stream_of<Rows>(job, job.v, kv_head, {begin, end}, v_places);
    for (std::int64_t d = 0; d == 0 || d < job.head_dim; d += chunk) {
      const std::int64_t columns = job.head_dim - d < chunk ? job.head_dim - d : chunk;
      const TileRows rows = widen<Rows>(k, d, columns, s.widened);
      dense_tiles<dense_panels, F32Weights, dense_width>(
          {rows.at, rows.row, 1}, count, s.q + d * tile_queries, 16, columns, d != 0, s.scores);
    }
    const bool all_visible = common.begin <= begin && end <= common.end;
    adjust(job, head, first, queries, ranges, {begin, end}, all_visible, s.scores);
    weigh_block(s, count, job.value_dim);
    for (std::int64_t d = 0; d < job.value_dim; d += chunk) {
      const std::int64_t columns = job.value_dim - d < chunk ? job.value_dim - d : chunk;
      const TileRows rows = widen<Rows>(v, d, columns, s.widened);
      dense_tiles<dense_panels, F32Weights, dense_width>({rows.at, 1, rows.row}, columns, s.scores,
                                                         16, count, true, s.out + d * tile_queries);
    }
  }

  store_outputs(job, head, first, queries, s);
}

void run_tile(const AttentionJob& job, std::int64_t head, std::int64_t first, std::int64_t last,
              const KeyRange* ranges) {
  with_key_type(job, [&]<class Rows>(Rows) { run_tile<Rows>(job, head, first, last, ranges); });
}

}  // namespace
}  // namespace tenon::cpu
