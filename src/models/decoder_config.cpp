#include "base/block_number.hpp"
#include "models/decoder_families.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::models {
namespace {

using Heads = Architecture::Heads;
using LogitScale = Architecture::LogitScale;
using Positions = Architecture::Positions;
using State = Architecture::State;

const Architecture& architecture_of(const io::File& file) {
  const auto name = file.metadata().get<std::string>("general.architecture");
  if (const Architecture* const known = find_architecture(name)) return *known;
  if (is_of_bert_family(name)) {
    throw Error(Errc::unsupported, file.path().string(),
                fmt::format("{}, a sentence encoder and no language model: SentenceEncoder reads "
                            "it, as `tenon embed` and `tenon rerank` do",
                            name));
  }
  throw Error(
      Errc::unsupported, file.path().string(),
      fmt::format("architecture '{}'; known are {}", name, fmt::join(architecture_names(), ", ")));
}

/// Errors: corrupt for tensors of layers that the file does not say it has; a model without them would answer, and wrongly.
void refuse_other_layers(const io::File& file, std::int64_t layers) {
  std::vector<std::string_view> others;
  for (const io::TensorEntry& entry : file.tensors()) {
    if (block_number(entry.name) >= layers) others.push_back(entry.name);
  }
  if (others.empty()) return;
  const std::size_t shown = std::min<std::size_t>(others.size(), 3);
  throw Error(Errc::corrupt, file.path().string(),
              fmt::format("block_count is {}, and there are {} tensors of further blocks: {}{}",
                          layers, others.size(),
                          fmt::join(others.begin(),
                                    others.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                          shown < others.size() ? ", ..." : ""));
}

nn::RouterOptions router_of(const Hyperparameters& values, const Architecture& architecture,
                            const DecoderConfig& config) {
  // Of "expert_gating_func". A softmax of the chosen experts only is what a normalised one is.
  constexpr std::int64_t softmax = 1, sigmoid = 2, softmax_of_chosen = 3;
  nn::RouterOptions router;
  router.used = values.integer("expert_used_count", 1, config.experts);
  router.normalized = values.boolean_or("expert_weights_norm", architecture.has_normalized_router);
  router.scale = values.real_or("expert_weights_scale", 1, 0, 1e6);
  if (router.scale == 0) router.scale = 1;  // which files that have none may say
  if (architecture.router_scores == "sparsemixer") {
    values.require_integer("expert_used_count", 2);
    router.scores = "sparsemixer";
    router.normalized = false;
    return router;
  }
  const std::int64_t usual = architecture.router_scores == "sigmoid" ? sigmoid : softmax;
  const std::int64_t scores =
      values.integer_or("expert_gating_func", usual, softmax, softmax_of_chosen);
  if (scores == sigmoid) router.scores = "sigmoid";
  if (scores == softmax_of_chosen) router.normalized = true;
  router.groups =
      std::max<std::int64_t>(values.integer_or("expert_group_count", 1, 0, config.experts), 1);
  if (router.groups == 1) return router;
  const std::int64_t size = config.experts / router.groups;
  if (config.experts % router.groups != 0 || size < 2) {
    values.refuse(
        "expert_group_count", std::to_string(router.groups),
        fmt::format("divisors of {} experts with two or more in a group", config.experts));
  }
  router.groups_used = values.integer("expert_group_used_count", 1, router.groups);
  if (router.used > router.groups_used * size) {
    values.refuse("expert_group_used_count", std::to_string(router.groups_used),
                  fmt::format("groups with {} experts", router.used));
  }
  return router;
}

Rope rope_of(const Hyperparameters& values, const Architecture& architecture,
             const DecoderConfig& config) {
  Rope rope;
  rope.theta = values.real_or("rope.freq_base", 10000, 1, 1e30);
  rope.dims = values.integer_or("rope.dimension_count", config.head_dim, 2, config.head_dim);
  if (rope.dims % 2 != 0)
    values.refuse("rope.dimension_count", std::to_string(rope.dims), "even numbers");
  rope.interleaved = architecture.has_interleaved_rope();
  values.require_real("rope.scaling.alpha", 0);
  std::string scaling = values.text_or("rope.scaling.type", "none");
  if (scaling == "longrope") {  // whose frequencies are the file's
    values.require_real("rope.scaling.factor", 1);
    scaling = "none";
  }
  if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
    throw Error(Errc::unsupported, config.architecture, fmt::format("rope scaling '{}'", scaling));
  }
  rope.scaling = Name(scaling);
  rope.factor = values.real_or("rope.scaling.factor", 1, 1e-6, 1e6);
  rope.original_context = values.integer_or("rope.scaling.original_context_length",
                                            config.context_length, 1, max_context);
  const double factor = values.real_or("rope.scaling.attn_factor", 1, 1e-6, 1e6);
  if (scaling != "yarn") {
    rope.attention_factor = factor == 1 ? 0 : factor;
    return rope;
  }
  rope.beta_fast =
      values.real_or("rope.scaling.yarn_beta_fast", architecture.yarn_beta_fast, 1e-6, 1e6);
  rope.beta_slow = values.real_or("rope.scaling.yarn_beta_slow", rope.beta_slow, 1e-6, 1e6);
  values.require_real("rope.scaling.yarn_ext_factor", 1);
  values.require_real("rope.scaling.yarn_attn_factor", 1);
  rope.attention_factor = rope.magnitude() * factor;
  return rope;
}

/// A number of each layer, of which some may have none.
struct OfLayers {
  std::int64_t number = 0;
  std::vector<std::uint8_t> has;  ///< by layer; empty: all have it
};

/// Reads it from one number or a list of that number and zeros.
OfLayers of_layers(const Hyperparameters& values, std::string_view key, std::int64_t low,
                   std::int64_t high, std::int64_t layers) {
  const auto listed = values.integers(key);
  if (!listed) return {values.integer(key, low, high), {}};
  OfLayers read;
  read.number = listed->empty() ? 0 : *std::ranges::max_element(*listed);
  const bool is_known = std::ranges::all_of(
      *listed, [&](std::int32_t number) { return number == 0 || number == read.number; });
  if (std::ssize(*listed) < layers || !is_known || read.number < low || read.number > high) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} is not one number or 0 for each layer", values.full(key)));
  }
  const auto last = listed->begin() + layers;
  if (std::find(listed->begin(), last, 0) == last) return read;
  for (auto number = listed->begin(); number != last; ++number) {
    read.has.push_back(*number != 0);
  }
  return read;
}

