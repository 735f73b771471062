#pragma once

#include <tenon/fields.hpp>
#include <tenon/nn/kv_cache.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/attention_mask.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/weights_view.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::nn {

/// Positions of the queries: needed by rotary embeddings and KV caches.
struct Position {
  Tensor past;       ///< i32[], or i32[B] where rows differ: number of earlier keys
  Tensor positions;  ///< i32[S] or i32[B, S]: past, past + 1, ...; what `rope` takes

  /// Of `steps` queries behind `past` keys.
  static Position after(const Tensor& past, std::int64_t steps,
                        const std::source_location& where = std::source_location::current()) {
    return numbered(past, iota(steps, i32, 0, 1, where), where);
  }
  /// Of as many queries as an axis of x has, such as x [B, S, width], where S may be a symbol.
  static Position after(const Tensor& past, const Tensor& x, const AxisRef& axis = 1,
                        const std::source_location& where = std::source_location::current()) {
    return numbered(past, iota(x, axis, i32, 0, 1, where), where);
  }

  /// Of one of the rows, where they differ: i32[1] and i32[1, S].
  Position row(std::int64_t index,
               const std::source_location& where = std::source_location::current()) const {
    return {slice(past, 0, index, index + 1, 1, where),
            slice(positions, 0, index, index + 1, 1, where)};
  }

 private:
  static Position numbered(const Tensor& past, const Tensor& steps,
                           const std::source_location& where) {
    const Tensor first = past.rank() == 0 ? past : unsqueeze(past.with_tags({}), 1, {}, where);
    return {past, add(steps.with_tags({}), first, where)};
  }
};

namespace detail {

/// rows / by. Errc::shape_mismatch, naming the weight, where that is no whole number above 0.
std::int64_t part_of_rows(std::int64_t rows, std::int64_t by, const WeightsView& layer,
                          const std::source_location& where);

/// What heads have mixed, [B, S, heads, size], and the cache with the keys and values of the same positions.
struct Attended {
  Tensor mixed;
  KvCache<Tensor> cache;
};
struct AttendedRows {
  Tensor mixed;
  std::vector<KvCache<Tensor>> caches;
};

/// Attention of rows that have a cache each: attend(q, k, v, position, cache) gives what one of them mixes, [1, S, heads,
/// size]. Where it needs no keys and values, k and v may be empty.
template <class Attend>
AttendedRows attend_rows(const Tensor& q, const Tensor& k, const Tensor& v,
                         const Position& position, const std::vector<KvCache<Tensor>>& caches,
                         const Attend& attend, const std::source_location& where) {
  std::vector<Tensor> mixed;
  AttendedRows rows;
  for (const KvCache<Tensor>& cache : caches) {
    const auto row = static_cast<std::int64_t>(mixed.size());
    const auto of_row = [&](const Tensor& x) {
      return x.is_empty() ? x : slice(x, 0, row, row + 1, 1, where);
    };
    const Attended own = attend(of_row(q), of_row(k), of_row(v), position.row(row, where), cache);
    mixed.push_back(own.mixed);
    rows.caches.push_back(own.cache);
  }
  rows.mixed = concat(mixed, 0, where);
  return rows;
}

}  // namespace detail

/// Results of rows that have a cache each, [B, S, width].
struct CachedRows {
  Tensor y;
  std::vector<KvCache<Tensor>> caches;
};

/// Names of an attention's parts below its view, by default those of Hugging Face's Llama, Qwen and Gemma. Of the norms a
/// file may have none.
struct AttentionNames {
  std::string_view query = "q_proj";
  std::string_view key = "k_proj";
  std::string_view value = "v_proj";
  std::string_view output = "o_proj";
  std::string_view query_norm = "q_norm";
  std::string_view key_norm = "k_norm";
};

/// What multiplies queries far into a text, at position p: 1 + scale log(1 + floor((p + offset) / length)). As Llama 4 and
/// Ministral 3 have it (Nakanishi, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399).
struct AttentionTemperature {
  double scale = 0;  ///< 0: 1 at all positions
  std::int64_t length = 1;
  std::int64_t offset = 0;
};

