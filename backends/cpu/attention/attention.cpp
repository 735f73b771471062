#include "attention.hpp"

#include "../built_kernels.hpp"
#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "attention_kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

namespace tenon::cpu {
namespace {

static_assert(max_dim == max_head_dim);

struct Kernels {
  AttentionPartKernel part;
  AttentionTileKernel tile;
  std::int64_t tile_queries;
};

// In the order of Isa.
constexpr Kernels by_isa[isa_count] = {
    {portable::attention_part, portable::attention_tile, 16},
    {avx2::attention_part, avx2::attention_tile, 16},
    {avx2::attention_part, avx2::attention_tile, 16},
    {built::avx512::attention_part, built::avx512::attention_tile, 32},
    {built::avx512::attention_part, built::avx512::attention_tile, 32},
    {built::avx512::attention_part, built::avx512::attention_tile, 32},
};

const Kernels& kernels_of(const AttentionArgs& args) {
  return by_isa[static_cast<std::size_t>(args.isa)];
}

bool uses_amx(const AttentionArgs& args) { return args.fast && args.isa == Isa::amx; }

// Queries and heads per tile call. AMX packs keys into tiles first, which 96 or 128 rows amortise;
// its scratch memory holds 128 rows of 256 elements.
struct TileSize {
  std::int64_t queries;
  std::int64_t heads;
};
TileSize tile_size(const AttentionArgs& args, const Kernels& kernels) {
  if (!uses_amx(args)) return {kernels.tile_queries, 1};
  const std::int64_t rows = std::max(args.head_dim, args.value_dim) > 256 ? 64 : 128;
  const std::int64_t heads = std::min<std::int64_t>(args.heads / args.kv_heads, rows / 32);
  return {rows / heads / 32 * 32, heads};
}

// The cost of a tile is that of 16 or 32 queries whatever it holds, and lower per query than that
// of parts.
constexpr std::int64_t max_single_queries = 6;

std::int64_t value_dim_of(const AttentionArgs& args) {
  return args.value_dim == 0 ? args.head_dim : args.value_dim;
}

KeyRange visible(const AttentionArgs& args, std::int64_t query) {
  const std::int64_t position = args.past + query;
  KeyRange range{0, args.keys};
  if (args.causal) range.end = std::min(range.end, position + 1);
  if (args.window > 0) {
    range.begin = std::max(range.begin, position - args.window + 1);
    range.end = std::min(range.end, position + args.window);
  }
  range.begin = std::min(range.begin, args.keys);
  range.end = std::max(range.end, range.begin);
  return range;
}

AttentionJob job_of(const AttentionArgs& args) {
  AttentionJob job{};
  job.queries = args.queries;
  job.keys = args.keys;
  job.heads = args.heads;
  job.group = args.heads / args.kv_heads;
  job.head_dim = args.head_dim;
  job.value_dim = value_dim_of(args);
  job.q = args.q;
  job.q_row = args.q_row;
  job.q_head = args.q_head;
  job.k = {static_cast<const std::byte*>(args.k), args.k_row, args.k_head, args.k_page};
  job.v = {static_cast<const std::byte*>(args.v), args.v_row, args.v_head, args.v_page};
  job.pages = args.pages;
  job.page_size = args.page_size;
  job.seen = {visible(args, 0).begin, visible(args, args.queries - 1).end};
  job.kv = args.kv_dtype == DType::f32   ? KeyType::f32
           : args.kv_dtype == DType::f16 ? KeyType::f16
                                         : KeyType::q8_0;
  job.out = args.out;
  job.out_row = args.out_row;
  job.out_head = args.out_head;
  job.tiled = args.tiled;
  job.scale = args.scale;
  job.soft_cap = args.soft_cap;
  job.causal = args.causal;
  job.past = args.past;
  job.window = args.window;
  job.mask = args.mask;
  job.mask_head = args.mask_head;
  job.mask_row = args.mask_row;
  job.sinks = args.sinks;
  return job;
}

/// The most keys that any query may see.
std::int64_t max_visible(const AttentionArgs& args) {
  if (args.window == 0) return args.keys;
  return std::min(args.keys, args.causal ? args.window : 2 * args.window - 1);
}

/// The most parts that `keys` keys are divided into: even numbers, which two threads can share
/// evenly even with one kv_head; beyond 128 keys a multiple of four.
std::int64_t max_parts(std::int64_t keys) {
  constexpr std::int64_t few_keys = 64;  // fewer keys take less time than combining two parts
  if (keys <= few_keys) return 1;
  if (keys <= 2 * few_keys) return 2;
  constexpr std::int64_t together = 4;
  return ceil_div(keys, together * decode_keys) * together;
}

/// Keys of each part but the last, whole vectors, for `keys` keys in all.
std::int64_t keys_per_part(std::int64_t keys) {
  constexpr std::int64_t vector = 16;
  const std::int64_t parts = max_parts(keys);
  return std::max<std::int64_t>(1, ceil_div(keys, parts * vector)) * vector;
}

// The division of the work, and the layout of the workspace for queries whose keys are divided into
// parts: a counter of finished parts per (query, kv_head), then per (query, head, part) a maximum,
// a sum and the values.
struct Plan {
  bool tiles;
  TileSize tile;
  std::int64_t tile_count;  // per head
  std::int64_t head_sets;   // per kv_head
  std::int64_t parts;       // most that a query can have
  std::int64_t items;
  std::int64_t counters;  // bytes before the partials
  std::int64_t stride;    // floats per partial
};

Plan plan_of(const AttentionArgs& args) {
  Plan plan{};
  plan.tiles = args.queries > max_single_queries;
  if (args.heads == 0 || args.kv_heads == 0 || args.queries == 0) return plan;
  if (plan.tiles) {
    const std::int64_t group = args.heads / args.kv_heads;
    plan.tile = tile_size(args, kernels_of(args));
    plan.tile_count = ceil_div(args.queries, plan.tile.queries);
    plan.head_sets = ceil_div(group, plan.tile.heads);
    plan.items = args.kv_heads * plan.head_sets * plan.tile_count;
    return plan;
  }
  plan.parts = max_parts(max_visible(args));
  plan.items = args.queries * args.kv_heads * plan.parts;
  plan.counters = round_up(args.queries * args.kv_heads * 4, 64);
  plan.stride = round_up(value_dim_of(args) + 2, 16);
  return plan;
}

void run_tile(const AttentionArgs& args, const AttentionJob& job, const Plan& plan,
              std::int64_t item) {
  // Longest first: the last queries see the most keys, and the short tiles balance the load at the
  // end.
  const std::int64_t sets = args.kv_heads * plan.head_sets;
  const std::int64_t tile = plan.tile_count - 1 - item / sets;
  const std::int64_t kv_head = item % sets / plan.head_sets;
  const std::int64_t in_group = item % plan.head_sets * plan.tile.heads;
  const std::int64_t heads = std::min(plan.tile.heads, job.group - in_group);
  const std::int64_t first = tile * plan.tile.queries;
  const std::int64_t last = std::min(first + plan.tile.queries, args.queries);
  KeyRange ranges[max_tile_queries];
  for (std::int64_t i = first; i < last; ++i) ranges[i - first] = visible(args, i);
  const AttentionTileKernel kernel = uses_amx(args) ? amx::attention_tile : kernels_of(args).tile;
  kernel(job, kv_head * job.group + in_group, heads, first, last, ranges);
}

// Sums up the parts of a query's heads in the order of their keys.
void combine(const AttentionArgs& args, const AttentionJob& job, const Plan& plan,
             std::int64_t query, std::int64_t kv_head, std::int64_t parts, float* partials) {
  for (std::int64_t h = 0; h < job.group; ++h) {
    const float* first = partials + h * plan.parts * plan.stride;
    float* out = args.out + query * args.out_row + (kv_head * job.group + h) * args.out_head;
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t p = 0; p < parts; ++p) max = std::max(max, first[p * plan.stride]);
    const float origin = std::isinf(max) && max < 0 ? 0.0f : max;
    std::fill_n(out, job.value_dim, 0.0f);
    float sum = 0.0f;
    for (std::int64_t p = 0; p < parts; ++p) {
      const float* partial = first + p * plan.stride;
      const float weight = std::exp(partial[0] - origin);
      sum += weight * partial[1];
      for (std::int64_t d = 0; d < job.value_dim; ++d) out[d] += weight * partial[2 + d];
    }
    if (args.sinks != nullptr && sum != 0.0f) {
      sum += std::exp(args.sinks[kv_head * job.group + h] - origin);
    }
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (std::int64_t d = 0; d < job.value_dim; ++d) out[d] *= factor;
  }
}

void run_part(const AttentionArgs& args, const AttentionJob& job, const Plan& plan,
              std::int64_t item) {
  const std::int64_t part = item % plan.parts;
  const std::int64_t pair = item / plan.parts;  // of query and kv_head
  const std::int64_t query = pair / args.kv_heads, kv_head = pair % args.kv_heads;
  const KeyRange range = visible(args, query);
  const std::int64_t count = range.end - range.begin, part_keys = keys_per_part(count);
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(count, part_keys));
  if (part >= parts) return;