/// Key-value heads, of which a file may say for each layer that it has none, but a state.
void set_kv_heads(const Hyperparameters& values, DecoderConfig& config) {
  constexpr std::string_view key = "attention.head_count_kv";
  if (!values.contains(key)) {
    config.kv_heads = config.heads;
    return;
  }
  const OfLayers heads = of_layers(values, key, 1, config.heads, config.layers);
  config.kv_heads = heads.number;
  for (const std::uint8_t has : heads.has) config.state_layers.push_back(has == 0);
}

/// Widths of the feed-forward parts, of which a file may say for each layer that it has none.
void set_feed_forward(const Hyperparameters& values, const Architecture& architecture,
                      DecoderConfig& config) {
  constexpr std::string_view key = "feed_forward_length";
  const OfLayers widths = of_layers(values, key, 1, max_width, config.layers);
  if (architecture.has_single_parts == widths.has.empty()) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} of {}", values.full(key),
                            widths.has.empty() ? "all layers" : "some layers only"));
  }
  config.intermediate_size = widths.number;
  config.feed_forward_layers = widths.has;
}

/// Sizes of the heads of an attention that is not latent.
void set_heads(const Hyperparameters& values, DecoderConfig& config) {
  set_kv_heads(values, config);
  if (config.heads % config.kv_heads != 0) {
    values.refuse("attention.head_count_kv", std::to_string(config.kv_heads),
                  fmt::format("divisors of {} heads", config.heads));
  }
  if (!values.contains("attention.key_length") && config.width % config.heads != 0) {
    values.refuse("attention.head_count", std::to_string(config.heads),
                  fmt::format("divisors of the width {}", config.width));
  }
  config.head_dim =
      values.integer_or("attention.key_length", config.width / config.heads, 1, max_width);
  require_size_of_keys(values, "attention.value_length", config.head_dim);
  config.value_dim = config.head_dim;
}

