#pragma once

#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/io/file.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tenon::models {

/// Sizes of multi-head latent attention.
struct LatentSizes {
  std::int64_t rank = 0;     ///< of the latent vectors
  std::int64_t plain = 0;    ///< numbers of a query or key that are not rotated
  std::int64_t rotated = 0;  ///< and those that are
  bool is_expanded = false;  ///< see nn::LatentAttention::expansion
};

/// Sizes of Mamba layers, see nn::Mamba, or of nn::GatedDeltaNet.
struct MambaSizes {
  std::int64_t taps = 0, inner = 0, states = 0;
  std::int64_t heads = 0;  ///< 0: Mamba
  std::int64_t groups = 1;
  bool has_normed_parameters = false;
  bool is_delta_net = false;

  std::int64_t convolved() const noexcept {
    return heads == 0 ? inner : inner + 2 * groups * states;
  }
};

/// Sizes of Gemma 3n's layers, see nn::AltUp.
struct AltUpSizes {
  std::int64_t streams = 4;
  std::int64_t active = 0;
};

/// Heads of a layer's keys and values, as the cache has them.
struct CachedHeads {
  std::int64_t heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  friend bool operator==(const CachedHeads&, const CachedHeads&) = default;
};

/// Where the part of a layer lies in a DecoderCache.
struct LayerPlace {
  std::int64_t layer = 0;
  std::int64_t stack = 0;  ///< number of its keys and values in DecoderCache::attention, and
  std::int64_t keys = 0;   ///< the index there; of a layer that attends
  std::int64_t state = 0;  ///< index among the states, of a layer that keeps one
};

/// Sizes of RWKV-6's or RWKV-7's layers.
struct RwkvSizes {
  std::int64_t head_size = 64;
  std::int64_t halved_every =
      0;  ///< what layer i gives is halved when (i + 1) % this == 0; 0: never
};

/// What a layer has in the place of attention.
enum class Mixing : std::uint8_t { attention, projection, none };

/// The parts of a layer of a model whose layers differ in them.
struct LayerParts {
  Mixing mixing = Mixing::attention;
  bool has_feed_forward = true;
};

/// How the positions of an image, of which each has three axes (time, row, column), turn queries and keys: see Rope::sections.
struct ImageAxes {
  IntList sections;
  bool is_interleaved = false;
};

/// Hyperparameters of a decoder-only language model, or of an encoder that is made of the same parts, from GGUF metadata.
struct DecoderConfig {
  std::string architecture;  ///< one of those that the README lists
  std::int64_t layers = 0;
  std::int64_t width = 0;              ///< of the residual stream
  std::int64_t intermediate_size = 0;  ///< width of the feed-forward part, if there are no experts
  std::int64_t experts = 0;            ///< in each layer; 0: the feed-forward part is one
  std::int64_t latent_experts = 0;  ///< width of what latent experts read and make; 0: the stream's
  std::int64_t dense_layers = 0;    ///< the first layers, which have no experts all the same
  /// By layer, whether it has experts; empty: all others have.
  std::vector<std::uint8_t> expert_layers;
  nn::RouterOptions router;  ///< where there are experts
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   ///< of queries and keys, as the cache has them
  std::int64_t value_dim = 0;  ///< of values there
  /// Of a model whose layers differ in them: key-value heads by layer, and the size of a head where
  /// there is a window; empty and 0: they do not.
  std::vector<std::int64_t> layer_kv_heads;
  std::int64_t local_head_dim = 0;
  /// Layers at the beginning that have keys and values; each other one attends to those of the last
  /// of these that has a window as it has, or none as it has none. 0: all have them.
  std::int64_t with_values = 0;
  std::int64_t layer_inputs = 0;  ///< numbers of each layer's own inputs, see nn::LayerInputs
  std::optional<LatentSizes>
      latent;  ///< where attention is latent; kv_heads is 1 then, unless it is expanded
  std::optional<MambaSizes> mamba;   ///< of a model with such layers
  std::optional<RwkvSizes> rwkv;     ///< the same
  std::optional<AltUpSizes> alt_up;  ///< the same
  /// By layer, see nn::FeedForward::cutoff, and nn::FeedForward::own_activation; empty: none has one.
  std::vector<std::optional<double>> cutoffs;
  std::vector<nn::Xielu> own_activations;
  std::int64_t short_conv_taps = 0;  ///< the same of nn::ShortConv; 0: none
  /// Of a model that has attention, too: by layer, whether it keeps states; empty: all do, or none.
  std::vector<std::uint8_t> state_layers;
  /// Layers that keep states have attention, too, and the results of both are added.
  bool has_parallel_states = false;
  /// Of a model whose layers are one part each: by layer, whether it is a feed-forward part; empty:
  /// layers have one behind another part.
  std::vector<std::uint8_t> feed_forward_layers;
  std::vector<LayerParts> parts;  ///< by layer; empty: all have both
  std::int64_t vocabulary = 0;    ///< rows of the embedding, including padding rows at the end
  std::int64_t tokens = 0;        ///< rows without padding: the size of the tokenizer's vocabulary
  std::int64_t context_length = 0;  ///< positions the model was trained for
  double norm_eps = 1e-5;
  bool has_mean_norms = false;  ///< norms subtract the mean (nn::LayerNorm)
  /// Queries, keys and values of a layer are one weight of the file, below each other; so are gate and up.
  bool has_fused_attention = false, has_fused_gate = false;
  bool is_parallel = false;  ///< the feed-forward part reads what attention reads, not its result
  /// No: all positions see each other, within a window on both sides where a layer has one. Such a model makes embeddings
  /// and no text.
  bool is_causal = true;
  Name activation = "silu";
  double embedding_scale = 1;    ///< multiplies the embeddings (Gemma: sqrt(width))
  double residual_scale = 1;     ///< multiplies what each part of a layer adds
  double logit_scale = 1;        ///< multiplies the logits
  double logit_softcap = 0;      ///< see Attention::softcap; 0: none
  double attention_scale = 0;    ///< 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  ///< of the scores; 0: none
  Rope rope;                     ///< of layers with full attention
  Rope local_rope;               ///< of layers with a sliding window
  bool has_rope = true;
  std::optional<ImageAxes> image_axes;  ///< of a model whose images have them (M-RoPE)
  /// Layers at the beginning to whose results an image's rows add something (DeepStack).
  std::int64_t image_layers = 0;
  nn::AttentionTemperature temperature;
  double max_alibi_bias = 0;         ///< see alibi_slopes; 0: no ALiBi
  std::int64_t attention_chunk = 0;  ///< of layers that have no full attention; 0: none
  double attention_clip = 0;         ///< limit of queries, keys and values; 0: none
  bool has_gated_attention = false;  ///< see nn::MultiHeadAttention
  /// Rotated queries and keys are normalised, without weights: nn::MultiHeadAttention::rotated_eps.
  bool has_rotated_unit_norms = false;
  std::int64_t unrotated_every =
      0;  ///< layer i has no rotary embedding when (i + 1) % this == 0; 0: all have one
  bool has_long_context = false;  ///< of LongRoPE's two sets of frequencies, the one for more
                                  ///< positions than rope.original_context
  std::int64_t window = 0;        ///< size of the sliding window; 0: none
  std::int64_t global_every =
      0;  ///< layer i has no window when (i + 1) % this == 0; 0: none has one
  /// By layer, whether it has one; empty: `global_every` tells.
  std::vector<std::uint8_t> local_layers;

