#include "models/architectures.hpp"

#include <tenon/error.hpp>
#include <tenon/models/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

using Gate = Architecture::Gate;
using Positions = Architecture::Positions;
using State = Architecture::State;

const Architecture& architecture_of(const DecoderConfig& config) {
  return *find_architecture(config.architecture);
}

DecoderNorm<> norm_part(const WeightsView& view, const DecoderConfig& config) {
  DecoderNorm<> made;
  if (architecture_of(config).has_bare_norms) {
    made.eps = config.norm_eps;
  } else if (config.has_mean_norms) {
    made.layer = nn::LayerNorm<>::init(view, config.norm_eps);
  } else {
    made.rms = nn::RmsNorm<>::init(view, config.norm_eps);
  }
  return made;
}

std::optional<DecoderNorm<>> optional_norm(const WeightsView& view, std::string_view name,
                                           const DecoderConfig& config) {
  if (!view[name].contains("weight")) return std::nullopt;
  return norm_part(view[name], config);
}

/// Queries, keys and values, which one tensor may have below each other.
nn::MultiHeadAttention<> projections(const WeightsView& view, const DecoderConfig& config,
                                     std::int64_t layer) {
  const Architecture& architecture = architecture_of(config);
  nn::MultiHeadAttention<> made;
  const CachedHeads cached = config.cached_heads(layer);
  if (view["attn_qkv"].contains("weight")) {
    const std::int64_t queries = config.heads * cached.key_dim;
    const std::int64_t keys = cached.heads * cached.key_dim;
    const std::int64_t dims[] = {queries + 2 * keys, config.width};
    static_cast<void>(view["attn_qkv"].tensor("weight", dims));
    const auto rows = [&](std::int64_t first, std::int64_t count) {
      return nn::Linear<>::init_rows(view["attn_qkv"], first, count);
    };
    made.query = rows(0, queries);
    made.key = rows(queries, keys);
    made.value = rows(queries + keys, keys);
  } else {
    const bool is_own = config.layer_of_values(layer) == layer;
    made.query = nn::Linear<>::init(view["attn_q"]);
    if (is_own || view["attn_k"].contains("weight")) made.key = nn::Linear<>::init(view["attn_k"]);
    const bool needs_values = is_own && !architecture.may_have_keys_for_values;
    if (needs_values || view["attn_v"].contains("weight")) {
      made.value = nn::Linear<>::init(view["attn_v"]);
    }
  }
  made.output = nn::Linear<>::init(view["attn_output"]);
  const bool needs_norms = config.has_gated_attention || architecture.has_rotated_norms;
  const auto add_norm = [&](const char* name, std::int64_t heads, auto& rms, auto& mean) {
    if (!needs_norms && !view[name].contains("weight")) return;
    if (config.has_mean_norms) {
      const std::int64_t dims[] = {heads, cached.key_dim};
      mean = nn::LayerNorm<>{view[name].tensor("weight", dims), {}, config.norm_eps};
    } else {
      rms = nn::RmsNorm<>::init(view[name], config.norm_eps);
    }
  };
  add_norm("attn_q_norm", config.heads, made.query_norm, made.query_layer_norm);
  add_norm("attn_k_norm", cached.heads, made.key_norm, made.key_layer_norm);
  made.heads = config.heads;
  made.kv_heads = cached.heads;
  made.head_dim = cached.key_dim;
  made.has_gate = config.has_gated_attention;
  return made;
}

nn::MultiHeadAttention<> attention_part(const WeightsView& view, const DecoderConfig& config,
                                        std::int64_t layer) {
  const Architecture& architecture = architecture_of(config);
  const bool is_local = config.is_local(layer);
  nn::MultiHeadAttention<> made = projections(view, config, layer);
  made.sinks = view["attn_sinks"].find("weight");
  made.has_rotated_norms = architecture.has_rotated_norms;
  if (!architecture.has_unrotated_temperature || !config.is_rotated(layer)) {
    made.temperature = config.temperature;
  }
  if (is_local) made.chunk = config.attention_chunk;
  if (config.has_rotated_unit_norms && config.is_rotated(layer)) made.rotated_eps = config.norm_eps;
  made.max_alibi_bias = config.max_alibi_bias;
  made.clip = config.attention_clip;
  made.options.causal = config.is_causal;
  made.options.scale = config.attention_scale;
  made.options.softcap = config.attention_softcap;
  made.options.window = is_local ? config.window : 0;
  if (architecture.has_normed_values) made.value_eps = config.norm_eps;
  if (config.layer_of_values(layer) != layer) made.shared_layer = config.place(layer).keys;
  if (config.is_rotated(layer)) made.rope = is_local ? config.local_rope : config.rope;
  return made;
}