/// Multi-head attention with projections, grouped key-value heads, optional normalisation of
/// queries and keys, and optional rotary embedding.
template <class T = Tensor>
struct MultiHeadAttention {
  Linear<T> query;
  std::optional<Linear<T>> key;  ///< none: another layer's keys and values serve
  std::optional<Linear<T>>
      value;  ///< none: values are what `key` gives, before its norm and rotation
  Linear<T> output;
  std::optional<RmsNorm<T>> query_norm;  ///< of each head, or of all heads as one (by its size)
  std::optional<RmsNorm<T>> key_norm;
  /// Norms with mean in place of those: of each head with weights of its own, [heads, head_dim] without bias, or of all
  /// heads as one, [heads * head_dim].
  std::optional<LayerNorm<T>> query_layer_norm;
  std::optional<LayerNorm<T>> key_layer_norm;
  std::optional<T> rope_factors;  ///< f32[head_dim / 2]
  std::optional<T> sinks;         ///< f32[heads], see `attention`
  TENON_FIELDS(query, key, value, output, query_norm, key_norm, query_layer_norm, key_layer_norm,
               rope_factors, sinks, heads, kv_heads, head_dim, options, rope, has_rotated_norms,
               rotated_eps, value_eps, temperature, chunk, shared_layer, max_alibi_bias, clip,
               has_gate)

  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  Attention options;  ///< causal, window, scale, softcap
  std::optional<Rope> rope;
  bool has_rotated_norms = false;  ///< query_norm and key_norm are of heads, behind their rotation
  /// Of norms without weights: of the rotated queries and keys (Llama 4), and of the values (Gemma 3n and 4); 0: there is
  /// none.
  double rotated_eps = 0;
  double value_eps = 0;
  AttentionTemperature temperature;
  /// Positions are in chunks of so many, and a query sees the keys of its own only (Llama 4); 0: of all. Where there are
  /// positions.
  std::int64_t chunk = 0;
  /// Where there is a cache: the index in it of the keys and values that are attended to, in place of this layer's own
  /// (Gemma 3n and 4).
  std::optional<std::int64_t> shared_layer;
  /// Of ALiBi's slopes, see alibi_slopes; 0: no ALiBi. Where there is a cache, of causal attention only.
  double max_alibi_bias = 0;
  /// Queries, keys and values are clamped to [-clip, clip] (MPT); 0: they are not.
  double clip = 0;
  /// `query` gives each head's queries and behind them as many numbers, whose sigmoid multiplies what the head has mixed.
  bool has_gate = false;

  /// Declares the projections below `view`, and the norms that are there. A head's size is that of the queries by `heads`,
  /// and the keys' tells the number of key-value heads; Errc::shape_mismatch where they do not divide. Options and rotary
  /// embedding are the caller's to set.
  static MultiHeadAttention init(
      const WeightsView& view, std::int64_t heads, const AttentionNames& names = {},
      double norm_eps = 1e-6, const std::source_location& where = std::source_location::current()) {
    MultiHeadAttention made;
    made.query = Linear<T>::init(view[names.query], where);
    made.key = Linear<T>::init(view[names.key], where);
    made.value = Linear<T>::init(view[names.value], where);
    made.output = Linear<T>::init(view[names.output], where);
    for (auto [name, norm] : {std::pair(names.query_norm, &made.query_norm),
                              std::pair(names.key_norm, &made.key_norm)}) {
      if (view[name].contains("weight")) *norm = RmsNorm<T>::init(view[name], norm_eps, where);
    }
    made.heads = heads;
    made.head_dim =
        detail::part_of_rows(made.query.weight.dim(0, where), heads, view[names.query], where);
    made.kv_heads =
        detail::part_of_rows(made.key->weight.dim(0, where), made.head_dim, view[names.key], where);
    return made;
  }

  struct Cached {
    Tensor y;
    KvCache<Tensor> cache;
  };

  /// Self-attention over x [B, S, width] and the keys and values that the cache has at `layer`
  /// (i64[]); appends those of x, each row's behind its own past, unless it shares another layer's. -> y [B, S, width].
  Cached forward(const Tensor& x, const Position& position, const Tensor& layer,
                 const KvCache<Tensor>& cache,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [q, k, v, gate] = project(x, position.positions, where);
    const auto [mixed, next] = attend(q, k, v, position, layer, cache, where);
    return {finish(mixed, gate, where), next};
  }