  /// Numbers of a row of an image: its embedding, and behind it what is added to `image_layers`.
  std::int64_t image_row() const noexcept { return width * (1 + image_layers); }

  /// Layers, or some of them, keep states that only move on, not keys and values of every position.
  bool is_recurrent() const noexcept { return mamba || rwkv || short_conv_taps > 0; }
  bool has_attention() const noexcept {
    return !is_recurrent() || !state_layers.empty() || has_parallel_states;
  }
  bool keeps_state(std::int64_t layer) const noexcept {
    return is_recurrent() &&
           (state_layers.empty() || state_layers[static_cast<std::size_t>(layer)] != 0);
  }
  bool is_feed_forward(std::int64_t layer) const noexcept {
    return !feed_forward_layers.empty() &&
           feed_forward_layers[static_cast<std::size_t>(layer)] != 0;
  }
  Mixing mixing(std::int64_t layer) const noexcept {
    return parts.empty() ? Mixing::attention : parts[static_cast<std::size_t>(layer)].mixing;
  }
  bool attends(std::int64_t layer) const noexcept {
    return mixing(layer) == Mixing::attention &&
           (has_parallel_states || !(keeps_state(layer) || is_feed_forward(layer)));
  }
  bool is_local(std::int64_t layer) const noexcept {
    if (!local_layers.empty()) return local_layers[static_cast<std::size_t>(layer)] != 0;
    return (window > 0 || attention_chunk > 0) && global_every > 0 &&
           (layer + 1) % global_every != 0;
  }
  bool is_rotated(std::int64_t layer) const noexcept {
    return has_rope && (unrotated_every == 0 || (layer + 1) % unrotated_every != 0);
  }
  bool has_feed_forward(std::int64_t layer) const noexcept {
    return (intermediate_size > 0 || experts > 0) &&
           (parts.empty() || parts[static_cast<std::size_t>(layer)].has_feed_forward) &&
           (feed_forward_layers.empty() || is_feed_forward(layer));
  }
  bool has_experts(std::int64_t layer) const noexcept {
    return experts > 0 && layer >= dense_layers &&
           (expert_layers.empty() || expert_layers[static_cast<std::size_t>(layer)] != 0);
  }

  /// The layer whose keys and values this one attends to; -1: there is none.
  std::int64_t layer_of_values(std::int64_t layer) const noexcept;
  /// Whether the cache has keys and values of its own for it.
  bool has_values(std::int64_t layer) const noexcept;
  /// Of the keys and values that a layer has.
  CachedHeads cached_heads(std::int64_t layer) const noexcept;
  /// The kinds of heads of keys and values that layers have, in the order of the first layers that have them: one stack of
  /// the cache for each.
  std::vector<CachedHeads> stacks() const;
  LayerPlace place(std::int64_t layer) const;

