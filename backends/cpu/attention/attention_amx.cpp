// Attention of many queries by AMX tiles: q k^T and p v as bf16 GEMM with f32 sums, the softmax
// between them in f32.
//
// Packing a block of keys and values into tiles costs about as much as the softmax of 32 queries,
// so a work item reuses the tiles for several heads of a kv_head, or for more queries.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "../matmul/tiles_amx.hpp"
#include "attention_kernels.hpp"
#include "key_rows.hpp"
#include "softmax_body.hpp"
#include "../integer_math.hpp"
// clang-format on

#include <type_traits>

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
  alignas(64) std::byte gathered[block_keys * max_dim * sizeof(float)];  // rows of keys or values
  alignas(64) float sums[max_rows][16];                                  // by lane
  alignas(64) float max[max_rows];
};

// The kernel's view of one item. Rows are [head][query], queries of a head padded to 16.
struct Item {
  const AttentionJob& job;
  std::int64_t head, heads;
  std::int64_t first, queries, padded;
  std::int64_t dim, value_dim;  // padded to 32
  const KeyRange* ranges;

  std::int64_t rows() const { return heads * padded; }
};

TENON_INLINE __mmask16 first_lanes(std::int64_t count) {
  const unsigned lanes = count >= 16 ? 0xFFFFu : count <= 0 ? 0u : (1u << count) - 1u;
  return static_cast<__mmask16>(lanes);
}

/// Rows of keys or of values. `whole`: all rows that are read exist and are as wide as a tile;
/// otherwise missing elements are zero.
template <class Rows, bool whole>
struct KeyRows {
  using Element = typename Rows::Element;
  const Element* at;
  std::int64_t step, count, width;

  /// Elements [d, d + 16) of row i.
  TENON_INLINE __m512 load(std::int64_t i, std::int64_t d) const {
    const Element* row = at + i * step;
    if constexpr (whole) return Rows::load(row, d);
    const __mmask16 lanes = i < count ? first_lanes(width - d) : __mmask16{0};
    if constexpr (std::is_same_v<Rows, HalfRows>) {
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, row + d));
    } else if constexpr (std::is_same_v<Rows, FloatRows>) {
      return _mm512_maskz_loadu_ps(lanes, row + d);
    } else {  // a row of blocks is as wide as a tile
      return lanes == 0 ? _mm512_setzero_ps() : Rows::load(row, d);
    }
  }
};

/// Rows [begin, begin + count) of `array`, evenly spaced: where they are, or copied to `memory`
/// where they are in several pages or some are not seen. Those that are not seen are zero.
template <class Rows>
Stream<Rows> even_rows(const AttentionJob& job, const KeyArray& array, std::int64_t kv_head,
                       std::int64_t begin, std::int64_t count, std::int64_t width,
                       std::byte* memory) {
  using Element = typename Rows::Element;
  const KeyRange rows{begin, begin + count};
  const bool is_in_page =
      job.pages == nullptr || begin / job.page_size == (rows.end - 1) / job.page_size;
  if (is_in_page && job.seen.begin <= rows.begin && rows.end <= job.seen.end) {
    const Element* place = nullptr;
    const auto first = stream_of<Rows>(job, array, kv_head, {begin, begin + 1}, &place);
    return {first.row(0), array.row, count, nullptr};
  }
  const KeyRange seen{rows.begin < job.seen.begin ? job.seen.begin : rows.begin,
                      rows.end > job.seen.end ? job.seen.end : rows.end};
  const Element* places[block_keys];
  const Stream<Rows> stream = stream_of<Rows>(job, array, kv_head, seen, places);
  const std::int64_t step = width / Rows::columns;
  const auto bytes = static_cast<std::size_t>(step) * sizeof(Element);
  auto* const to = reinterpret_cast<Element*>(memory);
  __builtin_memset(memory, 0, static_cast<std::size_t>(count) * bytes);
  for (std::int64_t j = 0; j < stream.count; ++j) {
    __builtin_memcpy(to + (seen.begin - begin + j) * step, stream.row(j), bytes);
  }
  return {to, step, count, nullptr};
}