  float* partials = reinterpret_cast<float*>(args.workspace + plan.counters) +
                    pair * job.group * plan.parts * plan.stride;
  const std::int64_t first = range.begin + part * part_keys;
  const KeyRange keys{first, std::min(first + part_keys, range.end)};
  for (std::int64_t h = 0; h < job.group; h += max_part_heads) {
    AttentionPartial wanted[max_part_heads];
    const std::int64_t heads = std::min(job.group - h, max_part_heads);
    for (std::int64_t i = 0; i < heads; ++i) {
      wanted[i].values = partials + ((h + i) * plan.parts + part) * plan.stride + 2;
    }
    kernels_of(args).part(job, query, kv_head, h, heads, keys, wanted);
    for (std::int64_t i = 0; i < heads; ++i) {
      wanted[i].values[-2] = wanted[i].max;
      wanted[i].values[-1] = wanted[i].sum;
    }
  }

  // The thread that finishes last combines the parts, so no barrier is needed; the order of sums is
  // fixed all the same.
  auto* counter = reinterpret_cast<std::int32_t*>(args.workspace) + pair;
  const std::atomic_ref finished(*counter);
  if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) {
    combine(args, job, plan, query, kv_head, parts, partials);
    finished.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs& args) noexcept {
  const Plan plan = plan_of(args);
  if (plan.tiles) return 0;
  return static_cast<std::size_t>(plan.counters +
                                  4 * args.queries * args.heads * plan.parts * plan.stride);
}

bool attention_writes_tiles(const AttentionArgs& args) noexcept {
  return uses_amx(args) && plan_of(args).tiles && value_dim_of(args) % 32 == 0;
}

std::int64_t attention_items(const AttentionArgs& args) noexcept { return plan_of(args).items; }

void attention_range(const AttentionArgs& args, std::int64_t begin, std::int64_t end) noexcept {
  if (begin >= end) return;
  const Plan plan = plan_of(args);
  const AttentionJob job = job_of(args);
  for (std::int64_t item = begin; item < end; ++item) {
    if (plan.tiles) {
      run_tile(args, job, plan, item);
    } else {
      run_part(args, job, plan, item);
    }
  }
}

void attention(const AttentionArgs& args, int thread, int threads) noexcept {
  const std::int64_t items = attention_items(args);
  // Items are assigned round-robin: adjacent items cost about the same, distant ones do not.
  for (std::int64_t item = thread; item < items; item += threads) {
    attention_range(args, item, item + 1);
  }
}

}  // namespace tenon::cpu
