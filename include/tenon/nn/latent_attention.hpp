#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/attention.hpp>
#include <tenon/nn/kv_cache.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/slice.hpp>

#include <cstdint>
#include <optional>
#include <source_location>
#include <vector>

namespace tenon::nn {

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, 2.1): keys and values of all heads
/// are projections of one latent vector of each position, and a part of the keys, the same for all
/// heads, carries the rotary embedding. The projections are absorbed into queries and results, so
/// that the heads attend to the latent vectors themselves.
///
/// A position takes 2 * rank + rotated numbers of the cache in each layer: its key, which is the
/// latent vector and the rotated part, and the latent vector again as its value. With `expansion`,
/// the one weight of both projections, nothing is absorbed: each head has keys of plain + rotated
/// numbers and values of its own.
template <class T = Tensor>
struct LatentAttention {
  std::optional<Linear<T>> query_down;   ///< [query rank, width]
  std::optional<RmsNorm<T>> query_norm;  ///< behind it
  Linear<T> query;                       ///< [heads * (plain + rotated), query rank or width]
  Linear<T> latent;                      ///< [rank + rotated, width]
  RmsNorm<T> latent_norm;                ///< of the first `rank`
  std::optional<T> key_up;               ///< [heads, rank, plain]
  std::optional<T> value_up;             ///< [heads, value, rank]
  std::optional<Linear<T>> expansion;    ///< [heads * (plain + value), rank], in place of both
  Linear<T> output;
  std::optional<T> rope_factors;  ///< f32[rotated / 2]
  TENON_FIELDS(query_down, query_norm, query, latent, latent_norm, key_up, value_up, expansion,
               output, rope_factors, heads, rank, plain, rotated, options, rope)

  std::int64_t heads = 1;
  std::int64_t rank = 1;
  std::int64_t plain = 1;    ///< numbers of a head's query that are not rotated
  std::int64_t rotated = 2;  ///< and those that are
  Attention options;         ///< scale: not 0
  Rope rope;

  struct Cached {
    Tensor y;
    KvCache<Tensor> cache;
  };

  /// As MultiHeadAttention's; the cache has one head, of keys of rank + rotated numbers and values
  /// of `rank`, or with `expansion` all heads.
  Cached forward(const Tensor& x, const Position& position, const Tensor& layer,
                 const KvCache<Tensor>& cache,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [q, k, v] = project(x, position.positions, where);
    const auto [mixed, next] = attend(q, k, v, position, layer, cache, where);
    return {results(mixed, where), next};
  }

  /// The same where each row of x has a cache of its own; position.past is i32[B].
  CachedRows forward(const Tensor& x, const Position& position, const Tensor& layer,
                     const std::vector<KvCache<Tensor>>& caches,
                     const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Projected made = project(x, position.positions, where);
    const auto attend_row = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                                const Position& at, const KvCache<Tensor>& cache) {
      return attend(q, k, v, at, layer, cache, where);
    };
    const auto [mixed, next] =
        detail::attend_rows(made.q, made.k, made.v, position, caches, attend_row, where);
    return {results(mixed, where), next};
  }

  /// Within x [B, S, width] at these positions (i32 [S] or [B, S]).
  Tensor forward(const Tensor& x, const Tensor& positions,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [q, k, v] = project(x, positions, where);
    return results(tenon::attention(q, k, v, options, {}, {}, {}, {}, where), where);
  }

 private:
  struct Projected {
    // [B, S, heads, rank + rotated], [B, S, 1, rank + rotated] and [B, S, 1, rank], or with `expansion` [B, S, heads, ...]
    Tensor q, k, v;
  };
  Projected project(const Tensor& x, const Tensor& positions,
                    const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    Tensor low = query_down ? query_down->forward(x, where) : x;
    if (query_norm) low = query_norm->forward(low, where);
    const Tensor q = split_axis(query.forward(low, where), -1, {heads, plain + rotated}, where);
    const Tensor unturned = slice(q, -1, 0, plain, 1, where);
    const Tensor factors = rope_factors.value_or(Tensor());
    const Tensor turned =
        tenon::rope(slice(q, -1, plain, to_end, 1, where), positions, rope, factors, where);
    const Tensor both = unsqueeze(latent.forward(x, where), 2, {}, where);
    const Tensor v = latent_norm.forward(slice(both, -1, 0, rank, 1, where), where);
    const Tensor shared =
        tenon::rope(slice(both, -1, rank, to_end, 1, where), positions, rope, factors, where);
    if (expansion) {
      const std::int64_t value = expansion->weight.dim(0, where) / heads - plain;
      const Tensor all = split_axis(expansion->forward(squeeze(v, 2, where), where), -1,
                                    {heads, plain + value}, where);
      const Tensor of_all =
          broadcast_to(shared, {shared.dim(0, where), shared.dim(1, where), heads, rotated}, where);
      return {concat({unturned, turned}, -1, where),
              concat({slice(all, -1, 0, plain, 1, where), of_all}, -1, where),
              slice(all, -1, plain, to_end, 1, where)};
    }
    return {concat({by_head(unturned, *key_up, where), turned}, -1, where),
            concat({v, shared}, -1, where), v};
  }

  detail::Attended attend(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Position& position, const Tensor& layer,
                          const KvCache<Tensor>& cache, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const KvCache<Tensor> next{cache_update(cache.keys, layer, k, position.past, {}, where),
                               cache_update(cache.values, layer, v, position.past, {}, where)};
    const Tensor keys = permute(select(next.keys, layer, where), {0, 2, 1, 3}, where);
    const Tensor values = permute(select(next.values, layer, where), {0, 2, 1, 3}, where);
    return {tenon::attention(q, keys, values, options, position.past, {}, {}, {}, where), next};
  }

  /// x [B, S, heads, in] by each head's own weight, [heads, out, in].
  Tensor by_head(const Tensor& x, const T& weight, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor index = broadcast_to(iota(heads, i32, 0, 1, where),
                                      {x.dim(0, where), x.dim(1, where), heads}, where);
    return grouped_linear(x, weight, index, {}, where);
  }

  /// y from what the heads have mixed, [B, S, heads, rank or value].
  Tensor results(const Tensor& mixed, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor values = expansion ? mixed : by_head(mixed, *value_up, where);
    return output.forward(merge_axes(values, 2, 3, {}, where), where);
  }
};

}  // namespace tenon::nn