/// Calls use(rows) with `count` rows of `array` from `begin` on, `width` elements wide.
template <class Use>
TENON_INLINE void with_rows(const AttentionJob& job, const KeyArray& array, std::int64_t kv_head,
                            std::int64_t begin, std::int64_t count, std::int64_t width,
                            std::byte* memory, Use use) {
  with_key_type(job, [&]<class Rows>(Rows) __attribute__((always_inline)) {
    const auto rows = even_rows<Rows>(job, array, kv_head, begin, count, width, memory);
    if (count == block_keys && width % 32 == 0) {
      return use(KeyRows<Rows, true>{rows.first, rows.step, count, width});
    }
    use(KeyRows<Rows, false>{rows.first, rows.step, count, width});
  });
}

/// Queries times the job's scale of scores times `unit`.
void load_queries(const Item& item, float unit, Scratch& s) {
  const AttentionJob& job = item.job;
  const __m512 scale = _mm512_set1_ps(job.scale * unit);
  for (std::int64_t r = 0; r < item.rows(); ++r) {
    const std::int64_t query = r % item.padded, head = item.head + r / item.padded;
    const bool present = query < item.queries;
    const float* q = job.q + (item.first + (present ? query : 0)) * job.q_row + head * job.q_head;
    for (std::int64_t d = 0; d < item.dim; d += 32) {
      const std::int64_t end = present ? job.head_dim - d : 0;
      const __m512 low = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(end), q + d), scale);
      const __m512 high =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(end - 16), q + d + 16), scale);
      Simd::store(line_of(s.q, item.dim / 32, r, d / 32), rounded(low, high));
    }
  }
}

/// The keys of a block with `count` keys that tiles cover; missing ones are zero.
TENON_INLINE std::int64_t covered(std::int64_t count) { return count > 32 ? block_keys : 32; }

/// Keys [begin, begin + count) as tiles of 16 pairs of d by 16 keys.
void load_keys(const Item& item, std::int64_t begin, std::int64_t count, Scratch& s) {
  const AttentionJob& job = item.job;
  const auto load = [&](const auto& rows) __attribute__((always_inline)) {
    for (std::int64_t group = 0; group < covered(count); group += 16) {
      for (std::int64_t d = 0; d < item.dim; d += 32) {
        Simd::Float pairs[16];  // of bf16: lanes to be moved
        for (std::size_t i = 0; i < 16; ++i) {
          const std::int64_t key = group + static_cast<std::int64_t>(i);
          pairs[i] = _mm512_castsi512_ps(rounded(rows.load(key, d), rows.load(key, d + 16)));
        }
        Simd::transpose(pairs);
        std::uint16_t* tile = s.k + (group / 16 * (item.dim / 32) + d / 32) * tile_elements;
        for (std::size_t i = 0; i < 16; ++i) {
          Simd::store(tile + 32 * i, _mm512_castps_si512(pairs[i]));
        }
      }
    }
  };
  with_rows(job, job.k, item.head / job.group, begin, count, job.head_dim, s.gathered, load);
}

/// Values as tiles of 16 pairs of keys by 16 elements of d.
void load_values(const Item& item, std::int64_t begin, std::int64_t count, Scratch& s) {
  const AttentionJob& job = item.job;
  const auto load = [&](const auto& rows) __attribute__((always_inline)) {
    for (std::int64_t j = 0; j < covered(count); j += 2) {
      for (std::int64_t d = 0; d < item.value_dim; d += 16) {
        std::uint16_t* tile = s.v + (d / 16 * (block_keys / 32) + j / 32) * tile_elements;
        Simd::store(tile + j % 32 / 2 * 32, pair(rows.load(j, d), rows.load(j + 1, d)));
      }
    }
  };
  with_rows(job, job.v, item.head / job.group, begin, count, job.value_dim, s.gathered, load);
}

constexpr float log2_e = 1.44269504f;