  /// Errors: unsupported (another architecture or rope scaling), bad_hyperparameter naming the key,
  /// its value and what is allowed.
  static DecoderConfig from(const io::File& file);
};

/// Whether the converter of such files brought the rows of queries and keys into the order of an
/// interleaved rotation, so that they are not in that of Hugging Face's weights.
bool has_reordered_heads(const DecoderConfig& config);

/// A norm of the root mean square, or of mean and variance; without either's weights one of mean and variance (OLMo).
template <class T = Tensor>
struct DecoderNorm {
  std::optional<nn::RmsNorm<T>> rms;
  std::optional<nn::LayerNorm<T>> layer;
  double eps = 0;  ///< of the norm without weights
  TENON_FIELDS(rms, layer, eps)

  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    if (rms) return rms->forward(x);
    return layer ? layer->forward(x) : layer_norm(x, eps);
  }
};

/// Experts beside a dense feed-forward part, whose results are added (Gemma 4). Norms are before and
/// behind each; the router reads what comes from neither, normalised by itself.
template <class T = Tensor>
struct SideExperts {
  nn::MixtureOfExperts<T> experts;
  nn::RmsNorm<T> router_norm;  ///< divided by the root of the width, too
  nn::RmsNorm<T> first_norm;
  nn::RmsNorm<T> last_norm;
  nn::RmsNorm<T> dense_last_norm;  ///< behind the dense part
  TENON_FIELDS(experts, router_norm, first_norm, last_norm, dense_last_norm)

  /// Of x [B, S, width] and what the dense part made of it: [B, S, width].
  Tensor forward(const Tensor& x, const Tensor& dense) const
    requires std::same_as<T, Tensor>
  {
    const double shrink = 1 / std::sqrt(static_cast<double>(x.dim(-1)));
    const Tensor chosen = experts.forward(first_norm.forward(x), router_norm.forward(x) * shrink);
    return dense_last_norm.forward(dense) + last_norm.forward(chosen);
  }
};

/// One layer: x + attention(norm(x)), then x + feed_forward(norm(x)). Where the file has norms
/// after the two parts (Gemma), they are applied before each sum; OLMo 2 has these only. Where
/// config.is_parallel, both parts read x: x + attention(norm(x)) + feed_forward(norm(x)), with one
/// norm for both or two. A layer has one kind of attention, in its place a part with a state, behind
/// which there may be no feed-forward part, or both, whose results are added (Falcon-H1). Layers of
/// Nemotron-H are one part each.
template <class T = Tensor>
struct DecoderLayer {
  std::optional<DecoderNorm<T>> attention_norm;
  std::optional<nn::MultiHeadAttention<T>> attention;
  std::optional<nn::LatentAttention<T>> latent_attention;
  std::optional<nn::Linear<T>> projection;  ///< in place of attention (Llama-Nemotron)
  std::optional<nn::Mamba<T>> mamba;
  std::optional<nn::GatedDeltaNet<T>> delta_net;
  std::optional<nn::ShortConv<T>> short_conv;
  std::optional<nn::Rwkv7Layer<T>> rwkv;   ///< the whole layer
  std::optional<nn::Rwkv6Layer<T>> rwkv6;  ///< the same
  std::optional<nn::AltUpLayer<T>> alt_up;
  std::optional<DecoderNorm<T>> post_attention_norm;
  std::optional<DecoderNorm<T>> feed_forward_norm;
  std::optional<nn::FeedForward<T>> feed_forward;
  std::optional<nn::MixtureOfExperts<T>> experts;  ///< in place of feed_forward
  std::optional<SideExperts<T>> side_experts;      ///< beside it
  std::optional<DecoderNorm<T>> post_feed_forward_norm;
  std::optional<nn::LayerInputGate<T>> input_gate;
  std::optional<T> output_scale;  ///< [1], of the layer's result
  TENON_FIELDS(attention_norm, attention, latent_attention, projection, mamba, delta_net,
               short_conv, rwkv, rwkv6, alt_up, post_attention_norm, feed_forward_norm,
               feed_forward, experts, side_experts, post_feed_forward_norm, input_gate,
               output_scale, place)

  LayerPlace place;

  static DecoderLayer init(const WeightsView& view, const DecoderConfig& config,
                           std::int64_t index);
};

/// What a decoder knows of earlier inputs: keys and values, the states of its layers, which begin
/// as zeros, or both. State: an input and a result of forward, updated in place where the caller
/// moves it in. There is room for those layers that have keys and values, or a state, and no others:
/// DecoderConfig::place() says where a layer has its own.
template <class T = Tensor>
struct DecoderCache {
  std::vector<nn::KvCache<T>> attention;  ///< one for each of DecoderConfig::stacks()
  std::optional<nn::MambaState<T>> mamba;
  std::optional<nn::RwkvState<T>> rwkv;
  std::optional<T> short_conv;  ///< [layers with it, batch, taps - 1, width]
  /// i32[], where images have positions of two axes: what is added to the number of a token for its position, 0 before the
  /// first image. An image takes fewer positions than it has rows: its longer side. The caller's to set behind an image.
  std::optional<T> shift;
  TENON_FIELDS(attention, mamba, rwkv, short_conv, shift)
};

