// Attention of many queries by AMX tiles: q k^T and p v as products of bf16 numbers summed in f32,
// the softmax between them in f32.
//
// Turning a block of keys and values into tiles costs about as much as the softmax of 32 queries,
// so a work item takes several heads of a kv_head, or more queries, through the same tiles.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../matmul/simd_avx512.hpp"
#include "../matmul/tiles_amx.hpp"
#include "kernels.hpp"
#include "softmax_body.hpp"
// clang-format on

namespace tenon::cpu::amx {
namespace {

constexpr std::int64_t block_keys = 64;
constexpr std::int64_t max_rows = 128;            // heads times queries
constexpr std::int64_t max_elements = 128 * 256;  // rows times head dimension

struct Scratch {
  alignas(64) std::uint16_t q[max_elements];                 // tiles [row / 16][d / 32]
  alignas(64) std::uint16_t k[block_keys * max_dim];         // tiles [key / 16][d / 32]
  alignas(64) std::uint16_t v[block_keys * max_dim];         // tiles [d / 16][key / 32]
  alignas(64) float scores[max_rows * block_keys];           // [row][key]
  alignas(64) std::uint16_t weights[max_rows * block_keys];  // tiles [row / 16][key / 32]
  alignas(64) float out[max_elements];                       // [row][d]
  alignas(64) float sums[max_rows][16];                      // by lane
  float max[max_rows];
};

// The kernel's view of one item. Rows are [head][query], queries of a head padded to 32.
struct Item {
  const AttentionJob& job;
  std::int64_t head, heads;
  std::int64_t first, queries, padded;
  std::int64_t dim, value_dim;  // padded to 32
  const KeyRange* ranges;

  std::int64_t rows() const { return heads * padded; }
};

TENON_INLINE __m512i round_pair(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

TENON_INLINE __mmask16 first_lanes(std::int64_t count) {
  const unsigned lanes = count >= 16 ? 0xFFFFu : count <= 0 ? 0u : (1u << count) - 1u;
  return static_cast<__mmask16>(lanes);
}

/// Elements [d, d + 16) of a key or value row, zero from `end` on.
TENON_INLINE __m512 load_row(const AttentionJob& job, const std::byte* row, std::int64_t d,
                             std::int64_t end) {
  const __mmask16 lanes = first_lanes(end - d);
  if (job.half_kv) {
    const auto* p = reinterpret_cast<const std::uint16_t*>(row) + d;
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
  }
  return _mm512_maskz_loadu_ps(lanes, reinterpret_cast<const float*>(row) + d);
}

void load_queries(const Item& item, Scratch& s) {
  const AttentionJob& job = item.job;
  const __m512 scale = _mm512_set1_ps(job.scale);
  for (std::int64_t r = 0; r < item.rows(); ++r) {
    const std::int64_t query = r % item.padded, head = item.head + r / item.padded;
    const bool present = query < item.queries;
    const float* q = job.q + (item.first + (present ? query : 0)) * job.q_row + head * job.q_head;
    for (std::int64_t d = 0; d < item.dim; d += 32) {
      const std::int64_t end = present ? job.head_dim - d : 0;
      const __m512 low = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(end), q + d), scale);
      const __m512 high =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(end - 16), q + d + 16), scale);
      std::uint16_t* tile = s.q + (r / 16 * (item.dim / 32) + d / 32) * tile_elements;
      Simd::store(tile + r % 16 * 32, round_pair(low, high));
    }
  }
}

/// out[i] lane j = in[j] lane i, of 32-bit lanes.
TENON_INLINE void transpose(__m512i (&v)[16]) {
  __m512i t[16];
  for (std::size_t i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xDD);
    t[8 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xDD);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xDD);
    v[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    v[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xDD);
  }
}

/// Keys [begin, begin + count) as tiles of 16 pairs of d by 16 keys; missing keys are zero.
void load_keys(const Item& item, std::int64_t begin, std::int64_t count, Scratch& s) {
  const AttentionJob& job = item.job;
  const std::size_t width = job.half_kv ? 2 : 4;
  const std::byte* base =
      job.k +
      static_cast<std::size_t>(item.head / job.group * job.k_head + begin * job.k_row) * width;
  for (std::int64_t group = 0; group < block_keys; group += 16) {
    for (std::int64_t d = 0; d < item.dim; d += 32) {
      __m512i pairs[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const bool present = group + i < count;
        const std::byte* row =
            base + static_cast<std::size_t>(present ? (group + i) * job.k_row : 0) * width;
        const std::int64_t end = present ? job.head_dim : 0;
        pairs[static_cast<std::size_t>(i)] =
            round_pair(load_row(job, row, d, end), load_row(job, row, d + 16, end));
      }
      transpose(pairs);
      std::uint16_t* tile = s.k + (group / 16 * (item.dim / 32) + d / 32) * tile_elements;
      for (std::size_t i = 0; i < 16; ++i) Simd::store(tile + 32 * i, pairs[i]);
    }
  }
}