/// 2^x for x <= 0, with a relative error below 3e-6: weights are rounded to bf16 afterwards. A NaN
/// stays. The polynomial is a least-maximum fit (Lawson's iteration) of this project's own.
TENON_INLINE __m512 power_of_two(__m512 x) {
  constexpr int fraction = 0x09;  // x less the whole number below it, without exceptions
  const __m512 r = _mm512_reduce_ps(x, fraction);
  __m512 p = _mm512_set1_ps(0.0135341678f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0520114638f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.241442755f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693003833f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

/// Lane i of the result: the largest lane of v[i].
TENON_INLINE __m512 largest_lanes(__m512 (&v)[16]) {
  // Each step folds halves of two vectors into one, and so leaves half as many.
  for (std::size_t i = 0; i < 8; ++i) {
    v[i] = _mm512_max_ps(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44),
                         _mm512_shuffle_f32x4(v[i], v[i + 8], 0xEE));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    v[i] = _mm512_max_ps(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x88),
                         _mm512_shuffle_f32x4(v[i], v[i + 4], 0xDD));
  }
  // 128-bit lane q now belongs to rows i, i + 8, i + 4, i + 12 in turn.
  for (std::size_t i = 0; i < 2; ++i) {
    v[i] = _mm512_max_ps(_mm512_unpacklo_ps(v[i], v[i + 2]), _mm512_unpackhi_ps(v[i], v[i + 2]));
  }
  const __m512 largest =
      _mm512_max_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
  return _mm512_permutexvar_ps(order, largest);
}

/// Computes weights from the scores of a block's keys.
struct Weigher {
  const Item& item;
  KeyRange keys;
  bool first;        ///< block of the item
  bool all_visible;  ///< to all queries
  Scratch& s;

  /// A row's scores as softmax reads them: capped, masked, in powers of two.
  template <std::size_t vectors>
  TENON_INLINE void adjust(std::int64_t r, __m512 (&v)[vectors]) const {
    const AttentionJob& job = item.job;
    // Padding rows are computed like the last query and not read.
    const std::int64_t query = r % item.padded < item.queries ? r % item.padded : item.queries - 1;
    const __m512 unit = _mm512_set1_ps(log2_e);
    if (job.soft_cap > 0.0f) {
      for (__m512& score : v) score = _mm512_mul_ps(capped(score, job.soft_cap), unit);
    }
    if (job.mask != nullptr) {
      const float* mask = job.mask + (item.head + r / item.padded) * job.mask_head +
                          (item.first + query) * job.mask_row + keys.begin;
      for (std::size_t i = 0; i < vectors; ++i) {
        const __mmask16 lanes =
            first_lanes(keys.end - keys.begin - static_cast<std::int64_t>(16 * i));
        const __m512 m = _mm512_maskz_loadu_ps(lanes, mask + 16 * i);
        v[i] = _mm512_fmadd_ps(m, unit, v[i]);
        // In the new unit the lowest scores must not become infinite, which would mask a key.
        const __m512 lowest = _mm512_set1_ps(-__FLT_MAX__);
        const __mmask16 is_number = _mm512_cmp_ps_mask(m, lowest, _CMP_GE_OQ);
        v[i] = _mm512_mask_max_ps(v[i], is_number, lowest, v[i]);
      }
    }
    if (all_visible) return;
    const KeyRange seen = item.ranges[query];
    for (std::size_t i = 0; i < vectors; ++i) {
      const std::int64_t at = keys.begin + static_cast<std::int64_t>(16 * i);
      const auto before = static_cast<unsigned>(first_lanes(seen.begin - at));
      const auto lanes = static_cast<__mmask16>(first_lanes(seen.end - at) & ~before);
      v[i] = _mm512_mask_blend_ps(lanes, _mm512_set1_ps(minus_infinity), v[i]);
    }
  }

