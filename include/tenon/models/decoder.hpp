#pragma once

#include <tenon/fields.hpp>
#include <tenon/io/file.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::models {

/// Sizes of multi-head latent attention.
struct LatentSizes {
  std::int64_t rank = 0;     ///< of the latent vectors
  std::int64_t plain = 0;    ///< numbers of a query or key that are not rotated
  std::int64_t rotated = 0;  ///< and those that are
};

/// Hyperparameters of a decoder-only transformer, from GGUF metadata.
struct DecoderConfig {
  std::string architecture;  ///< one of those that the README lists
  std::int64_t layers = 0;
  std::int64_t width = 0;              ///< of the residual stream
  std::int64_t intermediate_size = 0;  ///< width of the feed-forward part, if there are no experts
  std::int64_t experts = 0;            ///< in each layer; 0: the feed-forward part is one
  std::int64_t dense_layers = 0;       ///< the first layers, which have no experts all the same
  nn::RouterOptions router;            ///< where there are experts
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;          ///< of queries and keys, as the cache has them
  std::int64_t value_dim = 0;         ///< of values there
  std::optional<LatentSizes> latent;  ///< where attention is latent; kv_heads is 1 then
  std::int64_t vocabulary = 0;        ///< rows of the embedding, including padding rows at the end
  std::int64_t tokens = 0;  ///< rows without padding: the size of the tokenizer's vocabulary
  std::int64_t context_length = 0;  ///< positions the model was trained for
  double norm_eps = 1e-5;
  Name activation = "silu";
  double embedding_scale = 1;  ///< multiplies the embeddings (Gemma: sqrt(width))
  double attention_scale = 0;  ///< 0: 1 / sqrt(head_dim)
  Rope rope;                   ///< of layers with full attention
  Rope local_rope;             ///< of layers with a sliding window
  std::int64_t window = 0;     ///< size of the sliding window; 0: none
  std::int64_t global_every =
      0;  ///< layer i has no window when (i + 1) % this == 0; 0: none has one

  bool is_local(std::int64_t layer) const noexcept {
    return window > 0 && global_every > 0 && (layer + 1) % global_every != 0;
  }
  bool has_experts(std::int64_t layer) const noexcept {
    return experts > 0 && layer >= dense_layers;
  }

  /// Errors: unsupported (another architecture or rope scaling), bad_hyperparameter naming the key,
  /// its value and what is allowed.
  static DecoderConfig from(const io::File& file);
};

/// One layer: x + attention(norm(x)), then x + feed_forward(norm(x)). Where the file has norms
/// after the two parts (Gemma), they are applied before each sum. It has one kind of attention.
template <class T = Tensor>
struct DecoderLayer {
  nn::RmsNorm<T> attention_norm;
  std::optional<nn::MultiHeadAttention<T>> attention;
  std::optional<nn::LatentAttention<T>> latent_attention;
  std::optional<nn::RmsNorm<T>> post_attention_norm;
  nn::RmsNorm<T> feed_forward_norm;
  std::optional<nn::FeedForward<T>> feed_forward;
  std::optional<nn::MixtureOfExperts<T>> experts;  ///< in place of feed_forward
  std::optional<nn::RmsNorm<T>> post_feed_forward_norm;
  TENON_FIELDS(attention_norm, attention, latent_attention, post_attention_norm, feed_forward_norm,
               feed_forward, experts, post_feed_forward_norm)

  static DecoderLayer init(const WeightsView& view, const DecoderConfig& config,
                           std::int64_t index);
};

/// A decoder's inputs are ids (i32 [B, S]), past (i32[], the number of positions in the cache, or
/// i32[B], that of each row) and the cache. Rows of different lengths are padded at the end
/// (`next_rows`): the next call's past counts a row's own tokens only, so that what the padding
/// wrote is never seen. Its results are logits and the cache with this input's positions added.
template <class T = Tensor>
struct DecoderState {
  T logits;
  nn::KvCache<T> cache;
  TENON_FIELDS(logits, cache)
};

/// The same with the most probable token in place of logits. `token`, i32 [B]: the lowest id among
/// equals; a logit that is NaN counts as the largest. `is_nan`, bool [B]: all logits are NaN,
/// because the hidden state is.
template <class T = Tensor>
struct DecoderChoice {
  T token, is_nan;
  nn::KvCache<T> cache;
  TENON_FIELDS(token, is_nan, cache)
};

template <class T = Tensor>
struct Decoder {
  nn::Embedding<T> tokens;
  std::vector<DecoderLayer<T>> layers;
  nn::RmsNorm<T> norm;
  std::optional<nn::Linear<T>> head;  ///< none: tied to the embedding
  TENON_FIELDS(tokens, layers, norm, head)
  DecoderConfig config;

  /// Declares the weights by their GGUF names.
  static Decoder init(const WeightsView& view, const DecoderConfig& config);