nn::LatentAttention<> latent_part(const WeightsView& view, const DecoderConfig& config) {
  nn::LatentAttention<> made;
  const bool has_low_queries = view.contains("attn_q_a.weight");
  if (has_low_queries) {
    made.query_down = nn::Linear<>::init(view["attn_q_a"]);
    made.query_norm = nn::RmsNorm<>::init(view["attn_q_a_norm"], config.norm_eps);
  }
  made.query = nn::Linear<>::init(view[has_low_queries ? "attn_q_b" : "attn_q"]);
  made.latent = nn::Linear<>::init(view["attn_kv_a_mqa"]);
  made.latent_norm = nn::RmsNorm<>::init(view["attn_kv_a_norm"], config.norm_eps);
  if (config.latent->is_expanded) {
    const std::int64_t dims[] = {config.heads * (config.latent->plain + config.value_dim),
                                 config.latent->rank};
    made.expansion = nn::Linear<>::init(view["attn_kv_b"]);
    static_cast<void>(view["attn_kv_b"].tensor("weight", dims));
  } else {
    made.key_up = view["attn_k_b"].tensor("weight");
    made.value_up = view["attn_v_b"].tensor("weight");
  }
  made.output = nn::Linear<>::init(view["attn_output"]);
  made.heads = config.heads;
  made.rank = config.latent->rank;
  made.plain = config.latent->plain;
  made.rotated = config.latent->rotated;
  made.options.causal = true;
  made.options.scale = config.attention_scale;
  made.rope = config.rope;
  return made;
}

nn::GatedDeltaNet<> delta_net_part(const WeightsView& view, const DecoderConfig& config) {
  nn::GatedDeltaNet<> made;
  made.input = nn::Linear<>::init(view["attn_qkv"]);
  made.gate = nn::Linear<>::init(view["attn_gate"]);
  if (architecture_of(config).has_joined_beta_time) {
    made.beta_time = nn::Linear<>::init(view["ssm_ba"]);
  } else {
    made.beta = nn::Linear<>::init(view["ssm_beta"]);
    made.time = nn::Linear<>::init(view["ssm_alpha"]);
  }
  made.time_bias = view["ssm_dt"].tensor("bias");
  made.decay = view.tensor("ssm_a");
  made.conv_weight = view["ssm_conv1d"].tensor("weight");
  made.norm = view["ssm_norm"].tensor("weight");
  made.output = nn::Linear<>::init(view["ssm_out"]);
  made.heads = config.mamba->heads;
  made.groups = config.mamba->groups;
  made.norm_eps = config.norm_eps;
  return made;
}

nn::Mamba<> mamba_part(const WeightsView& view, const DecoderConfig& config) {
  const MambaSizes& sizes = *config.mamba;
  nn::Mamba<> made;
  made.input = nn::Linear<>::init(view["ssm_in"]);
  made.conv_weight = view["ssm_conv1d"].tensor("weight");
  made.conv_bias = view["ssm_conv1d"].find("bias");
  made.decay = view.tensor("ssm_a");
  made.skip = view.tensor("ssm_d");
  made.output = nn::Linear<>::init(view["ssm_out"]);
  if (sizes.heads == 0) {
    made.parameters = nn::Linear<>::init(view["ssm_x"]);
    made.time = nn::Linear<>::init(view["ssm_dt"]);
    if (architecture_of(config).has_normed_state_inputs) {
      const auto norm = [&](const char* name) {
        return nn::RmsNorm<>::init(view[name], config.norm_eps);
      };
      made.time_norm = norm("ssm_dt_norm");
      made.in_norm = norm("ssm_b_norm");
      made.out_norm = norm("ssm_c_norm");
    }
  } else {
    made.time_bias = view["ssm_dt"].tensor("bias");
    if (!config.has_parallel_states || view["ssm_norm"].contains("weight")) {
      made.norm = view["ssm_norm"].tensor("weight");
    }
  }
  made.inner = sizes.inner;
  made.states = sizes.states;
  made.heads = sizes.heads;
  made.groups = sizes.groups;
  made.norm_eps = config.norm_eps;
  made.has_normed_parameters = sizes.has_normed_parameters;
  return made;
}

