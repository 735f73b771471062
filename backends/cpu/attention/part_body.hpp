#pragma once

// Attention of one query: scores as dot products along the head dimension, for all heads of a
// kv_head at a time so that a key is read once.
#include "../integer_math.hpp"
#include "attention_kernels.hpp"
#include "key_rows.hpp"
#include "softmax_body.hpp"

namespace tenon::cpu {
namespace {

constexpr int lanes = Simd::lanes;

/// Prefetch distance in rows, for rows of `size` columns: far enough to hide the latency of memory.
/// The hardware prefetcher alone stops at each page.
template <class Rows>
TENON_INLINE std::int64_t rows_ahead(std::int64_t size) {
  constexpr std::int64_t bytes_ahead = 4096;
  constexpr auto element_bytes = static_cast<std::int64_t>(sizeof(typename Rows::Element));
  return 1 + bytes_ahead * Rows::columns / ((size > 0 ? size : 1) * element_bytes);
}

/// a * b + c, rounded as Simd::fma does: the compiler may choose differently for rows in pages.
TENON_INLINE float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// scores[h][j + i] = q[h] . k[j + i] for `heads` queries and i < `rows`, 1 or 4: four rows share
/// what is loaded of q, and their sums are added up across lanes together. q is [heads][dim].
template <class Rows, std::size_t heads, std::size_t rows>
TENON_INLINE void dot_rows(const float* q, const Stream<Rows>& keys, std::int64_t j,
                           std::int64_t dim, float* scores) {
  const std::int64_t whole = dim / lanes * lanes;
  const typename Rows::Element* k[rows];
  for (std::size_t i = 0; i < rows; ++i) k[i] = keys.row(j + static_cast<std::int64_t>(i));
  Simd::Float sum[heads][rows];
  for (auto& row : sum) {
    for (auto& s : row) s = Simd::zero_float();
  }
  for (std::int64_t d = 0; d < whole; d += lanes) {
    Simd::Float kv[rows];
    for (std::size_t i = 0; i < rows; ++i) kv[i] = Rows::load(k[i], d);
    for (std::size_t h = 0; h < heads; ++h) {
      const Simd::Float query = Simd::load_float(q + static_cast<std::int64_t>(h) * dim + d);
      for (std::size_t i = 0; i < rows; ++i) sum[h][i] = Simd::fma(query, kv[i], sum[h][i]);
    }
  }
  float* const out = scores + j;
#pragma GCC unroll 4
  for (std::size_t h = 0; h < heads; ++h) {
    const auto row = static_cast<std::int64_t>(h) * decode_keys;
    if constexpr (rows == 4) {
      Simd::store_sums(out + row, sum[h][0], sum[h][1], sum[h][2], sum[h][3]);
    } else {
      out[row] = Simd::sum(sum[h][0]);
    }
  }
  for (std::int64_t d = whole; d < dim; ++d) {
    for (std::int64_t h = 0; h < static_cast<std::int64_t>(heads); ++h) {
      for (std::size_t i = 0; i < rows; ++i) {
        float& score = out[h * decode_keys + static_cast<std::int64_t>(i)];
        score = multiply_add(q[h * dim + d], Rows::one(k[i], d), score);
      }
    }
  }
}

/// scores[h][j] = q[h] . k[j] for all keys. `v` is read next and prefetched.
template <class Rows, std::size_t heads>
void dot_products(const float* q, const Stream<Rows>& keys, std::int64_t dim, const Stream<Rows>& v,
                  std::int64_t value_dim, float* scores) {
  const std::int64_t ahead = rows_ahead<Rows>(dim);
  const auto prefetch = [&](std::int64_t j) {
    keys.prefetch(j, 0, dim);
    if (j >= keys.count) v.prefetch(j - keys.count, 0, value_dim);
  };
  std::int64_t j = 0;
  for (; j + 4 <= keys.count; j += 4) {
    for (std::int64_t i = 0; i < 4; ++i) prefetch(j + ahead + i);
    dot_rows<Rows, heads, 4>(q, keys, j, dim, scores);
  }
  for (; j < keys.count; ++j) {
    prefetch(j + ahead);
    dot_rows<Rows, heads, 1>(q, keys, j, dim, scores);
  }
}

/// values[h] = sum_j p[h][j] v[j], `width` vectors of d at a time.
template <class Rows, int heads, int width>
TENON_INLINE void weighted_columns(const float* p, const Stream<Rows>& v, std::int64_t d,
                                   const AttentionPartial* partials) {
  constexpr auto count = static_cast<std::size_t>(heads);
  constexpr auto vectors = static_cast<std::size_t>(width);
  Simd::Float sum[count][vectors];
  for (auto& row : sum) {
    for (auto& s : row) s = Simd::zero_float();
  }
  const std::int64_t ahead = rows_ahead<Rows>(width * lanes);
  for (std::int64_t j = 0; j < v.count; ++j) {
    v.prefetch(j + ahead, d, width * lanes);
    const typename Rows::Element* row = v.row(j);
    Simd::Float vv[vectors];
    for (std::size_t i = 0; i < vectors; ++i)
      vv[i] = Rows::load(row, d + static_cast<std::int64_t>(i) * lanes);
    for (std::size_t h = 0; h < count; ++h) {
      const Simd::Float weight =
          Simd::broadcast(p + static_cast<std::int64_t>(h) * decode_keys + j);
      for (std::size_t i = 0; i < vectors; ++i) sum[h][i] = Simd::fma(weight, vv[i], sum[h][i]);
    }
  }
  for (std::size_t h = 0; h < count; ++h) {
    for (std::size_t i = 0; i < vectors; ++i) {
      Simd::store_float(partials[h].values + d + static_cast<std::int64_t>(i) * lanes, sum[h][i]);
    }
  }
}

template <class Rows, int heads>
void weighted_sum(const float* p, const Stream<Rows>& v, std::int64_t dim,
                  const AttentionPartial* partials) {
  std::int64_t d = 0;
  for (; d + 4 * lanes <= dim; d += 4 * lanes) {
    weighted_columns<Rows, heads, 4>(p, v, d, partials);
  }
  for (; d + lanes <= dim; d += lanes) {
    weighted_columns<Rows, heads, 1>(p, v, d, partials);
  }
  for (; d < dim; ++d) {
    for (int h = 0; h < heads; ++h) {
      float sum = 0.0f;
      for (std::int64_t j = 0; j < v.count; ++j)
        sum = multiply_add(p[h * decode_keys + j], Rows::one(v.row(j), d), sum);
      partials[h].values[d] = sum;
    }
  }
}

/// Scores of one head to weights exp(s - max); returns max and their sum. The row is padded to
/// whole vectors with scores that weigh nothing.
TENON_INLINE void weigh(const AttentionJob& job, float* scores, std::int64_t keys,
                        const float* mask, AttentionPartial& partial) {
  const std::int64_t padded = round_up(keys, lanes);
  for (std::int64_t j = keys; j < padded; ++j) scores[j] = minus_infinity;
  Simd::Float largest = set(minus_infinity);
  for (std::int64_t j = 0; j < padded; j += lanes) {
    Simd::Float s = Simd::load_float(scores + j);
    if (job.soft_cap > 0.0f) s = capped(s, job.soft_cap);
    Simd::store_float(scores + j, s);
  }
  for (std::int64_t j = keys; j < padded; ++j) scores[j] = minus_infinity;
  if (mask != nullptr) {
    for (std::int64_t j = 0; j < keys; ++j) scores[j] += mask[j];
  }
  for (std::int64_t j = 0; j < padded; j += lanes) {
    largest = Simd::max(largest, Simd::load_float(scores + j));
  }
  float lane[16];
  Simd::store_float(lane, largest);
  float max = minus_infinity;
  for (int i = 0; i < lanes; ++i) max = lane[i] > max ? lane[i] : max;
  const Simd::Float origin = set(max == minus_infinity ? 0.0f : max);
  Simd::Float sum = Simd::zero_float();
  for (std::int64_t j = 0; j < padded; j += lanes) {
    const Simd::Float p = exponential(Simd::sub(Simd::load_float(scores + j), origin));
    Simd::store_float(scores + j, p);
    sum = Simd::add(sum, p);
  }
  partial.max = max;
  partial.sum = Simd::sum(sum);
}

template <class Rows, int heads>
void part_of_heads(const AttentionJob& job, std::int64_t query, std::int64_t kv_head,
                   std::int64_t first_head, KeyRange keys, AttentionPartial* partials) {
  alignas(64) float scores[static_cast<std::size_t>(heads) * decode_keys];
  alignas(64) float q[static_cast<std::size_t>(heads) * max_dim];
  const typename Rows::Element* k_places[decode_keys];
  const typename Rows::Element* v_places[decode_keys];
  const std::int64_t dim = job.head_dim, count = keys.end - keys.begin;
  const auto k = stream_of<Rows>(job, job.k, kv_head, keys, k_places);
  const auto v = stream_of<Rows>(job, job.v, kv_head, keys, v_places);
  const std::int64_t ahead = rows_ahead<Rows>(dim);
  for (std::int64_t j = 0; j < ahead; ++j) k.prefetch(j, 0, dim);
  for (int h = 0; h < heads; ++h) {
    const float* row = job.q + query * job.q_row + (first_head + h) * job.q_head;
    for (std::int64_t d = 0; d < dim; ++d) q[h * dim + d] = row[d] * job.scale;
  }
  dot_products<Rows, static_cast<std::size_t>(heads)>(q, k, dim, v, job.value_dim, scores);
  for (int h = 0; h < heads; ++h) {
    const float* mask = job.mask == nullptr ? nullptr
                                            : job.mask + (first_head + h) * job.mask_head +
                                                  query * job.mask_row + keys.begin;
    weigh(job, scores + h * decode_keys, count, mask, partials[h]);
  }
  weighted_sum<Rows, heads>(scores, v, job.value_dim, partials);
}

template <class Rows>
void run_part(const AttentionJob& job, std::int64_t query, std::int64_t kv_head, std::int64_t first,
              std::int64_t count, KeyRange keys, AttentionPartial* partials) {
  std::int64_t h = 0;
  const std::int64_t head = kv_head * job.group + first;
  const auto run = [&]<int heads>() {
    for (; count - h >= heads; h += heads) {
      part_of_heads<Rows, heads>(job, query, kv_head, head + h, keys, partials + h);
    }
  };
  // Sums of more heads than that do not fit the registers.
  if (lanes == 16) run.template operator()<4>();
  if (count - h == 3 || count - h > 4) run.template operator()<3>();
  run.template operator()<2>();
  run.template operator()<1>();
}

void run_part(const AttentionJob& job, std::int64_t query, std::int64_t kv_head, std::int64_t first,
              std::int64_t count, KeyRange keys, AttentionPartial* partials) {
  with_key_type(job, [&]<class Rows>(Rows) {
    run_part<Rows>(job, query, kv_head, first, count, keys, partials);
  });
}

}  // namespace
}  // namespace tenon::cpu