  /// Logits of the last position: f32 [B, vocabulary].
  DecoderState<Tensor> next(const Tensor& ids, const Tensor& past,
                            const nn::KvCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, updated] = hidden(ids, past, cache);
    return {logits(norm.forward(last(x))), updated};
  }

  /// The same where rows end at positions of their own: `ends`, i32 [B], is the index in S of each
  /// row's last token.
  DecoderState<Tensor> next_rows(const Tensor& ids, const Tensor& past, const Tensor& ends,
                                 const nn::KvCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, updated] = hidden(ids, past, cache);
    const Tensor index = split_axis(ends.with_tags({}), 0, {ends.dim(0), 1, 1});
    const Tensor ended =
        take_along(x, broadcast_to(index, {ends.dim(0), 1, x.dim(2)}), 1);  // [B, 1, width]
    return {logits(norm.forward(squeeze(ended, 1))), updated};
  }

  /// Greedy decoding: the most probable token after the last position, in [0, config.tokens).
  DecoderChoice<Tensor> greedy(const Tensor& ids, const Tensor& past,
                               const nn::KvCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, updated] = hidden(ids, past, cache);
    const Tensor normed = norm.forward(last(x));
    const Tensor of_tokens = slice(logits(normed), -1, 0, config.tokens);
    return {argmax(of_tokens), any(is_nan(normed), {-1}), updated};
  }

  /// Logits of every position: f32 [B, S, vocabulary].
  DecoderState<Tensor> all(const Tensor& ids, const Tensor& past,
                           const nn::KvCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, updated] = hidden(ids, past, cache);
    return {logits(norm.forward(x)), updated};
  }

  /// Logits of every position of whole sequences [B, S], without a cache: f32 [B, S, vocabulary].
  /// For training, since it has a gradient, and for scoring.
  Tensor scores(const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    const Tensor positions = iota(ids, 1, i32);
    const Tensor x =
        repeat(layers, embed(ids),
               [&](const DecoderLayer<Tensor>& layer, const Tensor&, const Tensor& carry) {
                 const Tensor normed = layer.attention_norm.forward(carry);
                 const Tensor mixed = layer.attention
                                          ? layer.attention->forward(normed, positions, Tensor())
                                          : layer.latent_attention->forward(normed, positions);
                 return after_attention(layer, mixed, carry);
               });
    return logits(norm.forward(x));
  }

 private:
  struct Hidden {
    Tensor x;
    nn::KvCache<Tensor> cache;
    TENON_FIELDS(x, cache)
  };

  Hidden hidden(const Tensor& ids, const Tensor& past, const nn::KvCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    const nn::Position position = nn::Position::after(past, ids.dim(1));
    return repeat(layers, Hidden{embed(ids), cache},
                  [&](const DecoderLayer<Tensor>& layer, const Tensor& index, const Hidden& carry) {
                    const Tensor normed = layer.attention_norm.forward(carry.x);
                    const auto after = [&](const auto& attention) {
                      auto [mixed, next] = attention.forward(normed, position, index, carry.cache);
                      return Hidden{after_attention(layer, mixed, carry.x), next};
                    };
                    return layer.attention ? after(*layer.attention)
                                           : after(*layer.latent_attention);
                  });
  }

  Tensor embed(const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    const Tensor x = tokens.forward(ids);
    return config.embedding_scale == 1 ? x : x * config.embedding_scale;
  }

  /// The rest of a layer, whose attention made `mixed` of `x`.
  static Tensor after_attention(const DecoderLayer<Tensor>& layer, Tensor mixed, const Tensor& x)
    requires std::same_as<T, Tensor>
  {
    if (layer.post_attention_norm) mixed = layer.post_attention_norm->forward(mixed);
    const Tensor middle = mixed + x;
    const Tensor normed = layer.feed_forward_norm.forward(middle);
    Tensor fed =
        layer.experts ? layer.experts->forward(normed) : layer.feed_forward->forward(normed);
    if (layer.post_feed_forward_norm) fed = layer.post_feed_forward_norm->forward(fed);
    return fed + middle;
  }

  /// x [B, S, width] at the last position: [B, width].
  static Tensor last(const Tensor& x)
    requires std::same_as<T, Tensor>
  {
    return squeeze(slice(x, 1, x.dim(1) - 1, x.dim(1)), 1);
  }

  Tensor logits(const Tensor& normed) const
    requires std::same_as<T, Tensor>
  {
    return head ? head->forward(normed) : linear(normed, tokens.weight);
  }
};

template <>
DecoderLayer<Tensor> DecoderLayer<Tensor>::init(const WeightsView& view,
                                                const DecoderConfig& config, std::int64_t index);
template <>
Decoder<Tensor> Decoder<Tensor>::init(const WeightsView& view, const DecoderConfig& config);

/// Shapes of the cache for `batch` sequences of up to `capacity` positions.
nn::KvCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                               std::int64_t batch = 1);

}  // namespace tenon::models