/// The same of latent attention.
void set_latent_heads(const Hyperparameters& values, DecoderConfig& config) {
  LatentSizes sizes;
  sizes.rank = values.integer("attention.kv_lora_rank", 1, max_width);
  sizes.rotated = values.integer("rope.dimension_count", 2, max_width);
  const std::int64_t key =
      values.integer("attention.key_length_mla", sizes.rotated + 1, 2 * max_width);
  sizes.plain = key - sizes.rotated;
  config.latent = sizes;
  config.kv_heads = 1;
  config.head_dim = sizes.rank + sizes.rotated;
  config.value_dim = sizes.rank;
}

/// The same of latent attention whose projections are one tensor, "attn_kv_b": each head has keys and values.
void set_expanded_heads(const Hyperparameters& values, DecoderConfig& config) {
  LatentSizes sizes;
  sizes.is_expanded = true;
  sizes.rank = values.integer("attention.kv_lora_rank", 1, max_width);
  sizes.rotated = values.integer("rope.dimension_count", 2, max_width);
  const std::int64_t key = values.integer("attention.key_length", sizes.rotated + 1, 2 * max_width);
  sizes.plain = key - sizes.rotated;
  config.latent = sizes;
  config.kv_heads = config.heads;
  config.head_dim = key;
  config.value_dim =
      values.integer_or("attention.value_length", config.width / config.heads, 1, max_width);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(key));
}

void set_mamba(const Hyperparameters& values, const Architecture& architecture,
               DecoderConfig& config) {
  MambaSizes sizes;
  sizes.taps = values.integer("ssm.conv_kernel", 2, 1 << 10);
  sizes.inner = values.integer("ssm.inner_size", 1, max_width);
  sizes.states = values.integer("ssm.state_size", 1, 1 << 16);
  if (architecture.state != State::mamba) {
    sizes.heads = values.integer("ssm.time_step_rank", 1, sizes.inner);
    sizes.groups = values.integer("ssm.group_count", 1, sizes.heads);
    if (sizes.inner % sizes.heads != 0) {
      values.refuse("ssm.time_step_rank", std::to_string(sizes.heads),
                    fmt::format("divisors of the inner size {}", sizes.inner));
    }
    if (sizes.heads % sizes.groups != 0) {
      values.refuse("ssm.group_count", std::to_string(sizes.groups),
                    fmt::format("divisors of {} heads", sizes.heads));
    }
  }
  sizes.has_normed_parameters = values.boolean_or("ssm.dt_b_c_rms", false);
  config.mamba = sizes;
}

/// Which layers of Qwen3.5 have states: all but every fourth, unless the file says otherwise.
void set_delta_layers(const Hyperparameters& values, DecoderConfig& config) {
  config.has_gated_attention = true;
  config.mamba->is_delta_net = true;
  constexpr std::string_view key = "attention.recurrent_layers";
  if (const auto listed = values.booleans(key)) {
    if (std::ssize(*listed) < config.layers) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("{} does not name every layer", values.full(key)));
    }
    config.state_layers.assign(listed->begin(), listed->begin() + config.layers);
    return;
  }
  const std::int64_t every = values.integer_or("full_attention_interval", 4, 1, max_layers);
  config.state_layers.clear();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    config.state_layers.push_back((i + 1) % every != 0);
  }
}

void set_rwkv(const Hyperparameters& values, const Architecture& architecture,
              DecoderConfig& config) {
  RwkvSizes sizes;
  sizes.head_size = values.integer("wkv.head_size", 1, config.width);
  if (config.width % sizes.head_size != 0) {
    values.refuse("wkv.head_size", std::to_string(sizes.head_size),
                  fmt::format("divisors of the width {}", config.width));
  }
  if (architecture.state == State::rwkv6) {
    sizes.halved_every = values.integer_or("rescale_every_n_layers", 0, 0, max_layers);
  }
  config.rwkv = sizes;
}