/// Shapes of the cache for `batch` sequences of up to `capacity` positions; keys and values are of
/// `dtype`, states of f32.
DecoderCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                                std::int64_t batch = 1);

/// A decoder's inputs are ids (i32 [B, S]), past (i32[], the number of positions in the cache, or
/// i32[B], that of each row) and the cache. Rows of different lengths are padded at the end
/// (`next_rows`): the next call's past counts a row's own tokens only, so that what the padding
/// wrote is never seen (states stay what they were at a row's end). Its results are logits and the cache with this input's positions added.
template <class T = Tensor>
struct DecoderState {
  T logits;
  DecoderCache<T> cache;
  TENON_FIELDS(logits, cache)
};

/// The same with the most probable token in place of logits. `token`, i32 [B]: the lowest id among
/// equals; a logit that is NaN counts as the largest. `is_nan`, bool [B]: all logits are NaN,
/// because the hidden state is.
template <class T = Tensor>
struct DecoderChoice {
  T token, is_nan;
  DecoderCache<T> cache;
  TENON_FIELDS(token, is_nan, cache)
};

/// Of rows that have a cache each.
template <class T = Tensor>
struct DecoderStates {
  T logits;
  std::vector<DecoderCache<T>> caches;
  TENON_FIELDS(logits, caches)
};
template <class T = Tensor>
struct DecoderChoices {
  T token, is_nan;
  std::vector<DecoderCache<T>> caches;
  TENON_FIELDS(token, is_nan, caches)
};

/// The same with the probability of the most probable token, f32 [B]: NaN where a logit is.
template <class T = Tensor>
struct DecoderGuess {
  T token, probability;
  DecoderCache<T> cache;
  TENON_FIELDS(token, probability, cache)
};

/// The same with a token that is drawn. `is_known`, bool [B]: whether there was enough to draw it, or
/// it has to be drawn by sampled_again().
template <class T = Tensor>
struct DecoderSample {
  T token, is_known, logits;
  DecoderCache<T> cache;
  TENON_FIELDS(token, is_known, logits, cache)
};

template <class T = Tensor>
struct Decoder {
  nn::Embedding<T> tokens;
  std::optional<nn::Embedding<T>> positions;  ///< added to those of the tokens (GPT-2)
  std::optional<nn::LayerNorm<T>> embedding_norm;
  std::optional<nn::AltUp<T>> alt_up;
  std::optional<nn::LayerInputs<T>> layer_inputs;
  std::vector<DecoderLayer<T>> layers;
  DecoderNorm<T> norm;
  std::optional<nn::Linear<T>> head;  ///< none: tied to the embedding
  TENON_FIELDS(tokens, positions, embedding_norm, alt_up, layer_inputs, layers, norm, head, config)
  DecoderConfig config;

  /// Declares the weights by their GGUF names.
  static Decoder init(const WeightsView& view, const DecoderConfig& config);