  /// The same where each row of x has a cache of its own, [layers, 1, kv_heads, capacity, ...]; position.past is i32[B].
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
    return {finish(mixed, made.gate, where), next};
  }

  /// Self-attention within x [B, S, width]; `mask` (may be empty) is added to the scores and
  /// broadcasts to [B, heads, S, S].
  Tensor forward(const Tensor& x, const Tensor& mask,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return forward(x, x, x, mask, where);
  }

  /// Attention of x [B, S, width] to keys and values made of others, [B, T, width of theirs], such as an encoder's results;
  /// `mask` (may be empty) broadcasts to [B, heads, S, T]. There is no rotary embedding: the keys have no positions.
  Tensor forward(const Tensor& x, const Tensor& keys, const Tensor& values, const Tensor& mask,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [q, gate] = queries(x, where);
    return mix(q, keys_of(keys, where), values_of(values, where), mask, gate, where);
  }

  /// The same for x at these positions (i32 [S] or [B, S]), which a rotary embedding takes.
  Tensor forward(const Tensor& x, const Tensor& positions, const Tensor& mask,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const auto [q, k, v, gate] = project(x, positions, where);
    return mix(q, k, v, with_chunks(mask, positions, k, where), gate, where);
  }

 private:
  struct Projected {
    Tensor q;     // [B, S, heads, head_dim]
    Tensor k, v;  // [B, S, kv_heads, head_dim]; empty where another layer's serve
    Tensor gate;  // as q; empty without one
  };
  struct Queries {
    Tensor q, gate;
  };
  Queries queries(const Tensor& x, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor all = clipped(query.forward(x, where), where);
    if (!has_gate) return {heads_of(all, heads, query_norm, query_layer_norm, where), {}};
    const Tensor split = split_axis(all, -1, {heads, 2 * head_dim}, where);
    const Tensor q = slice(split, -1, 0, head_dim, 1, where);
    return {query_norm ? query_norm->forward(q, where) : q,
            slice(split, -1, head_dim, to_end, 1, where)};
  }
  Tensor keys_of(const Tensor& x, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return heads_of(clipped(key->forward(x, where), where), kv_heads, key_norm, key_layer_norm,
                    where);
  }
  Tensor values_of(const Tensor& x, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor all = (value ? *value : *key).forward(x, where);
    const Tensor v = split_axis(clipped(all, where), -1, {kv_heads, head_dim}, where);
    return value_eps == 0 ? v : rms_norm(v, value_eps, where);
  }

  Projected project(const Tensor& x, const Tensor& positions,
                    const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    auto [q, gate] = queries(x, where);
    Tensor k, v;
    if (!shared_layer) {
      k = keys_of(x, where);
      v = values_of(x, where);
    }
    q = placed(q, positions, query_norm, where);
    if (!shared_layer) k = placed(k, positions, key_norm, where);
    if (temperature.scale != 0) q = mul(q, growth_at(positions, where), where);
    return {q, k, v, gate};
  }

  /// Appends keys and values to a layer of the cache, and attends to all that it has.
  detail::Attended attend(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Position& position, const Tensor& layer,
                          const KvCache<Tensor>& cache, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    KvCache<Tensor> next = cache;
    if (!shared_layer) {
      next = {cache_update(cache.keys, layer, k, position.past, {}, where),
              cache_update(cache.values, layer, v, position.past, {}, where)};
    }
    // [batch, kv_heads, capacity, head_dim] of the layer, seen as [batch, capacity, kv_heads, ...].
    const auto of_layer = [&, &shared = shared_layer](const Tensor& all) {
      const Tensor one = shared ? squeeze(slice(all, 0, *shared, *shared + 1, 1, where), 0, where)
                                : select(all, layer, where);
      return permute(one, {0, 2, 1, 3}, where);
    };
    const Tensor keys = of_layer(next.keys);
    const Tensor values = of_layer(next.values);
    Tensor biases;
    if (max_alibi_bias != 0) {
      const Tensor last = squeeze(slice(position.positions, -1, -1, to_end, 1, where), -1, where);
      biases = last_biases(keys.dim(1, where), last, where);
    }
    biases = with_chunks(biases, position.positions, keys, where);
    return {tenon::attention(q, keys, values, options, position.past, biases,
                             sinks.value_or(Tensor()), {}, where),
            next};
  }

  /// Queries or keys [B, S, count, head_dim], rotated by their positions and normalised behind that.
  Tensor placed(const Tensor& x, const Tensor& positions, const std::optional<RmsNorm<T>>& norm,
                const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    Tensor turned = x;
    if (rope) {
      turned = tenon::rope(x, positions, *rope, rope_factors.value_or(Tensor()), where);
    }
    if (has_rotated_norms) return norm->forward(turned, where);
    return rotated_eps == 0 ? turned : rms_norm(turned, rotated_eps, where);
  }

  /// `mask`, which may be empty, and -inf where a query at one of `positions` [S] or [B, S] stands in another chunk than a
  /// key; keys [B, T, ...] stand at 0, 1, ...
  Tensor with_chunks(const Tensor& mask, const Tensor& positions, const Tensor& keys,
                     const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t count = chunk == 0 ? 0 : keys.dim(1, where);
    if (chunk == 0 || (is_static(count) && count <= chunk)) return mask;
    const auto chunk_of = [&](const Tensor& at) {
      const Tensor place = cast(at.with_tags({}), f32, where);
      return floor(div(place, scalar_like(place, static_cast<double>(chunk), where), where), where);
    };
    const Tensor own = unsqueeze(chunk_of(positions), -1, {}, where);  // [..., S, 1]
    const Tensor others = chunk_of(iota(keys, 1, i32, 0, 1, where));   // [T]
    const Tensor is_other = ne(own, others, where);
    const Tensor zero = scalar_like(own, 0, where);
    const Tensor hidden = scalar_like(own, -std::numeric_limits<double>::infinity(), where);
    Tensor hiding = tenon::where(is_other, hidden, zero, where);
    if (positions.rank() == 2) hiding = unsqueeze(hiding, 1, {}, where);
    return mask.is_empty() ? hiding : add(mask, hiding, where);
  }

  /// The factors of queries at positions [S] or [B, S], [..., S, 1, 1].
  Tensor growth_at(const Tensor& positions, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    Tensor place = cast(positions, f32, where);
    const auto number = [&](double x) { return scalar_like(place, x, where); };
    if (temperature.offset != 0) {
      place = add(place, number(static_cast<double>(temperature.offset)), where);
    }
    const Tensor spans =
        floor(div(place, number(static_cast<double>(temperature.length)), where), where);
    const Tensor growth =
        add(mul(log1p(spans, where), number(temperature.scale), where), number(1), where);
    return unsqueeze(unsqueeze(growth, -1, {}, where), -1, {}, where);
  }

  Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
             const Tensor& gate, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    Tensor biases = mask;
    if (max_alibi_bias != 0) {
      const std::int64_t keys = k.dim(1, where);
      const Tensor alibi = options.causal ? last_biases(keys, {}, where)
                                          : alibi_mask(alibi_slopes(heads, max_alibi_bias, where),
                                                       q.dim(1, where), keys, {}, where);
      biases = mask.is_empty() ? alibi : add(mask, alibi, where);
    }
    const Tensor mixed =
        tenon::attention(q, k, v, options, Tensor(), biases, sinks.value_or(Tensor()), {}, where);
    return finish(mixed, gate, where);
  }

  /// ALiBi's biases of the scores of the last query, [heads, 1, keys] or of each row, which stands at `position` (empty: at
  /// the last key). They serve all causal queries: those of another differ by one number, which a softmax does not see.
  Tensor last_biases(std::int64_t keys, const Tensor& position,
                     const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return alibi_mask(alibi_slopes(heads, max_alibi_bias, where), 1, keys, position, where);
  }

  Tensor clipped(const Tensor& x, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return clip == 0 ? x : clamp(x, -clip, clip, where);
  }

  /// `mixed` [B, S, heads, head_dim].
  Tensor finish(const Tensor& mixed, const Tensor& gate, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    const Tensor open = gate.is_empty() ? mixed : mul(mixed, sigmoid(gate, where), where);
    return output.forward(merge_axes(open, 2, 3, {}, where), where);
  }

  /// x [B, S, count * head_dim] as heads, normalised where there is a norm before the rotation.
  Tensor heads_of(const Tensor& x, std::int64_t count, const std::optional<RmsNorm<T>>& norm,
                  const std::optional<LayerNorm<T>>& mean_norm,
                  const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    if (has_rotated_norms) return split_axis(x, -1, {count, head_dim}, where);
    const bool is_of_head = norm && norm->weight.dim(-1, where) == head_dim;
    const bool has_whole_mean = mean_norm && mean_norm->weight.rank() == 1;
    const Tensor whole = has_whole_mean        ? mean_norm->forward(x, where)
                         : norm && !is_of_head ? norm->forward(x, where)
                                               : x;
    const Tensor split = split_axis(whole, -1, {count, head_dim}, where);
    if (mean_norm && !has_whole_mean) {
      return mul(layer_norm(split, mean_norm->eps, where), mean_norm->weight, where);
    }
    return is_of_head ? norm->forward(split, where) : split;
  }
};

}  // namespace tenon::nn