/// Two layers and the bias of the second, as "time_mix_w1", "time_mix_w2" and "time_mix_w0".
nn::LowRank<> low_rank_part(const WeightsView& view, const std::string& name) {
  nn::LowRank<> made{nn::Linear<>::init(view[name + "1"]), nn::Linear<>::init(view[name + "2"])};
  made.up.bias = view[name + "0"].find("weight");
  return made;
}

/// What the layers of RWKV-6 and RWKV-7 both have.
template <class Layer>
Layer rwkv_parts(const WeightsView& view, const DecoderConfig& config) {
  const auto norm = [&](const char* name, double eps) {
    return nn::LayerNorm<>::init(view[name], eps);
  };
  const auto linear = [&](const char* name) { return nn::Linear<>::init(view[name]); };
  const auto weight = [&](const char* name) { return view[name].tensor("weight"); };
  constexpr double head_eps = 64e-5;
  Layer made;
  made.time_norm = norm("attn_norm", config.norm_eps);
  made.channel_norm = norm("attn_norm_2", config.norm_eps);
  made.time_mix = weight("time_mix_lerp_fused");
  made.receptance = linear("time_mix_receptance");
  made.key = linear("time_mix_key");
  made.value = linear("time_mix_value");
  made.output = linear("time_mix_output");
  made.head_norm = norm("time_mix_ln", head_eps);
  made.channel_key = linear("channel_mix_key");
  made.channel_value = linear("channel_mix_value");
  made.head_size = config.rwkv->head_size;
  return made;
}

nn::Rwkv7Layer<> rwkv_part(const WeightsView& view, const DecoderConfig& config,
                           std::int64_t layer) {
  const auto weight = [&](const char* name) { return view[name].tensor("weight"); };
  auto made = rwkv_parts<nn::Rwkv7Layer<>>(view, config);
  made.decay = low_rank_part(view, "time_mix_w");
  made.rate = low_rank_part(view, "time_mix_a");
  if (layer > 0) made.residual = low_rank_part(view, "time_mix_v");
  if (view.contains("time_mix_g1.weight")) made.gate = low_rank_part(view, "time_mix_g");
  made.key_removed = weight("time_mix_k_k");
  made.key_rate = weight("time_mix_k_a");
  made.bonus = weight("time_mix_r_k");
  made.channel_mix = weight("channel_mix_lerp_k");
  return made;
}

nn::LayerInputGate<> input_gate_part(const WeightsView& view, const DecoderConfig& config) {
  return {nn::Linear<>::init(view["inp_gate"]), nn::Linear<>::init(view["proj"]),
          nn::RmsNorm<>::init(view["post_norm"], config.norm_eps)};
}

nn::LayerInputs<> layer_input_part(const WeightsView& view, const DecoderConfig& config) {
  const std::int64_t size[] = {config.layer_inputs};
  const std::int64_t rows[] = {config.layers * config.layer_inputs, config.width};
  nn::LayerInputs<> made;
  made.tokens = nn::Embedding<>::init(view["per_layer_token_embd"]);
  made.projection = nn::Linear<>::init(view["per_layer_model_proj"]);
  static_cast<void>(view["per_layer_model_proj"].tensor("weight", rows));
  made.norm = nn::RmsNorm<>::init(view["per_layer_proj_norm"], config.norm_eps);
  static_cast<void>(view["per_layer_proj_norm"].tensor("weight", size));
  made.layers = config.layers;
  return made;
}

