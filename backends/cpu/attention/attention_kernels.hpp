#pragma once

#include "../cpu_features.hpp"

#include <cstddef>
#include <cstdint>

/// What attention.cpp hands to the files compiled for one instruction set: plain data only, for the
/// reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

enum class KeyType : std::uint8_t { f32, f16, q8_0 };

/// Output in bf16 tiles of 16 rows by 32 elements, the tiles of 16 rows adjacent: the outputs of
/// all heads, concatenated and rounded.
struct TiledOutput {
  std::uint16_t* tiles;    ///< null: none
  std::int64_t first_row;  ///< that of query 0
};

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
};

/// Keys or values, strides in elements: [Hkv, T, D], in pages [pages, Hkv, page_size, D].
struct KeyArray {
  const std::byte* data;
  std::int64_t row, head, page;
};

/// Fields as in AttentionArgs.
struct AttentionJob {
  std::int64_t queries, keys;
  std::int64_t heads;
  std::int64_t group;  ///< heads per kv_head
  std::int64_t head_dim, value_dim;
  const float* q;
  std::int64_t q_row, q_head;
  KeyArray k, v;
  KeyType kv;
  const std::int32_t* pages;
  std::int64_t page_size;
  KeyRange seen;  ///< by any query
  float* out;
  std::int64_t out_row, out_head;
  TiledOutput tiled;
  float scale, soft_cap;
  bool causal;
  std::int64_t past, window;
  const float* mask;
  std::int64_t mask_head, mask_row;
  const float* sinks;
};

/// Softmax over some of a query's keys: `values` is the sum of exp(s - max) v.
struct AttentionPartial {
  float max;
  float sum;
  float* values;
};

/// One query, heads [first, first + count) of one kv_head's group, keys [begin, end), all of which
/// the query may see; count <= max_part_heads, end - begin <= decode_keys. Fills one partial per
/// head.
using AttentionPartKernel = void (*)(const AttentionJob&, std::int64_t query, std::int64_t kv_head,
                                     std::int64_t first, std::int64_t count, KeyRange keys,
                                     AttentionPartial* partials) noexcept;

/// Queries [first, last) of heads [head, head + heads), which share a kv_head. ranges[i - first] is
/// what query i sees. The most queries and heads of a call: see TileSize.
using AttentionTileKernel = void (*)(const AttentionJob&, std::int64_t head, std::int64_t heads,
                                     std::int64_t first, std::int64_t last,
                                     const KeyRange* ranges) noexcept;

/// Most keys per partial when few queries are spread over threads.
inline constexpr std::int64_t decode_keys = 256;

inline constexpr std::int64_t max_part_heads = 16;
inline constexpr std::int64_t max_tile_queries = 128;
inline constexpr std::int64_t max_dim = 512;

#define TENON_CPU_ISA_KERNELS(isa)                                                                 \
  namespace isa {                                                                                  \
  void attention_part(const AttentionJob&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, \
                      KeyRange, AttentionPartial*) noexcept;                                       \
  void attention_tile(const AttentionJob&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, \
                      const KeyRange*) noexcept;                                                   \
  }
TENON_CPU_ISA_KERNELS(portable)
TENON_CPU_ISA_KERNELS(avx2)
TENON_CPU_ISA_KERNELS(avx512)
#undef TENON_CPU_ISA_KERNELS

namespace amx {
void attention_tile(const AttentionJob&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    const KeyRange*) noexcept;
}

}  // namespace tenon::cpu