/// Scales of queries and of scores under YaRN with DeepSeek's "mscale_all_dim", of which the file
/// has a tenth: mscale is taken to be equal to it where it is given (as llama.cpp does), so that the
/// rotation has no factor.
void set_latent_scale(const Hyperparameters& values, DecoderConfig& config) {
  values.require_real("attention.temperature_scale", 0);
  const bool is_yarn = config.rope.scaling.text() == "yarn";
  const double all_dims = 10 * values.real_or("rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
  if (is_yarn && all_dims != 0) {
    config.rope.attention_factor = values.real_or("rope.scaling.attn_factor", 1, 1e-6, 1e6);
  }
  const double magnitude = config.rope.magnitude();
  const double growth = is_yarn ? 1 + 0.1 * all_dims * std::log(config.rope.factor) : 1;
  const auto key = static_cast<double>(config.latent->plain + config.latent->rotated);
  config.attention_scale = magnitude * magnitude * growth * growth / std::sqrt(key);
}

/// Layers with a sliding window.
void set_windows(const DecoderReading& from) {
  const auto& [file, values, architecture, config] = from;
  const bool is_usual =
      architecture.window_layers == 0 || architecture.window_layers == config.layers;
  config.window = values.integer_or("attention.sliding_window", is_usual ? architecture.window : 0,
                                    0, max_context);
  config.global_every = read_global_every(from);
  const double theta = architecture.local_theta > 0 ? architecture.local_theta : config.rope.theta;
  config.local_rope.theta = values.real_or("rope.freq_base_swa", theta, 1, 1e30);
  if (!architecture.has_plain_local_rope) return;
  config.local_rope.scaling = "none";
  config.local_rope.factor = 1;
  config.local_rope.attention_factor = 0;
}

/// What multiplies embeddings, what layers add, scores and logits.
void set_scales(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  constexpr double largest = 1e6;
  config.attention_scale = values.real_or("attention.scale", config.attention_scale, 0, largest);
  config.attention_softcap =
      values.real_or("attn_logit_softcapping", architecture.attention_softcap, 0, largest);
  config.logit_softcap =
      values.real_or("final_logit_softcapping", architecture.logit_softcap, 0, largest);
  if (architecture.has_scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  }
  const auto scale = [&](std::string_view key, double& value) {
    const double given = values.real_or(key, value, 0, largest);
    if (given != 0 && given < 1e-6) {
      values.refuse(key, fmt::format("{}", given), "0 and 1e-06 to 1e+06");
    }
    value = given == 0 ? 1 : given;  // files may have 0 where there is none
  };
  if (architecture.has_scales) {
    scale("embedding_scale", config.embedding_scale);
    scale("residual_scale", config.residual_scale);
  }
  if (architecture.logit_scale == LogitScale::none) return;
  scale("logit_scale", config.logit_scale);
  if (architecture.logit_scale == LogitScale::divisor) config.logit_scale = 1 / config.logit_scale;
}

/// How the model knows of positions.
void set_positions(const Hyperparameters& values, const Architecture& architecture,
                   DecoderConfig& config) {
  const bool has_biases =
      architecture.positions == Positions::alibi || (config.layers == architecture.alibi_layers);
  if (has_biases) {
    config.max_alibi_bias =
        values.real_or("attention.max_alibi_bias", architecture.max_alibi_bias, 0, 1e3);
  }
  // Granite's files say so of models without positions.
  const bool is_rotated =
      !architecture.has_scales || values.boolean_or("rope.scaling.finetuned", true);
  config.has_rope = architecture.positions == Positions::rotary && !has_biases && is_rotated;
}

/// The temperature of queries, and YaRN with "mscale_all_dim", by which the rotation's factor is divided.
void set_temperature(const Hyperparameters& values, DecoderConfig& config) {
  config.temperature.scale = values.real_or("attention.temperature_scale", 0, 0, 1e3);
  config.temperature.length = config.rope.original_context;
  const double all_dims = values.real_or("rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
  if (config.rope.scaling.text() != "yarn" || config.rope.factor <= 1) return;
  config.rope.attention_factor =
      config.rope.magnitude() / (1 + 0.1 * all_dims * std::log(config.rope.factor));
}

/// Of a model whose positions all see each other: windows are on both sides, half of the size on each.
void set_mutual(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  if (config.window > 0) {
    if (!architecture.may_have_mutual_windows) {
      throw Error(Errc::unsupported, values.file(), "windows of attention that is not causal");
    }
    config.window = config.window / 2 + 1;  // positions on one side, with a query's own
  }
  if (config.latent || config.attention_chunk > 0) {
    throw Error(Errc::unsupported, values.file(),
                "latent attention, or one in chunks, that is not causal");
  }
}

void set_experts(const DecoderReading& from) {
  const auto& [file, values, architecture, config] = from;
  config.experts = values.integer_or("expert_count", 0, 0, max_experts);
  if (config.experts == 0) return;
  config.router = router_of(values, architecture, config);
  config.dense_layers = values.integer_or("leading_dense_block_count", 0, 0, config.layers);
  if (architecture.has_experts_by_router) read_expert_layers(from);
  if (architecture.has_interleaved_experts) {
    const std::int64_t every = values.integer("interleave_moe_layer_step", 1, max_layers);
    for (std::int64_t i = 0; i < config.layers; ++i) {
      config.expert_layers.push_back((i + 1) % every == 0);
    }
  } else {
    values.require_integer("interleave_moe_layer_step", 1);
  }
  if (architecture.may_have_latent_experts) {
    config.latent_experts = values.integer_or("moe_latent_size", 0, 0, max_width);
  } else {
    values.require_integer("moe_latent_size", 0);
  }
}

/// Heads of attention and widths of feed-forward parts.
void set_parts(const DecoderReading& from) {
  const auto& [file, values, architecture, config] = from;
  if (architecture.read_parts != nullptr) return architecture.read_parts(from);
  if (!config.has_experts(0) || architecture.has_single_parts) {
    set_feed_forward(values, architecture, config);
  }
  config.heads = values.integer("attention.head_count", 1, max_heads);
  if (architecture.heads == Heads::plain) {
    set_heads(values, config);
    return;
  }
  // Files of DeepSeek from before 2025 have "attn_kv_b" in one, and not the key that is asked for.
  const bool is_latent =
      architecture.heads == Heads::latent && values.contains("attention.key_length_mla");
  if (is_latent) {
    set_latent_heads(values, config);
  } else {
    set_expanded_heads(values, config);
  }
  values.require_real("attention.clamp_kqv", 0);
}

/// Heads, their rotation, and feed-forward parts.
void set_transformer(const DecoderReading& from) {
  const auto& [file, values, architecture, config] = from;
  set_experts(from);
  set_parts(from);
  config.attention_clip = values.real_or("attention.clamp_kqv", 0, 0, 1e6);
  config.rope = rope_of(values, architecture, config);
  if (architecture.heads == Heads::latent) set_latent_scale(values, config);
  if (architecture.has_temperature) set_temperature(values, config);
  config.local_rope = config.rope;
  config.activation = Name(architecture.activation);
  if (architecture.attention_scale > 0) config.attention_scale = architecture.attention_scale;
  if (architecture.assume != nullptr) architecture.assume(from);
  set_scales(values, architecture, config);
  set_positions(values, architecture, config);
  if (architecture.read_windows != nullptr) {
    architecture.read_windows(from);
  } else if (architecture.global_every > 0) {
    set_windows(from);
  }
  config.unrotated_every = architecture.unrotated_every;
  if (architecture.global_every > 0 && architecture.read_windows == nullptr) {
    // Layers without a window, if there are such with one.
    const bool has_windows = architecture.unrotated_every > 0 && config.window > 0;
    config.unrotated_every = has_windows ? config.global_every : 0;
  }
  if (architecture.read_more != nullptr) architecture.read_more(from);
  config.is_causal = values.boolean_or("attention.causal", architecture.is_causal);
  if (!config.is_causal) set_mutual(values, architecture, config);
  // StableLM's layers without a norm of the feed-forward part have none since they are parallel.
  const bool has_norm = file.find("blk.0.ffn_norm.weight") != nullptr;
  config.is_parallel = architecture.may_be_parallel
                           ? !has_norm
                           : values.boolean_or("use_parallel_residual", architecture.is_parallel);
}

/// How a model reads images whose positions have two axes. A file that does not say it is one of a language model alone.
void set_images(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  if (!architecture.has_two_dimensional_images) return;
  constexpr std::string_view key = "rope.dimension_sections";
  const auto given = values.integers(key);
  if (!given) return;
  std::vector<std::int64_t> sections(given->begin(), given->end());
  // There is a fourth one, of nothing.
  if (sections.size() == 4 && sections.back() == 0) sections.pop_back();
  std::int64_t pairs = 0;
  bool fits = sections.size() == 3;
  for (const std::int64_t section : sections) {
    fits = fits && section >= 0 && section <= config.rope.dims;
    pairs += fits ? section : 0;
  }
  if (!fits || 2 * pairs != config.rope.dims) {
    values.refuse(key, fmt::format("[{}]", fmt::join(*given, ", ")),
                  fmt::format("three whose sum is {}", config.rope.dims / 2));
  }
  config.image_axes = ImageAxes{IntList(sections), architecture.has_interleaved_axes};
  config.image_layers = values.integer_or("n_deepstack_layers", 0, 0, config.layers);
}

/// Parts that keep states, and which layers have them where the numbers of key-value heads do not say it.
void set_states(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  switch (architecture.state) {
    case State::none:
      return;
    case State::mamba:
    case State::mamba2:
      set_mamba(values, architecture, config);
      break;
    case State::delta_net:
      set_mamba(values, architecture, config);
      set_delta_layers(values, config);
      break;
    case State::short_conv:
      config.short_conv_taps = values.integer("shortconv.l_cache", 2, 1 << 10);
      break;
    case State::rwkv6:
    case State::rwkv7:
      set_rwkv(values, architecture, config);
      break;
  }
  config.has_parallel_states = architecture.has_parallel_states;
  if (architecture.has_single_parts && config.state_layers.empty()) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} of all layers", values.full("attention.head_count_kv")));
  }
  for (std::size_t i = 0; i < config.feed_forward_layers.size(); ++i) {
    if (config.feed_forward_layers[i] != 0) config.state_layers[i] = 0;
  }
}

}  // namespace

