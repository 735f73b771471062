#pragma once

#include "../cpu_features.hpp"
#include "attention_kernels.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// Scaled dot-product attention without a score matrix.
///
///   s[h, i, j] = cap(scale * q[i, h] . k[h / G, j]) + mask[h, i, j],  G = heads / kv_heads
///   out[i, h]  = sum_j softmax_j(s[h, i, j]) * v[h / G, j]
///
/// over the keys that query i may see: with p = past + i, j <= p if causal, and j > p - window if
/// window > 0 (window without causal also ends at j < p + window). cap(s) = c * tanh(s / c) if
/// soft_cap = c > 0. A query that sees no key, or only keys at mask -inf, gives zeros.
///
/// Precision f32 with keys and values in f32, f16 or q8_0; exp within 2 ulp. With `fast` set and
/// AMX, many queries use bf16 factors with f32 sums. Results do not depend on the number of
/// threads.
///
///   AttentionArgs a{.q = q, .q_row = Hq * D, .q_head = D, ...};
///   // workspace: attention_workspace_bytes(a) bytes, 64-byte aligned, zeroed once
///   pool.run([&](Worker& t) { attention(a, t.thread, t.threads); });
struct AttentionArgs {
  std::int64_t queries = 0;    ///< S
  std::int64_t keys = 0;       ///< T, including those of the present queries
  std::int64_t heads = 0;      ///< Hq, a multiple of kv_heads
  std::int64_t kv_heads = 0;   ///< Hkv
  std::int64_t head_dim = 0;   ///< D of q and k, at most max_head_dim
  std::int64_t value_dim = 0;  ///< D of v and out; 0 means head_dim

  // Strides in elements, those of q8_0 in blocks of 32; the innermost axis is contiguous.
  const float* q = nullptr;  ///< [S, Hq, D]
  std::int64_t q_row = 0, q_head = 0;
  const void* k = nullptr;  ///< [Hkv, T, D] of kv_dtype
  std::int64_t k_row = 0, k_head = 0;
  const void* v = nullptr;  ///< [Hkv, T, Dv] of kv_dtype
  std::int64_t v_row = 0, v_head = 0;
  DType kv_dtype = DType::f16;  ///< f32, f16 or q8_0
  /// Optional: key and value j lie in page pages[j / page_size], at row j % page_size of it. Pages
  /// whose keys no query may see are not read.
  const std::int32_t* pages = nullptr;
  std::int64_t page_size = 0;
  std::int64_t k_page = 0, v_page = 0;  ///< strides from page to page
  float* out = nullptr;                 ///< [S, Hq, Dv]; must not overlap the inputs
  std::int64_t out_row = 0, out_head = 0;
  TiledOutput tiled{};  ///< in place of `out`, where attention_writes_tiles

  float scale = 1.0f;
  float soft_cap = 0.0f;  ///< 0: none
  bool causal = true;
  std::int64_t past = 0;        ///< position of query 0 among the keys
  std::int64_t window = 0;      ///< 0: none
  const float* mask = nullptr;  ///< optional, f32, contiguous along keys
  std::int64_t mask_head = 0;   ///< stride from head to head, 0 broadcasts
  std::int64_t mask_row = 0;    ///< stride from query to query, 0 broadcasts

  const float* sinks = nullptr;  ///< optional, of each head: a score without a value

  bool fast = false;  ///< allow bf16 factors where that is faster
  std::byte* workspace = nullptr;
  Isa isa = active_isa();
};

inline constexpr std::int64_t max_head_dim = 512;

/// Bytes of workspace for these sizes; pointers are not read. Grows with `keys`, not with threads.
std::size_t attention_workspace_bytes(const AttentionArgs& args) noexcept;

/// Whether these sizes can have a tiled output; pointers are not read.
bool attention_writes_tiles(const AttentionArgs& args) noexcept;

/// Computes this thread's share. All threads in [0, threads) must call it with the same args; no
/// barrier inside. The workspace must be zero before its first use. Calls restore its zeros, so it
/// can be reused without clearing, but not by two calls at the same time.
void attention(const AttentionArgs& args, int thread, int threads) noexcept;

std::int64_t attention_items(const AttentionArgs& args) noexcept;
void attention_range(const AttentionArgs& args, std::int64_t begin, std::int64_t end) noexcept;

}  // namespace tenon::cpu