  /// Logits of the last position: f32 [B, vocabulary].
  DecoderState<Tensor> next(const Tensor& ids, const Tensor& past,
                            const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache});
    return {logits(norm.forward(last(x))), updated.front()};
  }

  /// The same of rows that stand in the place of embedded tokens, such as those of an image: f32 [B, S, width], as the first
  /// layer reads them (config.embedding_scale is not applied; position embeddings are added). Errc::unsupported where
  /// layers have inputs of their own, which are looked up by token (gemma3n and some sizes of gemma4).
  DecoderState<Tensor> next_of_rows(const Tensor& rows, const Tensor& past,
                                    const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    if (layer_inputs) {
      throw Error(Errc::unsupported, config.architecture,
                  "embeddings in the place of tokens: its layers look up inputs by token");
    }
    const nn::Position position = position_after(past, rows.dim(1), {cache});
    auto [x, unused, updated] =
        through_layers(placed(rows, position.positions), {}, position, {cache});
    return {logits(norm.forward(last(x))), updated.front()};
  }

  /// The same of rows of an image in a model that has config.image_axes: f32 [B, S, config.image_row()], which stand at
  /// `places`, i32 [3, S] (or [B, 3, S]): time, row and column. Errc::unsupported for other models.
  DecoderState<Tensor> next_of_image(const Tensor& rows, const Tensor& past,
                                     const DecoderCache<Tensor>& cache, const Tensor& places) const
    requires std::same_as<T, Tensor>
  {
    if (!config.image_axes) {
      throw Error(Errc::unsupported, config.architecture, "images with positions of two axes");
    }
    Decoder turning = *this;
    for (DecoderLayer<Tensor>& layer : turning.layers) {
      if (!layer.attention || !layer.attention->rope) continue;
      layer.attention->rope->sections = config.image_axes->sections;
      layer.attention->rope->sections_interleaved = config.image_axes->is_interleaved;
    }
    Tensor added;  // [image_layers, B, S, width]
    if (config.image_layers > 0) {
      const Tensor behind = slice(rows, -1, config.width, to_end);
      added = permute(split_axis(behind, -1, {config.image_layers, config.width}), {2, 0, 1, 3});
    }
    auto [x, unused, updated] = turning.through_layers(slice(rows, -1, 0, config.width), {},
                                                       {past, places}, {cache}, {}, added);
    return {logits(norm.forward(last(x))), updated.front()};
  }

  /// The same where rows end at positions of their own: `ends`, i32 [B], is the index in S of each
  /// row's last token.
  DecoderState<Tensor> next_rows(const Tensor& ids, const Tensor& past, const Tensor& ends,
                                 const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache}, ends.with_tags({}) + 1);
    const Tensor index = split_axis(ends.with_tags({}), 0, {ends.dim(0), 1, 1});
    const Tensor ended =
        take_along(x, broadcast_to(index, {ends.dim(0), 1, x.dim(2)}), 1);  // [B, 1, width]
    return {logits(norm.forward(squeeze(ended, 1))), updated.front()};
  }

  /// The same where each row has a cache of its own, of one row: past is i32 [B].
  DecoderStates<Tensor> next_each(const Tensor& ids, const Tensor& past,
                                  const std::vector<DecoderCache<Tensor>>& caches) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, caches);
    return {logits(norm.forward(last(x))), updated};
  }

  /// As greedy(), the same.
  DecoderChoices<Tensor> greedy_each(const Tensor& ids, const Tensor& past,
                                     const std::vector<DecoderCache<Tensor>>& caches) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, caches);
    const Tensor normed = norm.forward(last(x));
    return {argmax(of_tokens(logits(normed))), any(is_nan(normed), {-1}), updated};
  }

  /// Greedy decoding: the most probable token after the last position, in [0, config.tokens).
  DecoderChoice<Tensor> greedy(const Tensor& ids, const Tensor& past,
                               const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache});
    const Tensor normed = norm.forward(last(x));
    return {argmax(of_tokens(logits(normed))), any(is_nan(normed), {-1}), updated.front()};
  }

  /// The same after every position: `token` and `is_nan` are [B, S].
  DecoderChoice<Tensor> all_greedy(const Tensor& ids, const Tensor& past,
                                   const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache});
    const Tensor normed = norm.forward(x);
    return {argmax(of_tokens(logits(normed))), any(is_nan(normed), {-1}), updated.front()};
  }

  /// The most probable token after the last position, and how probable it is.
  DecoderGuess<Tensor> guess(const Tensor& ids, const Tensor& past,
                             const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache});
    const Tensor all = of_tokens(logits(norm.forward(last(x))));
    return {argmax(all), exp(max(all, {-1}) - logsumexp(all, {-1})), updated.front()};
  }

  /// Draws the token after the last position, in [0, config.tokens), as nn::sample_token() does, with
  /// that position as counter; `past` is one number.
  DecoderSample<Tensor> sampled(const Tensor& ids, const Tensor& past,
                                const DecoderCache<Tensor>& cache,
                                const nn::SamplingInputs<Tensor>& options) const
    requires std::same_as<T, Tensor>
  {
    auto [all, updated] = next(ids, past, cache);
    const Tensor position = past + static_cast<double>(ids.dim(1));
    const auto [token, is_known] = nn::sample_token(of_tokens(all), position, options);
    return {token, is_known, all, updated};
  }

  /// Draws it of the logits, with the whole vocabulary put in order. `position`: one number.
  nn::SampledToken<Tensor> sampled_again(const Tensor& logits, const Tensor& position,
                                         const nn::SamplingInputs<Tensor>& options) const
    requires std::same_as<T, Tensor>
  {
    return nn::sample_token(of_tokens(logits), position, options, config.tokens);
  }

  /// Logits of every position: f32 [B, S, vocabulary].
  DecoderState<Tensor> all(const Tensor& ids, const Tensor& past,
                           const DecoderCache<Tensor>& cache) const
    requires std::same_as<T, Tensor>
  {
    auto [x, unused, updated] = hidden(ids, past, {cache});
    return {logits(norm.forward(x)), updated.front()};
  }

  /// Logits of every position of whole sequences [B, S], without a cache: f32 [B, S, vocabulary].
  /// For training, since it has a gradient, and for scoring. Errors: those of states().
  Tensor scores(const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    return logits(states(ids));
  }

  /// What logits are made of: the hidden states of every position, behind the last norm, f32 [B, S, width]. Sequences of
  /// different lengths are padded at the end; `mask`, f32 [B, S] with 1 for tokens and 0 for padding, may be empty where
  /// config.is_causal, since no token sees what follows it. Errc::unsupported where layers share keys and values (gemma3n and
  /// some sizes of gemma4).
  Tensor states(const Tensor& ids, const Tensor& mask = {}) const
    requires std::same_as<T, Tensor>
  {
    if (alt_up || config.with_values > 0) {
      throw Error(
          Errc::unsupported, config.architecture,
          "whole sequences without a cache of keys and values, as for scores and embeddings");
    }
    // Added to the attention's scores: 0 for tokens, a large negative number for padding.
    Tensor hide;
    if (!config.is_causal && !mask.is_empty()) {
      hide = unsqueeze(unsqueeze((mask - 1.0) * 1e9, 1), 1);
    }
    const Tensor place = iota(ids, 1, i32);
    const Tensor embedded = embed(ids, place);
    const Tensor own = layer_inputs ? layer_inputs->forward(ids, embedded) : Tensor();
    const Tensor x =
        repeat(layers, first_hidden(embedded, {}),
               [&](const DecoderLayer<Tensor>& layer, const Tensor& index, const Hidden& carry) {
                 if (layer.rwkv || layer.rwkv6) {
                   const auto next =
                       rwkv_step(layer, {carry.x, *carry.first_value, *first_states(ids).rwkv}, {});
                   return Hidden{next.x, next.first_value, {}};
                 }
                 const Tensor normed = before_attention(layer, carry.x);
                 Sum mixed;
                 const auto scan = [&](const auto& part) {
                   mixed.add(part.forward(normed, *first_states(ids).mamba).y);
                 };
                 if (layer.mamba) scan(*layer.mamba);
                 if (layer.delta_net) scan(*layer.delta_net);
                 if (layer.short_conv) {
                   mixed.add(layer.short_conv->forward(normed, *first_states(ids).short_conv).y);
                 }
                 if (layer.attention) mixed.add(layer.attention->forward(normed, place, hide));
                 if (layer.latent_attention) {
                   mixed.add(layer.latent_attention->forward(normed, place));
                 }
                 if (layer.projection) mixed.add(layer.projection->forward(normed));
                 const Tensor next = after_attention(layer, mixed.y, normed, carry.x);
                 return Hidden{after_layer(layer, next, own, index), {}, {}};
               })
            .x;
    return norm.forward(x);
  }

 private:
  using Cache = DecoderCache<Tensor>;
  using Caches = std::vector<Cache>;  ///< one of all rows, or one of each

  struct Hidden {
    Tensor x;
    std::optional<Tensor> first_value;  // of RWKV's first layer
    Caches caches;
    TENON_FIELDS(x, first_value, caches)
  };

  /// Indices of layers in the cache, made of the layers' own. Where one differs from that, all of its
  /// stack are the own index minus a number, so that layers still share a function; the numbers come from outside of it.
  class Places {
   public:
    Places(const std::vector<DecoderLayer<Tensor>>& layers, const DecoderConfig& config) {
      for (const DecoderLayer<Tensor>& layer : layers) {
        if (has_keys(layer)) shifts_[layer.place.stack].insert(keys_shift(layer));
        if (config.keeps_state(layer.place.layer)) shifts_[states].insert(state_shift(layer));
      }
      std::erase_if(shifts_, [](const auto& entry) { return entry.second == std::set{no_shift}; });
      for (const auto& [stack, shifts] : shifts_) {
        for (const std::int64_t shift : shifts) {
          if (numbers_.contains(shift)) continue;
          const Shape number(std::span<const Axis>(), i64);
          numbers_.emplace(shift, full(static_cast<double>(shift), number));
        }
      }
    }

    Tensor of_keys(const DecoderLayer<Tensor>& layer, const Tensor& index) const {
      return has_keys(layer) ? of(layer.place.stack, keys_shift(layer), index) : index;
    }
    Tensor of_state(const DecoderLayer<Tensor>& layer, const Tensor& index) const {
      return of(states, state_shift(layer), index);
    }

   private:
    static constexpr std::int64_t states = -1;  // in place of a stack's number
    static constexpr std::int64_t no_shift = 0;

    static bool has_keys(const DecoderLayer<Tensor>& layer) {
      return layer.latent_attention || (layer.attention && !layer.attention->shared_layer);
    }
    static std::int64_t keys_shift(const DecoderLayer<Tensor>& layer) {
      return layer.place.layer - layer.place.keys;
    }
    static std::int64_t state_shift(const DecoderLayer<Tensor>& layer) {
      return layer.place.layer - layer.place.state;
    }
    Tensor of(std::int64_t stack, std::int64_t shift, const Tensor& index) const {
      return shifts_.contains(stack) ? index - numbers_.at(shift) : index;
    }

    std::map<std::int64_t, std::set<std::int64_t>>
        shifts_;  // by stack; without those that have none
    std::map<std::int64_t, Tensor> numbers_;
  };

  /// Of the parts of a layer; empty without any.
  struct Sum {
    Tensor y;
    void add(const Tensor& part) { y = y.is_empty() ? part : y + part; }
  };

  /// Before the first layer, whose values nothing stands for yet. `x`: the embeddings.
  Hidden first_hidden(const Tensor& x, const Caches& caches) const
    requires std::same_as<T, Tensor>
  {
    return {alt_up ? alt_up->widened(x) : x, config.rwkv ? std::optional(x) : std::nullopt, caches};
  }

  /// `lengths`, i32 [B] or empty: of rows that are padded behind so many steps.
  Hidden hidden(const Tensor& ids, const Tensor& past, const Caches& caches,
                const Tensor& lengths = {}) const
    requires std::same_as<T, Tensor>
  {
    const nn::Position position = position_after(past, ids.dim(1), caches);
    const Tensor embedded = embed(ids, position.positions);
    const Tensor own = layer_inputs ? layer_inputs->forward(ids, embedded) : Tensor();
    return through_layers(embedded, own, position, caches, lengths);
  }

  static nn::Position position_after(const Tensor& past, std::int64_t steps, const Caches& caches)
    requires std::same_as<T, Tensor>
  {
    nn::Position position = nn::Position::after(past, steps);
    if (!caches.front().shift) return position;
    Tensor shift = *caches.front().shift;
    if (caches.size() > 1) {
      std::vector<Tensor> shifts;
      for (const DecoderCache<Tensor>& cache : caches) {
        shifts.push_back(split_axis(unsqueeze(*cache.shift, 0), 0, {1, 1}));
      }
      shift = concat(shifts, 0);
    }
    position.positions = position.positions + shift;
    return position;
  }

  /// `embedded` [B, S, width], at these positions; `own`: the layers' own inputs, empty without any; `added`: what is added
  /// to the results of the first layers, [layers, B, S, width] or empty.
  Hidden through_layers(const Tensor& embedded, const Tensor& own, const nn::Position& position,
                        const Caches& caches, const Tensor& lengths = {},
                        const Tensor& added = {}) const
    requires std::same_as<T, Tensor>
  {
    const Places places(layers, config);
    Caches carried = caches;
    for (DecoderCache<Tensor>& cache : carried) cache.shift.reset();  // no layer changes it
    Hidden result = repeat(
        layers, first_hidden(embedded, carried),
        [&](const DecoderLayer<Tensor>& layer, const Tensor& index, const Hidden& carry) {
          Hidden next = carry;
          if (layer.rwkv || layer.rwkv6) {
            const Tensor at = places.of_state(layer, index);
            const auto step = rwkv_step(
                layer, {carry.x, *carry.first_value, states_of(carry.caches, &Cache::rwkv, at)},
                lengths);
            put_states(next.caches, &Cache::rwkv, at, step.state);
            next.x = step.x;
            next.first_value = step.first_value;
            return next;
          }
          const auto& streams = layer.alt_up;
          const Tensor predicted = streams ? streams->predicted(carry.x) : Tensor();
          const Tensor x = streams ? streams->active_of(predicted) : carry.x;
          const Tensor normed = before_attention(layer, x);
          Sum mixed;
          const auto scan = [&](const auto& part, const auto states) {
            const Tensor at = places.of_state(layer, index);
            const auto step = part.forward(normed, states_of(carry.caches, states, at), lengths);
            put_states(next.caches, states, at, step.state);
            mixed.add(step.y);
          };
          const auto attend = [&](const auto& attention) {
            const auto stack = static_cast<std::size_t>(layer.place.stack);
            const Tensor at = places.of_keys(layer, index);
            if (carry.caches.size() == 1) {
              const auto step =
                  attention.forward(normed, position, at, carry.caches[0].attention[stack]);
              next.caches[0].attention[stack] = step.cache;
              mixed.add(step.y);
              return;
            }
            std::vector<nn::KvCache<Tensor>> rows;
            for (const Cache& cache : carry.caches) rows.push_back(cache.attention[stack]);
            const auto step = attention.forward(normed, position, at, rows);
            for (std::size_t i = 0; i < rows.size(); ++i) {
              next.caches[i].attention[stack] = step.caches[i];
            }
            mixed.add(step.y);
          };
          if (layer.mamba) scan(*layer.mamba, &Cache::mamba);
          if (layer.delta_net) scan(*layer.delta_net, &Cache::mamba);
          if (layer.short_conv) scan(*layer.short_conv, &Cache::short_conv);
          if (layer.attention) attend(*layer.attention);
          if (layer.latent_attention) attend(*layer.latent_attention);
          if (layer.projection) mixed.add(layer.projection->forward(normed));
          next.x = after_attention(layer, mixed.y, normed, x);
          next.x = streams ? streams->corrected(predicted, next.x, select(own, index))
                           : after_layer(layer, next.x, own, index);
          if (!added.is_empty() && layer.place.layer < config.image_layers) {
            next.x = next.x + select(added, index);
          }
          return next;
        });
    for (std::size_t i = 0; i < caches.size(); ++i) {
      result.caches[i].shift = caches[i].shift;
    }
    if (alt_up) result.x = alt_up->merged(result.x);
    return result;
  }

  static nn::RwkvStep rwkv_step(const DecoderLayer<Tensor>& layer, const nn::RwkvStep& in,
                                const Tensor& lengths)
    requires std::same_as<T, Tensor>
  {
    return layer.rwkv ? layer.rwkv->forward(in, lengths) : layer.rwkv6->forward(in, lengths);
  }

  /// A layer's states in all caches, row after row. `states`: which of a cache's.
  template <class States>
  static States states_of(const Caches& caches, std::optional<States> Cache::* states,
                          const Tensor& index)
    requires std::same_as<T, Tensor>
  {
    std::vector<std::vector<Tensor>> parts;  // by part, then by cache
    for (const Cache& cache : caches) {
      std::size_t part = 0;
      visit_fields(*(cache.*states), [&](const std::string&, const Tensor& all) {
        if (part == parts.size()) parts.emplace_back();
        parts[part++].push_back(select(all, index));
      });
    }
    States joined = *(caches.front().*states);
    std::size_t part = 0;
    visit_fields(joined, [&](const std::string&, Tensor& all) {
      const std::vector<Tensor>& rows = parts[part++];
      all = rows.size() == 1 ? rows.front() : concat(rows, 0);
    });
    return joined;
  }

  /// Puts a layer's states, row after row, into their caches.
  template <class States>
  static void put_states(Caches& caches, std::optional<States> Cache::* states, const Tensor& index,
                         const States& state)
    requires std::same_as<T, Tensor>
  {
    std::vector<Tensor> parts;
    visit_fields(state, [&](const std::string&, const Tensor& part) { parts.push_back(part); });
    for (std::size_t i = 0; i < caches.size(); ++i) {
      std::size_t part = 0;
      visit_fields(*(caches[i].*states), [&](const std::string&, Tensor& all) {
        const Tensor& rows = parts[part++];
        const auto row = static_cast<std::int64_t>(i);
        all = update_slice(all, index, caches.size() == 1 ? rows : slice(rows, 0, row, row + 1));
      });
    }
  }

  Tensor embed(const Tensor& ids, const Tensor& place) const
    requires std::same_as<T, Tensor>
  {
    return placed(scaled(tokens.forward(ids), config.embedding_scale), place);
  }

  /// Embeddings at these positions.
  Tensor placed(const Tensor& embedded, const Tensor& place) const
    requires std::same_as<T, Tensor>
  {
    const Tensor x = positions ? embedded + positions->forward(place) : embedded;
    return embedding_norm ? embedding_norm->forward(x) : x;
  }

  static Tensor scaled(const Tensor& x, double scale)
    requires std::same_as<T, Tensor>
  {
    return scale == 1 ? x : x * scale;
  }

  /// The zeros that a layer's states begin as, for rows of ids.
  DecoderCache<Tensor> first_states(const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    DecoderCache<Tensor> states;
    DecoderCache<Shape> shapes = cache_shape(config, 0, f32);
    shapes.shift.reset();  // whole sequences have no images
    transform_fields(shapes, states, [&](const std::string&, const Shape& shape, Tensor& to) {
      const Shape one = shape.without_axis(0);  // of one row
      std::vector<std::int64_t> dims(one.dims().begin(), one.dims().end());
      dims[0] = ids.dim(0);
      to = broadcast_to(full(0, one), std::span<const std::int64_t>(dims));
    });
    return states;
  }

  static Tensor before_attention(const DecoderLayer<Tensor>& layer, const Tensor& x)
    requires std::same_as<T, Tensor>
  {
    return layer.attention_norm ? layer.attention_norm->forward(x) : x;
  }

  /// The rest of a layer, whose attention made `mixed` of `normed`, which is before_attention(x);
  /// `mixed` is empty where the layer has a feed-forward part only.
  Tensor after_attention(const DecoderLayer<Tensor>& layer, Tensor mixed, const Tensor& normed,
                         const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    if (layer.post_attention_norm) mixed = layer.post_attention_norm->forward(mixed);
    Tensor middle = mixed.is_empty() ? x : scaled(mixed, config.residual_scale) + x;
    if (layer.alt_up) middle = layer.alt_up->joined(middle, normed);
    if (!layer.feed_forward && !layer.experts) return middle;
    Tensor in = config.is_parallel ? normed : middle;
    if (layer.feed_forward_norm) {
      in = layer.feed_forward_norm->forward(config.is_parallel ? x : middle);
    }
    Tensor fed = layer.experts ? layer.experts->forward(in) : layer.feed_forward->forward(in);
    if (layer.side_experts) fed = layer.side_experts->forward(middle, fed);
    if (layer.post_feed_forward_norm) fed = layer.post_feed_forward_norm->forward(fed);
    return scaled(fed, config.residual_scale) + middle;
  }

  /// The layer's result of x [B, S, width], what its parts made, and of all layers' inputs.
  static Tensor after_layer(const DecoderLayer<Tensor>& layer, Tensor x, const Tensor& own,
                            const Tensor& index)
    requires std::same_as<T, Tensor>
  {
    if (layer.input_gate) x = x + layer.input_gate->forward(x, select(own, index));
    return layer.output_scale ? x * *layer.output_scale : x;
  }

  /// Without the padding rows of the vocabulary.
  Tensor of_tokens(const Tensor& all) const
    requires std::same_as<T, Tensor>
  {
    return slice(all, -1, 0, config.tokens);
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
    const Tensor all = head ? head->forward(normed) : linear(normed, tokens.weight);
    const Tensor y = scaled(all, config.logit_scale);
    const double cap = config.logit_softcap;
    return cap == 0 ? y : tanh(y * (1 / cap)) * cap;
  }
};

template <>
DecoderLayer<Tensor> DecoderLayer<Tensor>::init(const WeightsView& view,
                                                const DecoderConfig& config, std::int64_t index);
template <>
Decoder<Tensor> Decoder<Tensor>::init(const WeightsView& view, const DecoderConfig& config);

}  // namespace tenon::models