  /// Rescales the sums and outputs of 16 rows to their new maxima.
  void shrink(std::int64_t row, __mmask16 changed, __m512 factors) const {
    alignas(64) float factor[16];
    _mm512_store_ps(factor, factors);
    for (unsigned left = changed; left != 0; left &= left - 1) {
      const auto i = static_cast<std::int64_t>(__builtin_ctz(left));
      const __m512 f = _mm512_set1_ps(factor[i]);
      float* sums = s.sums[row + i];
      _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), f));
      float* out = s.out + (row + i) * item.value_dim;
      for (std::int64_t d = 0; d < item.value_dim; d += 16) {
        _mm512_store_ps(out + d, _mm512_mul_ps(_mm512_load_ps(out + d), f));
      }
    }
  }

  /// Sixteen rows from `row` on, of which tiles cover 16 * vectors keys.
  template <std::size_t vectors>
  void weigh(std::int64_t row) const {
    float* const scores = s.scores + row * block_keys;
    const bool plain = item.job.soft_cap <= 0.0f && item.job.mask == nullptr && all_visible;
    __m512 largest[16];
    for (std::int64_t i = 0; i < 16; ++i) {
      __m512 v[vectors];
      float* const at = scores + i * block_keys;
      for (std::size_t j = 0; j < vectors; ++j) v[j] = _mm512_load_ps(at + 16 * j);
      if (!plain) {
        adjust(row + i, v);
        for (std::size_t j = 0; j < vectors; ++j) _mm512_store_ps(at + 16 * j, v[j]);
      }
      __m512 most = _mm512_max_ps(v[0], v[1]);
      for (std::size_t j = 2; j < vectors; ++j) most = _mm512_max_ps(v[j], most);
      largest[i] = most;
    }
    const __m512 old = _mm512_load_ps(s.max + row);
    const __m512 now = _mm512_max_ps(largest_lanes(largest), old);
    // The origin must be finite before any key has been visible.
    const __m512 origin = _mm512_max_ps(now, _mm512_set1_ps(-__FLT_MAX__));
    _mm512_store_ps(s.max + row, now);
    if (!first) {
      const __mmask16 changed = _mm512_cmp_ps_mask(now, old, _CMP_NEQ_UQ);
      if (changed != 0) shrink(row, changed, power_of_two(_mm512_sub_ps(old, origin)));
    }
    alignas(64) float origins[16];
    _mm512_store_ps(origins, origin);
    std::uint16_t* const weights = s.weights + row / 16 * (block_keys / 32) * tile_elements;
    for (std::int64_t i = 0; i < 16; ++i) {
      const __m512 from = _mm512_set1_ps(origins[i]);
      __m512 v[vectors];
      for (std::size_t j = 0; j < vectors; ++j) {
        v[j] = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + i * block_keys + 16 * j), from));
      }
      __m512 sum = first ? _mm512_setzero_ps() : _mm512_load_ps(s.sums[row + i]);
      for (std::size_t j = 0; j < vectors; j += 2) {
        Simd::store(weights + j / 2 * tile_elements + i * 32, rounded(v[j], v[j + 1]));
        sum = _mm512_add_ps(sum, _mm512_add_ps(v[j], v[j + 1]));
      }
      _mm512_store_ps(s.sums[row + i], sum);
    }
  }

  void run() const {
    const bool few = covered(keys.end - keys.begin) == 32;
    for (std::int64_t row = 0; row < item.rows(); row += 16) {
      if (few) {
        weigh<2>(row);
      } else {
        weigh<4>(row);
      }
    }
  }
};

void multiply(const std::uint16_t* x, std::int64_t x_tiles, const std::uint16_t* w,
              std::int64_t w_tiles, std::int64_t rows, std::int64_t columns, std::int64_t steps,
              bool accumulate, float* sums, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; r += 32) {
    for (std::int64_t c = 0; c < columns; c += 32) {
      float* at = sums + r * stride + c;
      const Tiles left{x + r / 16 * x_tiles * tile_elements, x_tiles * tile_elements};
      const Tiles right{w + c / 16 * w_tiles * tile_elements, w_tiles * tile_elements};
      const SumsPlace place{accumulate ? at : nullptr, stride, at, stride};
      if (rows - r > 16) {
        tile_product<2>(left, right, steps, place, [] {});
      } else {
        tile_product<1>(left, right, steps, place, [] {});
      }
    }
  }
}