nn::AltUpLayer<> alt_up_part(const WeightsView& view, const DecoderConfig& config) {
  const auto norm = [&](const char* name) {
    return nn::RmsNorm<>::init(view[name], config.norm_eps);
  };
  const auto linear = [&](const char* name) { return nn::Linear<>::init(view[name]); };
  nn::AltUpLayer<> made;
  made.router_norm = norm("altup_router_norm");
  made.router = linear("altup_router");
  made.prediction = linear("altup_predict_coef");
  made.correction = linear("altup_correct_coef");
  made.correction_scale = view["altup_correct_scale"].tensor("weight");
  made.detour_down = linear("laurel_l");
  made.detour_up = linear("laurel_r");
  made.detour_norm = norm("laurel_post_norm");
  made.own = input_gate_part(view, config);
  made.active = config.alt_up->active;
  return made;
}

nn::AltUp<> alt_up_ends(const WeightsView& view, const DecoderConfig& config) {
  const AltUpSizes& sizes = *config.alt_up;
  const std::int64_t square[] = {sizes.streams - 1, config.width, config.width};
  nn::AltUp<> made;
  made.widening = view["altup_proj"].tensor("weight", square);
  made.merging = view["altup_unembd_proj"].tensor("weight", square);
  made.active = sizes.active;
  return made;
}

nn::Rwkv6Layer<> rwkv6_part(const WeightsView& view, const DecoderConfig& config,
                            std::int64_t layer) {
  const auto linear = [&](const char* name) { return nn::Linear<>::init(view[name]); };
  const auto weight = [&](const char* name) { return view[name].tensor("weight"); };
  auto made = rwkv_parts<nn::Rwkv6Layer<>>(view, config);
  made.first_mix = weight("time_mix_lerp_x");
  made.mix_down = linear("time_mix_w1");
  made.mix_up = weight("time_mix_w2");
  made.decay = {linear("time_mix_decay_w1"), linear("time_mix_decay_w2")};
  made.decay.up.bias = weight("time_mix_decay");
  made.bonus = weight("time_mix_first");
  made.gate = linear("time_mix_gate");
  made.channel_key_mix = weight("channel_mix_lerp_k");
  made.channel_receptance_mix = weight("channel_mix_lerp_r");
  made.channel_receptance = linear("channel_mix_receptance");
  const std::int64_t every = config.rwkv->halved_every;
  if (every > 0 && (layer + 1) % every == 0) made.scale = 0.5;
  return made;
}

/// Declares the weights that a dense layer, or with `suffix` the shared part of experts, has.
nn::FeedForward<> dense_part(const WeightsView& view, const std::string& suffix, Name activation,
                             Gate gate = Gate::own) {
  if (view["ffn_act"].contains("scales")) {  // of AWQ
    throw Error(Errc::unsupported, view.origin(),
                fmt::format("scales of activations ({})", view["ffn_act"].full_name("scales")));
  }
  const WeightsView up = view["ffn_up" + suffix];
  nn::FeedForward<> made;
  if (gate == Gate::fused) {
    const std::int64_t rows = nn::detail::part_of_rows(up.tensor("weight").dim(0), 2, up,
                                                       std::source_location::current());
    made.gate = nn::Linear<>::init_rows(up, 0, rows);
    made.up = nn::Linear<>::init_rows(up, rows, rows);
  } else {
    if (gate == Gate::own) made.gate = nn::Linear<>::init(view["ffn_gate" + suffix]);
    made.up = nn::Linear<>::init(up);
  }
  made.down = nn::Linear<>::init(view["ffn_down" + suffix]);
  made.activation = activation;
  return made;
}