/// Values as tiles of 16 pairs of keys by 16 elements of d.
void load_values(const Item& item, std::int64_t begin, std::int64_t count, Scratch& s) {
  const AttentionJob& job = item.job;
  const std::size_t width = job.half_kv ? 2 : 4;
  const std::byte* base =
      job.v +
      static_cast<std::size_t>(item.head / job.group * job.v_head + begin * job.v_row) * width;
  for (std::int64_t j = 0; j < block_keys; j += 2) {
    const std::int64_t even_end = j < count ? job.value_dim : 0;
    const std::int64_t odd_end = j + 1 < count ? job.value_dim : 0;
    const std::byte* even = base + static_cast<std::size_t>(j < count ? j * job.v_row : 0) * width;
    const std::byte* odd =
        base + static_cast<std::size_t>(j + 1 < count ? (j + 1) * job.v_row : 0) * width;
    for (std::int64_t d = 0; d < item.value_dim; d += 16) {
      std::uint16_t* tile = s.v + (d / 16 * (block_keys / 32) + j / 32) * tile_elements;
      Simd::store(tile + j % 32 / 2 * 32,
                  pair(load_row(job, even, d, even_end), load_row(job, odd, d, odd_end)));
    }
  }
}

/// Scores of one row to weights, with sums and outputs brought to the new maximum.
TENON_INLINE void weigh_row(const Item& item, std::int64_t r, KeyRange keys, bool all_visible,
                            Scratch& s) {
  const AttentionJob& job = item.job;
  constexpr std::size_t vectors = block_keys / 16;
  const std::int64_t query = r % item.padded;
  float* scores = s.scores + r * block_keys;
  __m512 v[vectors];
  for (std::size_t i = 0; i < vectors; ++i) {
    v[i] = _mm512_load_ps(scores + 16 * i);
    if (job.soft_cap > 0.0f) v[i] = capped(v[i], job.soft_cap);
  }
  if (job.mask != nullptr) {
    const float* mask = job.mask + (item.head + r / item.padded) * job.mask_head +
                        (item.first + query) * job.mask_row + keys.begin;
    for (std::size_t i = 0; i < vectors; ++i) {
      const __mmask16 lanes =
          first_lanes(keys.end - keys.begin - static_cast<std::int64_t>(16 * i));
      v[i] = _mm512_add_ps(v[i], _mm512_maskz_loadu_ps(lanes, mask + 16 * i));
    }
  }
  if (!all_visible) {
    for (std::size_t i = 0; i < vectors; ++i) {
      const std::int64_t at = keys.begin + static_cast<std::int64_t>(16 * i);
      const auto hidden_before = static_cast<__mmask16>(first_lanes(item.ranges[query].begin - at));
      const auto seen = static_cast<__mmask16>(first_lanes(item.ranges[query].end - at) &
                                               ~static_cast<unsigned>(hidden_before));
      v[i] = _mm512_mask_blend_ps(seen, _mm512_set1_ps(minus_infinity), v[i]);
    }
  }
  const __m512 largest = _mm512_max_ps(_mm512_max_ps(v[0], v[1]), _mm512_max_ps(v[2], v[3]));
  const float old = s.max[r];
  const float block_max = _mm512_reduce_max_ps(largest);
  const float now = block_max > old ? block_max : old;
  // The origin must be a number where nothing has been seen yet.
  const float origin = now > -__FLT_MAX__ ? now : -__FLT_MAX__;
  const __m512 origins = _mm512_set1_ps(origin);
  for (std::size_t i = 0; i < vectors; ++i) v[i] = exponential(_mm512_sub_ps(v[i], origins));
  std::uint16_t* weights = s.weights + r / 16 * (block_keys / 32) * tile_elements + r % 16 * 32;
  Simd::store(weights, round_pair(v[0], v[1]));
  Simd::store(weights + tile_elements, round_pair(v[2], v[3]));
  const __m512 sum = _mm512_add_ps(_mm512_add_ps(v[0], v[1]), _mm512_add_ps(v[2], v[3]));
  __m512 total = _mm512_load_ps(s.sums[r]);
  if (now != old) {
    const __m512 shrink = exponential(_mm512_set1_ps(old - origin));
    total = _mm512_mul_ps(total, shrink);
    float* out = s.out + r * item.value_dim;
    for (std::int64_t d = 0; d < item.value_dim; d += 16) {
      _mm512_store_ps(out + d, _mm512_mul_ps(_mm512_load_ps(out + d), shrink));
    }
    s.max[r] = now;
  }
  _mm512_store_ps(s.sums[r], _mm512_add_ps(total, sum));
}