/// The line of a tiled output that begins with element d of a row, a multiple of 32.
TENON_INLINE std::uint16_t* tiled_line(const Item& item, std::int64_t query, std::int64_t d) {
  const AttentionJob& job = item.job;
  const std::int64_t row = job.tiled.first_row + item.first + query;
  return line_of(job.tiled.tiles, job.heads * job.value_dim / 32, row, d / 32);
}

void write_out(const Item& item, const Scratch& s) {
  const AttentionJob& job = item.job;
  for (std::int64_t r = 0; r < item.rows(); ++r) {
    const std::int64_t query = r % item.padded;
    if (query >= item.queries) continue;
    float sum = _mm512_reduce_add_ps(_mm512_load_ps(s.sums[r]));
    const std::int64_t head = item.head + r / item.padded;
    if (job.sinks != nullptr && sum != 0.0f) {  // maxima are in powers of two
      const __m512 above = _mm512_set1_ps(job.sinks[head] * log2_e - s.max[r]);
      sum += _mm512_cvtss_f32(power_of_two(above));
    }
    const __m512 factor = _mm512_set1_ps(sum == 0.0f ? 0.0f : 1.0f / sum);
    const auto value = [&](std::int64_t d) {
      return _mm512_mul_ps(_mm512_load_ps(s.out + r * item.value_dim + d), factor);
    };
    if (job.tiled.tiles != nullptr) {
      for (std::int64_t d = 0; d < job.value_dim; d += 32) {
        Simd::store(tiled_line(item, query, head * job.value_dim + d),
                    rounded(value(d), value(d + 16)));
      }
      continue;
    }
    float* out = job.out + (item.first + query) * job.out_row + head * job.out_head;
    for (std::int64_t d = 0; d < job.value_dim; d += 16) {
      _mm512_mask_storeu_ps(out + d, first_lanes(job.value_dim - d), value(d));
    }
  }
}

/// For an item whose queries see no key.
void clear_output(const Item& item, Scratch& s) {
  const auto count = static_cast<std::size_t>(item.rows());
  __builtin_memset(s.sums, 0, count * sizeof s.sums[0]);
  __builtin_memset(s.out, 0, count * static_cast<std::size_t>(item.value_dim) * sizeof(float));
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
  load_queries(item, item.job.soft_cap > 0.0f ? 1.0f : log2_e, s);
  for (std::int64_t r = 0; r < item.rows(); r += 16) {
    _mm512_store_ps(s.max + r, _mm512_set1_ps(minus_infinity));
  }

  // Blocks start at multiples of their size, so that a query's blocks do not depend on its tile.
  const std::int64_t start = seen.begin / block_keys * block_keys;
  for (std::int64_t begin = start; begin < seen.end; begin += block_keys) {
    const std::int64_t end =
        begin + block_keys < item.job.keys ? begin + block_keys : item.job.keys;
    const std::int64_t tiles = covered(end - begin);
    const bool first = begin == start;
    load_keys(item, begin, end - begin, s);
    multiply(s.q, item.dim / 32, s.k, item.dim / 32, item.rows(), tiles, item.dim / 32, false,
             s.scores, block_keys);
    const bool all_visible = common.begin <= begin && begin + tiles <= common.end;
    Weigher{item, {begin, end}, first, all_visible, s}.run();
    load_values(item, begin, end - begin, s);
    multiply(s.weights, block_keys / 32, s.v, block_keys / 32, item.rows(), item.value_dim,
             tiles / 32, !first, s.out, item.value_dim);
  }
  if (start >= seen.end) clear_output(item, s);
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
                  round_up(last - first, 16),
                  round_up(job.head_dim, 32),
                  round_up(job.value_dim, 32),
                  ranges};
  _tile_loadconfig(&tile_configuration);
  run(item);
  _tile_release();
}

}  // namespace tenon::cpu::amx