nn::MixtureOfExperts<> expert_part(const WeightsView& view, const DecoderConfig& config) {
  const Architecture& architecture = architecture_of(config);
  nn::MixtureOfExperts<> made;
  made.router = nn::Linear<>::init(view["ffn_gate_inp"]);
  made.router_bias = view["exp_probs_b"].find("bias");
  if (const std::int64_t latent = config.latent_experts; latent > 0) {
    const std::int64_t down[] = {latent, config.width}, up[] = {config.width, latent};
    static_cast<void>(view["ffn_latent_down"].tensor("weight", down));
    static_cast<void>(view["ffn_latent_up"].tensor("weight", up));
    made.latent_down = nn::Linear<>::init(view["ffn_latent_down"]);
    made.latent_up = nn::Linear<>::init(view["ffn_latent_up"]);
  }
  made.has_fused_gate = view["ffn_gate_up_exps"].contains("weight");
  if (made.has_fused_gate) {
    made.up = view["ffn_gate_up_exps"].tensor("weight");
    made.up_scale = view["ffn_gate_up_exps"].find("scale");
  } else {
    if (architecture.gate != Gate::none) made.gate = view["ffn_gate_exps"].tensor("weight");
    made.up = view["ffn_up_exps"].tensor("weight");
    made.gate_scale = view["ffn_gate_exps"].find("scale");
    made.up_scale = view["ffn_up_exps"].find("scale");
  }
  made.down = view["ffn_down_exps"].tensor("weight");
  made.down_scale = view["ffn_down_exps"].find("scale");
  made.gate_bias = view["ffn_gate_exps"].find("bias");
  made.up_bias = view["ffn_up_exps"].find("bias");
  made.down_bias = view["ffn_down_exps"].find("bias");
  made.activation = config.activation;
  made.options = config.router;
  made.has_weighted_inputs = architecture.has_weighted_expert_inputs;
  if (view.contains("ffn_up_shexp.weight")) {
    made.shared = dense_part(view, "_shexp", config.activation, architecture.gate);
  } else if (architecture.may_have_dense_part && view.contains("ffn_up.weight")) {
    made.shared = dense_part(view, "", config.activation, architecture.gate);
    made.sum_scale = std::sqrt(0.5);
  }
  made.shared_gate = view["ffn_gate_inp_shexp"].find("weight");
  return made;
}

SideExperts<> side_expert_part(const WeightsView& view, const DecoderConfig& config) {
  const auto norm = [&](const char* name) {
    return nn::RmsNorm<>::init(view[name], config.norm_eps);
  };
  SideExperts<> made;
  made.experts = expert_part(view, config);
  made.router_norm = {view["ffn_gate_inp"].tensor("scale"), config.norm_eps};
  made.first_norm = norm("pre_ffw_norm_2");
  made.last_norm = norm("post_ffw_norm_2");
  made.dense_last_norm = norm("post_ffw_norm_1");
  return made;
}

/// The norms before a layer's attention or state, and before its feed-forward part where that reads
/// what they read.
void add_first_norms(DecoderLayer<>& layer, const WeightsView& view, const DecoderConfig& config,
                     std::int64_t index) {
  const Architecture& architecture = architecture_of(config);
  if (!architecture.has_first_norms || config.mixing(index) == Mixing::none) return;
  const bool has_two = view["attn_norm_2"].contains("weight");  // Falcon 40B
  const bool may_lack = index == 0 && architecture.may_lack_first_norm;
  if (!may_lack || view["attn_norm"].contains("weight")) {
    layer.attention_norm = norm_part(view[has_two ? "attn_norm_2" : "attn_norm"], config);
  }
  if (has_two) layer.feed_forward_norm = norm_part(view["attn_norm"], config);
}

/// What mixes positions: a state, attention, both, or neither.
void add_mixing(DecoderLayer<>& layer, const WeightsView& view, const DecoderConfig& config,
                std::int64_t index) {
  if (config.keeps_state(index)) {
    if (config.mamba && config.mamba->is_delta_net) {
      layer.delta_net = delta_net_part(view, config);
    } else if (config.mamba) {
      layer.mamba = mamba_part(view, config);
    } else {
      layer.short_conv = nn::ShortConv<>::init(view["shortconv"]);
    }
  }
  if (config.attends(index)) {
    if (config.latent) {
      layer.latent_attention = latent_part(view, config);
    } else {
      layer.attention = attention_part(view, config, index);
    }
  }
  if (config.mixing(index) == Mixing::projection) {
    layer.projection = nn::Linear<>::init(view["attn_output"]);
  }
}