void multiply(const std::uint16_t* x, std::int64_t x_tiles, const std::uint16_t* w,
              std::int64_t w_tiles, std::int64_t rows, std::int64_t columns, std::int64_t steps,
              bool accumulate, float* sums, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; r += 32) {
    for (std::int64_t c = 0; c < columns; c += 32) {
      tile_32x32(x + r / 16 * x_tiles * tile_elements, x_tiles * tile_elements,
                 w + c / 16 * w_tiles * tile_elements, w_tiles * tile_elements, steps, accumulate,
                 sums + r * stride + c, stride);
    }
  }
}

void write_out(const Item& item, const Scratch& s) {
  const AttentionJob& job = item.job;
  for (std::int64_t r = 0; r < item.rows(); ++r) {
    const std::int64_t query = r % item.padded;
    if (query >= item.queries) continue;
    const float sum = _mm512_reduce_add_ps(_mm512_load_ps(s.sums[r]));
    const __m512 factor = _mm512_set1_ps(sum == 0.0f ? 0.0f : 1.0f / sum);
    float* out =
        job.out + (item.first + query) * job.out_row + (item.head + r / item.padded) * job.out_head;
    for (std::int64_t d = 0; d < job.value_dim; d += 16) {
      const __m512 v = _mm512_load_ps(s.out + r * item.value_dim + d);
      _mm512_mask_storeu_ps(out + d, first_lanes(job.value_dim - d), _mm512_mul_ps(v, factor));
    }
  }
}

void run(const Item& item) {
  Scratch s;
  KeyRange seen = item.ranges[0];    // by any query
  KeyRange common = item.ranges[0];  // by all of them
  for (std::int64_t i = 1; i < item.queries; ++i) {
    const KeyRange range = item.ranges[i];
    if (range.begin < seen.begin) seen.begin = range.begin;
    if (range.end > seen.end) seen.end = range.end;
    if (range.begin > common.begin) common.begin = range.begin;
    if (range.end < common.end) common.end = range.end;
  }
  load_queries(item, s);
  for (std::int64_t r = 0; r < item.rows(); ++r) {
    s.max[r] = minus_infinity;
    _mm512_store_ps(s.sums[r], _mm512_setzero_ps());
    float* out = s.out + r * item.value_dim;
    for (std::int64_t d = 0; d < item.value_dim; d += 16) {
      _mm512_store_ps(out + d, _mm512_setzero_ps());
    }
  }
  __builtin_memset(s.weights, 0, sizeof s.weights);  // rows of the padding stay so

  // Blocks start at multiples of their size, so that a query's blocks do not depend on its tile.
  for (std::int64_t begin = seen.begin / block_keys * block_keys; begin < seen.end;
       begin += block_keys) {
    const std::int64_t end =
        begin + block_keys < item.job.keys ? begin + block_keys : item.job.keys;
    load_keys(item, begin, end - begin, s);
    multiply(s.q, item.dim / 32, s.k, item.dim / 32, item.rows(), block_keys, item.dim / 32, false,
             s.scores, block_keys);
    const bool all_visible = common.begin <= begin && begin + block_keys <= common.end;
    for (std::int64_t r = 0; r < item.rows(); ++r) {
      if (r % item.padded < item.queries) weigh_row(item, r, {begin, end}, all_visible, s);
    }
    load_values(item, begin, end - begin, s);
    multiply(s.weights, block_keys / 32, s.v, block_keys / 32, item.rows(), item.value_dim,
             block_keys / 32, true, s.out, item.value_dim);
  }
  write_out(item, s);
}

}  // namespace

void attention_tile(const AttentionJob& job, std::int64_t head, std::int64_t heads,
                    std::int64_t first, std::int64_t last, const KeyRange* ranges) noexcept {
  const Item item{job,
                  head,
                  heads,
                  first,
                  last - first,
                  (last - first + 31) / 32 * 32,
                  (job.head_dim + 31) / 32 * 32,
                  (job.value_dim + 31) / 32 * 32,
                  ranges};
  _tile_loadconfig(&tile_configuration);
  run(item);
  _tile_release();
}

}  // namespace tenon::cpu::amx