DecoderConfig DecoderConfig::from(const io::File& file) {
  if (file.format() != io::Format::gguf) {
    throw Error(Errc::unsupported, file.path().string(),
                fmt::format("a language model is read from a GGUF file, this is {}",
                            io::name(file.format())));
  }
  if (file.metadata().get_or<std::string>("general.type", "model") == "adapter") {
    throw Error(Errc::unsupported, file.path().string(),
                "a file of adapters, which are given beside their model");
  }
  const Architecture& architecture = architecture_of(file);
  DecoderConfig config;
  config.architecture = architecture.name;
  const Hyperparameters values(file, config.architecture);
  config.layers = values.integer("block_count", 1, max_layers);
  refuse_other_layers(file, config.layers);
  // Layers that predict further tokens come last, and are not used.
  config.layers -= values.integer_or("nextn_predict_layers", 0, 0, config.layers - 1);
  config.width = values.integer("embedding_length", 1, max_width);
  config.context_length = values.integer("context_length", 1, max_context);
  config.has_mean_norms = architecture.has_mean_norms;
  const bool has_means = architecture.has_mean_norms || architecture.has_bare_norms;
  const bool is_of_means = has_means && !architecture.has_eps_of_rms;
  config.norm_eps = values.real_or(
      is_of_means ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5, 0,
      1);
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  config.tokens = config.vocabulary;
  if (architecture.has_attention) set_transformer({file, values, architecture, config});
  set_images(values, architecture, config);
  set_states(values, architecture, config);
  if (!config.is_causal && config.is_recurrent()) {
    throw Error(Errc::unsupported, file.path().string(), "states of attention that is not causal");
  }
  if (!config.state_layers.empty() && !config.is_recurrent()) {
    throw Error(Errc::unsupported, file.path().string(), "layers without keys and values");
  }
  for (std::int64_t i = 0; i < config.layers && !config.has_fused_attention; ++i) {
    config.has_fused_attention =
        config.attends(i) && file.find(fmt::format("blk.{}.attn_qkv.weight", i)) != nullptr;
  }
  config.has_fused_gate = architecture.gate == Architecture::Gate::fused;
  return config;
}

bool has_reordered_heads(const DecoderConfig& config) {
  const Architecture* const known = find_architecture(config.architecture);
  return known != nullptr && known->is_reordered;
}

}  // namespace tenon::models