/// The norms behind a layer's parts, and that before its feed-forward part.
void add_other_norms(DecoderLayer<>& layer, const WeightsView& view, const DecoderConfig& config,
                     std::int64_t index) {
  const Architecture& architecture = architecture_of(config);
  if (architecture.has_last_norms) {
    const std::string_view other = architecture.other_last_feed_forward_norm;
    const bool has_other = !other.empty() && view[other].contains("weight");
    layer.post_attention_norm = norm_part(view[architecture.last_attention_norm], config);
    layer.post_feed_forward_norm =
        norm_part(view[has_other ? other : architecture.last_feed_forward_norm], config);
  }
  const std::string_view name = architecture.feed_forward_norm;
  if (config.is_feed_forward(index)) {
    layer.feed_forward_norm = std::exchange(layer.attention_norm, std::nullopt);
  } else if (config.is_parallel) {
    if (!layer.feed_forward_norm) layer.feed_forward_norm = optional_norm(view, name, config);
  } else if (view.contains(name)) {  // files of Falcon-H1 name it so
    layer.feed_forward_norm = DecoderNorm<>{nn::RmsNorm<>{view.tensor(name), config.norm_eps}, {}};
  } else if (architecture.has_first_norms) {
    layer.feed_forward_norm = norm_part(view[name], config);
  }
}

/// The feed-forward part, or experts, or both.
void add_feed_forward(DecoderLayer<>& layer, const WeightsView& view, const DecoderConfig& config,
                      std::int64_t index) {
  const Architecture& architecture = architecture_of(config);
  const bool has_experts = config.has_experts(index);
  if (has_experts && !architecture.has_side_experts) {
    layer.experts = expert_part(view, config);
    return;
  }
  if (has_experts) layer.side_experts = side_expert_part(view, config);
  layer.feed_forward = dense_part(view, "", config.activation, architecture.gate);
  const auto at = static_cast<std::size_t>(index);
  if (!config.cutoffs.empty()) layer.feed_forward->cutoff = config.cutoffs[at];
  if (!config.own_activations.empty()) {
    layer.feed_forward->own_activation = config.own_activations[at];
  }
}

}  // namespace

template <>
DecoderLayer<Tensor> DecoderLayer<Tensor>::init(const WeightsView& view,
                                                const DecoderConfig& config, std::int64_t index) {
  const Architecture& architecture = architecture_of(config);
  DecoderLayer layer;
  layer.place = config.place(index);
  if (architecture.state == State::rwkv6) {
    layer.rwkv6 = rwkv6_part(view, config, index);
    return layer;
  }
  if (architecture.state == State::rwkv7) {
    layer.rwkv = rwkv_part(view, config, index);
    return layer;
  }
  add_first_norms(layer, view, config, index);
  add_mixing(layer, view, config, index);
  if (config.alt_up) {
    layer.alt_up = alt_up_part(view, config);
  } else if (config.layer_inputs > 0) {
    layer.input_gate = input_gate_part(view, config);
  }
  if (architecture.may_have_output_scale) {
    layer.output_scale = view["layer_output_scale"].find("weight");
  }
  if (!config.has_feed_forward(index)) return layer;
  add_other_norms(layer, view, config, index);
  add_feed_forward(layer, view, config, index);
  return layer;
}

template <>
Decoder<Tensor> Decoder<Tensor>::init(const WeightsView& view, const DecoderConfig& config) {
  Decoder decoder;
  decoder.config = config;
  decoder.tokens = nn::Embedding<>::init(view["token_embd"]);
  const Architecture& architecture = architecture_of(config);
  // Models with ALiBi may have them, too: some of MPT's.
  if (architecture.positions == Positions::added ||
      (architecture.positions == Positions::alibi && view.contains("position_embd.weight"))) {
    decoder.positions = nn::Embedding<>::init(view["position_embd"]);
  }
  if (config.alt_up) decoder.alt_up = alt_up_ends(view, config);
  if (config.layer_inputs > 0) decoder.layer_inputs = layer_input_part(view, config);
  std::optional<Tensor> factors = view["rope_freqs"].find("weight");
  if (!factors) {
    factors =
        view[config.has_long_context ? "rope_factors_long" : "rope_factors_short"].find("weight");
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    decoder.layers.push_back(DecoderLayer<>::init(view["blk"][i], config, i));
    DecoderLayer<>& layer = decoder.layers.back();
    const bool is_plain = architecture.has_plain_local_rope && config.is_local(i);
    if (layer.attention && !is_plain) layer.attention->rope_factors = factors;
    if (layer.latent_attention) layer.latent_attention->rope_factors = factors;
  }
  if (architecture.has_embedding_norm) {
    decoder.embedding_norm = nn::LayerNorm<>::init(view["token_embd_norm"], config.norm_eps);
  }
  // Files of LFM2 have the last norm under the name of one before the first layer.
  const bool is_lfm2 = config.short_conv_taps > 0 && !view.contains("output_norm.weight");
  decoder.norm = norm_part(view[is_lfm2 ? "token_embd_norm" : architecture.output_norm], config);
  if (view.contains("output.weight")) decoder.head = nn::Linear<>::init(view["output"]);
  return decoder;
}

