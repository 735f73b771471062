// The architectures of language models, by the names that GGUF files have for them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::models {

struct DecoderReading;  // of decoder_families.hpp

/// What a file does not say follows from its architecture.
struct Architecture {
  /// Where a feed-forward part has the weight of its gate: for itself, above that of "ffn_up" in one tensor, or nowhere.
  enum class Gate : std::uint8_t { own, fused, none };
  /// How a model knows of positions: by a rotary embedding, embeddings that are added to those of tokens, linear biases of
  /// the scores (ALiBi), or not at all.
  enum class Positions : std::uint8_t { rotary, added, alibi, none };
  /// What attention keeps of a position: keys and values of heads, what both are projected from (multi-head latent
  /// attention), or, as in a file that says nothing of it, keys and values that are projected from that.
  enum class Heads : std::uint8_t { plain, latent, expanded };
  /// What "logit_scale" does to logits.
  enum class LogitScale : std::uint8_t { none, factor, divisor };
  /// Reads what architectures have of their own; see decoder_families.hpp.
  using Read = void (*)(const DecoderReading& from);
  /// What layers without keys and values keep: nn::Mamba, Mamba-2, nn::GatedDeltaNet, nn::ShortConv, nn::Rwkv6Layer or nn::Rwkv7Layer.
  enum class State : std::uint8_t { none, mamba, mamba2, delta_net, short_conv, rwkv6, rwkv7 };

  std::string_view name;
  /// Rows of queries and keys are stored in the order for interleaved rotation, which the model had
  /// (`is_interleaved`) or which its converter brought them into (`is_reordered`).
  bool is_interleaved = false;
  bool is_reordered = false;
  Positions positions = Positions::rotary;
  bool has_embedding_norm = false;
  bool has_mean_norms = false;
  bool has_bare_norms = false;       ///< without weights, of mean and variance
  bool has_first_norms = true;       ///< before each part of a layer
  bool has_last_norms = false;       ///< behind each part of a layer
  bool may_lack_first_norm = false;  ///< the first layer's: it reads normalised embeddings
  bool has_eps_of_rms = false;       ///< under "layer_norm_rms_epsilon", though norms are of means
  bool is_parallel = false;          ///< see DecoderConfig; where the file does not say it
  bool may_be_parallel = false;  ///< it is where layers have no norm before the feed-forward part

  // What files call norms: those of a layer's parts, and the last one of all.
  std::string_view feed_forward_norm = "ffn_norm";
  std::string_view last_attention_norm = "post_attention_norm";
  std::string_view last_feed_forward_norm = "post_ffw_norm";
  std::string_view other_last_feed_forward_norm =
      {};  ///< which some files have in the place of that
  std::string_view output_norm = "output_norm";
  std::string_view activation = "silu";
  Gate gate = Gate::own;
  std::string_view router_scores = "softmax";  ///< where the file has none
  bool has_normalized_router = true;
  bool has_weighted_expert_inputs = false;  ///< see nn::MixtureOfExperts
  /// Experts may stand beside a dense part, named as in layers without experts; the sum is divided
  /// by the root of 2.
  bool may_have_dense_part = false;
  bool has_side_experts = false;         ///< layers with experts have both, see SideExperts
  bool has_experts_by_router = false;    ///< only layers that have the weight of a router
  bool has_interleaved_experts = false;  ///< in the last one of every so many layers
  bool may_have_latent_experts = false;
  State state = State::none;
  bool has_normed_state_inputs = false;  ///< of nn::Mamba: "time_norm", "in_norm" and "out_norm"
  bool has_joined_beta_time = false;     ///< of nn::GatedDeltaNet: "beta_time"
  bool has_attention = true;             ///< in all layers, or in those without a state
  bool has_parallel_states = false;      ///< layers have both, whose results are added
  bool has_single_parts = false;  ///< a layer is an attention, a state or a feed-forward part
  Heads heads = Heads::plain;
  double attention_scale = 0;    ///< see DecoderConfig
  double attention_softcap = 0;  ///< where the file does not say it, as is that of logits
  double logit_softcap = 0;
  bool has_temperature = false;   ///< of queries, and its factor in YaRN's
  double yarn_beta_fast = 32;     ///< where the file does not say it
  double max_alibi_bias = 8;      ///< the same
  std::int64_t alibi_layers = 0;  ///< a model of so many layers has ALiBi, not a rotation
  bool has_scales = false;        ///< "embedding_scale" and "residual_scale"
  LogitScale logit_scale = LogitScale::none;
  bool has_scaled_embedding = false;  ///< by the root of the width
  /// Layers have sliding windows, but each such one; 0: none has.
  std::int64_t global_every = 0;
  /// Their size where the file does not say it, of a model of `window_layers` layers, or (0) of all.
  std::int64_t window = 0, window_layers = 0;
  double local_theta = 0;                   ///< of layers with a window; 0: that of all
  bool has_plain_local_rope = false;        ///< layers with a window: no scaling of positions
  std::int64_t unrotated_every = 0;         ///< see DecoderConfig
  bool has_rotated_norms = false;           ///< see nn::MultiHeadAttention
  bool has_normed_values = false;           ///< without weights
  bool may_have_keys_for_values = false;    ///< where a layer has no weight of values
  bool has_unrotated_temperature = false;   ///< only layers without a rotation have a temperature
  bool may_have_output_scale = false;       ///< of a layer
  bool has_two_dimensional_images = false;  ///< positions of an image have two axes (M-RoPE)
  bool has_interleaved_axes = false;        ///< see ImageAxes
  bool may_have_mutual_windows = false;     ///< on both sides of a position
  Read assume = nullptr;        ///< what a file need not say and sizes tell, before it is read
  Read read_parts = nullptr;    ///< heads and feed-forward parts, in the place of what others read
  Read read_windows = nullptr;  ///< the same of layers with windows
  Read read_more = nullptr;     ///< last
  bool is_causal = true;        ///< no: it makes embeddings, see DecoderConfig

  bool has_interleaved_rope() const noexcept { return is_interleaved || is_reordered; }
};
/// Null where the name is not known.
const Architecture* find_architecture(std::string_view name);

std::vector<std::string_view> architecture_names();

/// Whether models::Encoder, whose norms are behind each sum, is what computes it; there is no Architecture of it.
bool is_of_bert_family(std::string_view name);

}  // namespace tenon::models