std::int64_t DecoderConfig::layer_of_values(std::int64_t layer) const noexcept {
  if (with_values == 0 || layer < with_values) return layer;
  std::int64_t other = with_values - 1;
  while (other >= 0 && is_local(other) != is_local(layer)) --other;
  return other;
}

CachedHeads DecoderConfig::cached_heads(std::int64_t layer) const noexcept {
  CachedHeads cached{kv_heads, head_dim, value_dim};
  if (!layer_kv_heads.empty()) cached.heads = layer_kv_heads[static_cast<std::size_t>(layer)];
  if (local_head_dim > 0 && is_local(layer)) cached.key_dim = cached.value_dim = local_head_dim;
  return cached;
}

bool DecoderConfig::has_values(std::int64_t layer) const noexcept {
  return attends(layer) && layer_of_values(layer) == layer;
}

std::vector<CachedHeads> DecoderConfig::stacks() const {
  std::vector<CachedHeads> found;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const CachedHeads cached = cached_heads(layer);
    if (!has_values(layer) || std::ranges::find(found, cached) != found.end()) continue;
    found.push_back(cached);
  }
  return found;
}

LayerPlace DecoderConfig::place(std::int64_t layer) const {
  LayerPlace place;
  place.layer = layer;
  for (std::int64_t before = 0; before < layer; ++before) {
    if (keeps_state(before)) ++place.state;
  }
  if (!attends(layer)) return place;
  const std::int64_t read = layer_of_values(layer);
  const CachedHeads cached = cached_heads(read);
  const std::vector<CachedHeads> all = stacks();
  place.stack = std::ranges::find(all, cached) - all.begin();
  for (std::int64_t before = 0; before < read; ++before) {
    if (has_values(before) && cached_heads(before) == cached) ++place.keys;
  }
  return place;
}

DecoderCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                                std::int64_t batch) {
  DecoderCache<Shape> shapes;
  for (const CachedHeads& cached : config.stacks()) {
    std::int64_t layers = 0;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      if (config.has_values(layer) && config.cached_heads(layer) == cached) ++layers;
    }
    shapes.attention.push_back(nn::kv_cache_shape(layers, batch, cached.heads, capacity,
                                                  cached.key_dim, dtype, cached.value_dim));
  }
  std::int64_t states = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.keeps_state(layer)) ++states;
  }
  if (config.rwkv) {
    const std::int64_t size = config.rwkv->head_size;
    shapes.rwkv =
        nn::RwkvState<Shape>{Shape({states, batch, 2, config.width}, f32),
                             Shape({states, batch, size, config.width / size, size}, f32)};
  }
  if (config.mamba) {
    const MambaSizes& sizes = *config.mamba;
    const std::int64_t heads = sizes.heads == 0 ? sizes.inner : sizes.heads;
    shapes.mamba = nn::MambaState<Shape>{
        Shape({states, batch, sizes.taps - 1, sizes.convolved()}, f32),
        Shape({states, batch, sizes.states, heads, sizes.inner / heads}, f32)};
  }
  if (config.short_conv_taps > 0) {
    shapes.short_conv = Shape({states, batch, config.short_conv_taps - 1, config.width}, f32);
  }
  if (config.image_axes) shapes.shift = Shape(std::span<const Axis>(), i32);
  return shapes;
}

}  // namespace tenon::models
