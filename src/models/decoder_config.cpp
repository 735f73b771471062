#include "hyperparameters.hpp"
#include "models/architectures.hpp"

#include <tenon/error.hpp>
#include <tenon/models/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::models {
namespace {

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

/// Refuses a key with a value that changes what is computed, in ways that are not computed here.
void require_default(const Hyperparameters& values, std::string_view key, double allowed) {
  const double value = values.real_or(key, allowed, -1e30, 1e30);
  if (value == allowed) return;
  throw Error(Errc::unsupported, values.file(), fmt::format("{} is {}", values.full(key), value));
}

/// The same of an integer.
void require_number(const Hyperparameters& values, std::string_view key, std::int64_t allowed) {
  const std::int64_t value = values.integer_or(key, allowed, 0, max_width);
  if (value == allowed) return;
  throw Error(Errc::unsupported, values.file(), fmt::format("{} is {}", values.full(key), value));
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
    require_number(values, "expert_used_count", 2);
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
  require_default(values, "rope.scaling.alpha", 0);
  std::string scaling = values.text_or("rope.scaling.type", "none");
  if (scaling == "longrope") {  // whose frequencies are the file's
    require_default(values, "rope.scaling.factor", 1);
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
  if (architecture.name == "grok") rope.beta_fast = 8;  // of Grok 2
  rope.beta_fast = values.real_or("rope.scaling.yarn_beta_fast", rope.beta_fast, 1e-6, 1e6);
  rope.beta_slow = values.real_or("rope.scaling.yarn_beta_slow", rope.beta_slow, 1e-6, 1e6);
  require_default(values, "rope.scaling.yarn_ext_factor", 1);
  require_default(values, "rope.scaling.yarn_attn_factor", 1);
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
  if (values.integer_or("attention.value_length", config.head_dim, 1, max_width) !=
      config.head_dim) {
    values.refuse("attention.value_length", "another size",
                  fmt::format("{}, as keys have", config.head_dim));
  }
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

/// Which parts the layers of Llama-Nemotron have (deci): heads of keys and values, heads of queries only, which stand for one
/// projection, or neither, and a feed-forward part or none.
void set_deci(const Hyperparameters& values, DecoderConfig& config) {
  const auto of = [&](std::string_view key) {
    std::vector<std::int64_t> numbers;
    if (const auto listed = values.integers(key)) {
      numbers.assign(listed->begin(), listed->end());
    } else {
      numbers.assign(static_cast<std::size_t>(config.layers), values.integer(key, 1, max_width));
    }
    if (std::ssize(numbers) < config.layers || std::ranges::min(numbers) < 0 ||
        std::ranges::max(numbers) > max_width) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("{} has no number for each layer", values.full(key)));
    }
    return numbers;
  };
  const auto heads = of("attention.head_count"), kv_heads = of("attention.head_count_kv");
  const auto widths = of("feed_forward_length");
  const auto one_of = [&](std::string_view key, const std::vector<std::int64_t>& numbers) {
    const std::int64_t most = std::ranges::max(numbers);
    if (most > max_heads || !std::ranges::all_of(numbers, [&](std::int64_t number) {
          return number == 0 || number == most;
        })) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("{} is not one number or 0 for each layer", values.full(key)));
    }
    return most;
  };
  config.heads = one_of("attention.head_count", heads);
  config.kv_heads = one_of("attention.head_count_kv", kv_heads);
  if (config.heads == 0) {
    values.refuse("attention.head_count", "0", "a number of heads in one layer at least");
  }
  if (config.kv_heads == 0 || config.heads % config.kv_heads != 0) {
    values.refuse("attention.head_count_kv", std::to_string(config.kv_heads),
                  fmt::format("divisors of {} heads", config.heads));
  }
  config.head_dim =
      values.integer_or("attention.key_length", config.width / config.heads, 1, max_width);
  config.value_dim = config.head_dim;
  config.intermediate_size = std::ranges::max(widths);
  for (std::size_t i = 0; i < static_cast<std::size_t>(config.layers); ++i) {
    LayerParts parts;
    if (kv_heads[i] == 0) parts.mixing = heads[i] > 0 ? Mixing::projection : Mixing::none;
    parts.has_feed_forward = widths[i] > 0;
    if (parts.mixing != Mixing::none && !parts.has_feed_forward) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("layer {} with attention and without a feed-forward part", i));
    }
    config.parts.push_back(parts);
  }
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
  require_default(values, "attention.temperature_scale", 0);
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

/// The period of layers without a window, which some files have as a list of those that have one.
std::int64_t global_every(const Hyperparameters& values, const Architecture& architecture,
                          std::int64_t layers) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto has_window = values.booleans(key);
  if (!has_window) return values.integer_or(key, architecture.global_every, 1, max_layers);
  const auto first = std::ranges::find(*has_window, 0);
  const std::int64_t every = first - has_window->begin() + 1;
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at < has_window->size() && ((*has_window)[at] != 0) == ((i + 1) % every != 0)) continue;
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} has no period", values.full(key)));
  }
  return every;
}

/// Layers with a sliding window.
void set_windows(const Hyperparameters& values, const Architecture& architecture,
                 DecoderConfig& config) {
  const std::string& arch = config.architecture;
  const bool has_own_theta = arch == "gemma3" || arch == "gemma3n" || arch == "gemma-embedding";
  const bool is_assumed = arch == "gemma2" || (arch == "exaone4" && config.layers == 64);
  config.window =
      values.integer_or("attention.sliding_window", is_assumed ? 4096 : 0, 0, max_context);
  config.global_every = global_every(values, architecture, config.layers);
  config.local_rope.theta =
      values.real_or("rope.freq_base_swa", has_own_theta ? 10000 : config.rope.theta, 1, 1e30);
  if (!architecture.has_plain_local_rope) return;
  config.local_rope.scaling = "none";
  config.local_rope.factor = 1;
  config.local_rope.attention_factor = 0;
}

/// What multiplies embeddings, what layers add, scores and logits.
void set_scales(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  constexpr double largest = 1e6;
  if (config.architecture == "jais") {
    config.attention_scale = 1 / static_cast<double>(config.head_dim);
  }
  if (config.architecture == "gemma3n" || config.architecture == "gemma4") {
    config.attention_scale = 1;
    config.logit_softcap = values.real_or("final_logit_softcapping", 30, 0, largest);
  }
  config.attention_scale = values.real_or("attention.scale", config.attention_scale, 0, largest);
  if (architecture.has_scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  }
  if (config.architecture == "command-r" || config.architecture == "cohere2") {
    const double scale = values.real_or("logit_scale", 1, 0, largest);
    if (scale != 0) config.logit_scale = scale;
  }
  if (config.architecture == "grok") {  // Grok 1 is what a file that says nothing has
    config.embedding_scale = values.real_or("embedding_scale", 78.38367176906169, 1e-6, largest);
    config.logit_scale = values.real_or("logit_scale", 0.5773502691896257, 1e-6, largest);
    config.attention_scale =
        values.real_or("attention.output_scale", 0.08838834764831845, 1e-6, largest);
    config.attention_softcap = values.real_or("attn_logit_softcapping", 30, 1e-6, largest);
    config.logit_softcap = values.real_or("final_logit_softcapping", 0, 0, largest);
    if (config.experts == 0) throw Error(Errc::unsupported, values.file(), "grok without experts");
  }
  if (config.architecture == "gemma2") {
    const std::int64_t layers_of_27b = 46;  // whose queries have a scale of their own
    if (config.layers == layers_of_27b) {
      config.attention_scale =
          1 / std::sqrt(static_cast<double>(config.width) / static_cast<double>(config.heads));
    }
    config.attention_softcap = values.real_or("attn_logit_softcapping", 50, 0, largest);
    config.logit_softcap = values.real_or("final_logit_softcapping", 30, 0, largest);
  }
  if (!architecture.has_scales) return;
  // Files of MiniCPM from before these keys were written: of its paper (arXiv:2404.06395), section 4.
  const bool is_minicpm = config.architecture == "minicpm" || config.architecture == "minicpm3";
  const double depth = 1.4 / std::sqrt(static_cast<double>(config.layers));
  config.embedding_scale = values.real_or("embedding_scale", is_minicpm ? 12 : 1, 0, largest);
  config.residual_scale = values.real_or("residual_scale", is_minicpm ? depth : 1, 0, largest);
  const double divisor = values.real_or(
      "logit_scale", is_minicpm ? static_cast<double>(config.width) / 256 : 1, 1e-6, largest);
  config.logit_scale = 1 / divisor;
  if (config.embedding_scale == 0) config.embedding_scale = 1;
  if (config.residual_scale == 0) config.residual_scale = 1;
}

/// Which layers of Jamba have experts: those that have a router.
void set_expert_layers(const io::File& file, DecoderConfig& config) {
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    config.expert_layers.push_back(file.find(router) != nullptr);
  }
}

/// Llama 4's: in the last of every so many layers.
void set_interleaved_experts(const Hyperparameters& values, DecoderConfig& config) {
  const std::int64_t every = values.integer("interleave_moe_layer_step", 1, max_layers);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    config.expert_layers.push_back((i + 1) % every == 0);
  }
}

/// Chunks and temperature of Llama 4, of which files say nothing.
void set_llama4(const Hyperparameters& values, const Architecture& architecture,
                DecoderConfig& config) {
  constexpr std::int64_t chunk = 8192;
  constexpr std::int64_t experts_without_norms = 128;  // Maverick's
  require_number(values, "attention.sliding_window", chunk);
  if (config.experts == 0) {
    throw Error(Errc::unsupported, values.file(), "llama4 without experts");
  }
  config.attention_chunk = chunk;
  config.global_every = global_every(values, architecture, config.layers);
  config.temperature = {.scale = 0.1, .length = chunk, .offset = 1};
  config.has_rotated_unit_norms = config.experts != experts_without_norms;
}

/// Layers at the end without keys and values of their own; `usual`: where the file does not say how many.
void set_shared_values(const Hyperparameters& values, std::int64_t usual, DecoderConfig& config) {
  constexpr std::string_view key = "attention.shared_kv_layers";
  const std::int64_t shared = values.integer_or(key, usual, 0, config.layers - 1);
  if (shared == 0) return;
  config.with_values = config.layers - shared;
  for (std::int64_t layer = config.with_values; layer < config.layers; ++layer) {
    if (config.layer_of_values(layer) >= 0) continue;
    values.refuse(key, std::to_string(shared),
                  fmt::format("those behind a layer {} a window",
                              config.is_local(layer) ? "with" : "without"));
  }
}

/// What tells the layers of Gemma 4 apart: those with a window have heads of another size, and maybe other numbers of
/// key-value heads.
void set_gemma4(const io::File& file, const Hyperparameters& values, DecoderConfig& config) {
  constexpr std::string_view pattern = "attention.sliding_window_pattern";
  const auto listed = values.booleans(pattern);
  if (!listed || std::ssize(*listed) < config.layers) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} does not name every layer", values.full(pattern)));
  }
  config.local_layers.assign(listed->begin(), listed->begin() + config.layers);
  config.window = values.integer("attention.sliding_window", 1, max_context);
  config.local_rope.theta = values.real_or("rope.freq_base_swa", 10000, 1, 1e30);
  config.local_rope.scaling = "none";
  config.local_rope.factor = 1;
  config.local_rope.attention_factor = 0;
  config.local_head_dim = values.integer("attention.key_length_swa", 1, max_width);
  if (values.integer("attention.value_length_swa", 1, max_width) != config.local_head_dim) {
    values.refuse("attention.value_length_swa", "another size",
                  fmt::format("{}, as keys have", config.local_head_dim));
  }
  config.local_rope.dims = values.integer_or("rope.dimension_count_swa",
                                             std::min(config.rope.dims, config.local_head_dim), 2,
                                             config.local_head_dim);
  if (config.local_rope.dims % 2 != 0) {
    values.refuse("rope.dimension_count_swa", std::to_string(config.local_rope.dims),
                  "even numbers");
  }
  config.layer_inputs = values.integer_or("embedding_length_per_layer_input", 0, 0, max_width);
  set_shared_values(values, 0, config);
  if (config.experts > 0) set_expert_layers(file, config);
}

/// Key-value heads of Gemma 4's layers and widths of their feed-forward parts, one number or one for each layer.
void set_gemma4_heads(const Hyperparameters& values, DecoderConfig& config) {
  const auto of = [&](std::string_view key, std::int64_t most) {
    std::vector<std::int64_t> numbers;
    if (const auto listed = values.integers(key)) {
      numbers.assign(listed->begin(), listed->end());
    } else {
      numbers.assign(static_cast<std::size_t>(config.layers), values.integer(key, 1, most));
    }
    if (std::ssize(numbers) < config.layers || std::ranges::min(numbers) < 1 ||
        std::ranges::max(numbers) > most) {
      throw Error(
          Errc::unsupported, values.file(),
          fmt::format("{} has no number from 1 to {} for each layer", values.full(key), most));
    }
    numbers.resize(static_cast<std::size_t>(config.layers));
    return numbers;
  };
  config.intermediate_size = std::ranges::max(of("feed_forward_length", max_width));
  config.layer_kv_heads = of("attention.head_count_kv", config.heads);
  config.kv_heads = config.layer_kv_heads.front();
  for (const std::int64_t heads : config.layer_kv_heads) {
    if (config.heads % heads == 0) continue;
    values.refuse("attention.head_count_kv", std::to_string(heads),
                  fmt::format("divisors of {} heads", config.heads));
  }
  config.head_dim = values.integer("attention.key_length", 1, max_width);
  if (values.integer_or("attention.value_length", config.head_dim, 1, max_width) !=
      config.head_dim) {
    values.refuse("attention.value_length", "another size",
                  fmt::format("{}, as keys have", config.head_dim));
  }
  config.value_dim = config.head_dim;
}

/// Streams, shared keys and values, and sparse activations of Gemma 3n.
void set_gemma3n(const Hyperparameters& values, DecoderConfig& config) {
  AltUpSizes sizes;
  sizes.streams = values.integer_or("altup.num_inputs", sizes.streams, 2, 64);
  sizes.active = values.integer_or("altup.active_idx", 0, 0, sizes.streams - 1);
  constexpr std::int64_t usual_inputs = 256;
  config.layer_inputs =
      values.integer_or("embedding_length_per_layer_input", usual_inputs, 1, max_width);
  constexpr std::int64_t usual = 20;  // with keys and values, in both sizes of the model
  set_shared_values(values, std::max<std::int64_t>(config.layers - usual, 0), config);
  config.alt_up = sizes;
  const double of_the_largest_twentieth = 1.6448533535003662;
  const auto listed = values.reals("activation_sparsity_scale");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    constexpr std::int64_t sparse_layers = 10;
    std::optional<double> cutoff;
    if (!listed && i < sparse_layers) cutoff = of_the_largest_twentieth;
    const auto at = static_cast<std::size_t>(i);
    if (listed && at < listed->size() && std::isfinite((*listed)[at])) cutoff = (*listed)[at];
    config.cutoffs.push_back(cutoff);
  }
}

/// Parameters of Apertus' activation, which the file has as the numbers that were trained.
void set_xielu(const io::File& file, DecoderConfig& config) {
  const Hyperparameters values(file, "xielu");
  const auto of_layer = [&](std::string_view key, double fallback) {
    std::vector<double> numbers;
    if (const auto listed = values.reals(key)) {
      numbers.assign(listed->begin(), listed->end());
      if (std::ssize(numbers) < config.layers ||
          !std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); })) {
        throw Error(Errc::unsupported, values.file(),
                    fmt::format("{} has no number for each layer", values.full(key)));
      }
    } else {
      numbers.assign(static_cast<std::size_t>(config.layers),
                     values.real_or(key, fallback, -1e3, 1e3));
    }
    return numbers;
  };
  const auto negative = of_layer("alpha_n", 0), positive = of_layer("alpha_p", 0);
  const auto beta = of_layer("beta", 0.5), eps = of_layer("eps", -1e-6);
  const auto softplus = [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  for (std::size_t i = 0; i < static_cast<std::size_t>(config.layers); ++i) {
    config.own_activations.push_back({.positive = softplus(positive[i]),
                                      .negative = beta[i] + softplus(negative[i]),
                                      .beta = beta[i],
                                      .eps = eps[i]});
  }
}

/// How the model knows of positions.
void set_positions(const Hyperparameters& values, const Architecture& architecture,
                   DecoderConfig& config) {
  const std::string& arch = config.architecture;
  Positions positions = architecture.positions;
  constexpr std::int64_t layers_of_13b = 40;  // of Baichuan, which has no rotary embedding
  if (arch == "baichuan" && config.layers == layers_of_13b) positions = Positions::alibi;
  if (positions == Positions::alibi) {
    const bool may_have_none = arch == "mpt" || arch == "jais";
    config.max_alibi_bias =
        values.real_or("attention.max_alibi_bias", may_have_none ? 0 : 8, 0, 1e3);
  }
  // Granite's files say so of models without positions.
  const bool is_rotated =
      !architecture.has_scales || values.boolean_or("rope.scaling.finetuned", true);
  config.has_rope = positions == Positions::rotary && is_rotated;
}

/// Of Ministral 3: the temperature of queries, and YaRN with "mscale_all_dim", by which the rotation's factor is divided.
void set_mistral3(const Hyperparameters& values, DecoderConfig& config) {
  config.temperature.scale = values.real_or("attention.temperature_scale", 0, 0, 1e3);
  config.temperature.length = config.rope.original_context;
  const double all_dims = values.real_or("rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
  if (config.rope.scaling.text() != "yarn" || config.rope.factor <= 1) return;
  config.rope.attention_factor =
      config.rope.magnitude() / (1 + 0.1 * all_dims * std::log(config.rope.factor));
}

/// Windows of ModernBERT, which all layers have but each third, beginning with the first, and the gates' activation.
void set_modern_bert(const Hyperparameters& values, DecoderConfig& config) {
  config.window = values.integer_or("attention.sliding_window", 0, 0, max_context);
  if (config.window > 0) {
    constexpr std::string_view key = "attention.sliding_window_pattern";
    const auto listed = values.booleans(key);
    const std::int64_t every = listed ? 1 : values.integer_or(key, 3, 1, max_layers);
    if (listed && std::ssize(*listed) < config.layers) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("{} does not name every layer", values.full(key)));
    }
    for (std::int64_t i = 0; i < config.layers; ++i) {
      config.local_layers.push_back(listed ? (*listed)[static_cast<std::size_t>(i)]
                                           : i % every != 0);
    }
    config.local_rope.theta = values.real_or("rope.freq_base_swa", 10000, 1, 1e30);
  }
  const std::string activation = values.text_or("hidden_act", "gelu");
  if (activation != "gelu" && activation != "silu") {
    throw Error(
        Errc::unsupported, values.file(),
        fmt::format("{} '{}'; known are gelu, silu", values.full("hidden_act"), activation));
  }
  config.activation = Name(activation);
}

/// Of a model whose positions all see each other: windows are on both sides, half of the size on each.
void set_mutual(const Hyperparameters& values, DecoderConfig& config) {
  const std::string& arch = config.architecture;
  if (config.window > 0) {
    if (arch != "gemma-embedding" && arch != "modern-bert") {
      throw Error(Errc::unsupported, values.file(), "windows of attention that is not causal");
    }
    config.window = config.window / 2 + 1;  // positions on one side, with a query's own
  }
  if (config.latent || config.attention_chunk > 0) {
    throw Error(Errc::unsupported, values.file(),
                "latent attention, or one in chunks, that is not causal");
  }
}

/// Heads, their rotation, and feed-forward parts.
void set_transformer(const io::File& file, const Hyperparameters& values,
                     const Architecture& architecture, DecoderConfig& config) {
  const std::string& arch = config.architecture;
  config.experts = values.integer_or("expert_count", 0, 0, max_experts);
  if (config.experts > 0) {
    config.router = router_of(values, architecture, config);
    config.dense_layers = values.integer_or("leading_dense_block_count", 0, 0, config.layers);
    if (arch == "jamba") set_expert_layers(file, config);
    if (arch == "llama4") {
      set_interleaved_experts(values, config);
    } else {
      require_number(values, "interleave_moe_layer_step", 1);
    }
    const bool may_be_latent = arch == "nemotron_h_moe";
    if (!may_be_latent) require_number(values, "moe_latent_size", 0);
    config.latent_experts =
        may_be_latent ? values.integer_or("moe_latent_size", 0, 0, max_width) : 0;
  }
  // Files of DeepSeek from before 2025 have "attn_kv_b" in one, and not the key that is asked for.
  const bool is_deepseek = arch == "deepseek2";
  const bool is_latent = is_deepseek && values.contains("attention.key_length_mla");
  const bool is_expanded = (is_deepseek && !is_latent) || arch == "minicpm3" || arch == "plm";
  if (arch == "deci") {
    set_deci(values, config);
  } else if (arch == "gemma4") {
    config.heads = values.integer("attention.head_count", 1, max_heads);
    set_gemma4_heads(values, config);
  } else {
    if (!config.has_experts(0) || architecture.has_single_parts) {
      set_feed_forward(values, architecture, config);
    }
    config.heads = values.integer("attention.head_count", 1, max_heads);
    if (is_latent) {
      set_latent_heads(values, config);
    } else if (is_expanded) {
      set_expanded_heads(values, config);
    } else {
      set_heads(values, config);
    }
  }
  config.attention_clip = values.real_or("attention.clamp_kqv", 0, 0, 1e6);
  if (is_latent || is_expanded) require_default(values, "attention.clamp_kqv", 0);
  config.rope = rope_of(values, architecture, config);
  if (is_deepseek) set_latent_scale(values, config);
  if (arch == "mistral3") set_mistral3(values, config);
  config.local_rope = config.rope;
  config.activation = Name(architecture.activation);
  set_scales(values, architecture, config);
  if (arch == "llama4") {
    set_llama4(values, architecture, config);
  } else if (arch == "gemma4") {
    set_gemma4(file, values, config);
  } else if (architecture.global_every > 0) {
    set_windows(values, architecture, config);
  }
  if (arch == "gemma3n") set_gemma3n(values, config);
  if (arch == "apertus") set_xielu(file, config);
  set_positions(values, architecture, config);
  // Layers that see everything, of those that have windows, or every fourth.
  const bool follows_windows = architecture.global_every > 0 && arch != "llama4";
  if (!follows_windows || config.window > 0) {
    config.unrotated_every = follows_windows && architecture.unrotated_every > 0
                                 ? config.global_every
                                 : architecture.unrotated_every;
  }
  config.is_causal = values.boolean_or("attention.causal", architecture.is_causal);
  if (arch == "modern-bert") set_modern_bert(values, config);
  if (!config.is_causal) set_mutual(values, config);
  config.is_parallel = architecture.is_parallel;
  if (arch == "gptneox") config.is_parallel = values.boolean("use_parallel_residual");
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
  const std::string& arch = config.architecture;
  const Hyperparameters values(file, arch);
  config.layers = values.integer("block_count", 1, max_layers);
  // Layers that predict further tokens come last, and are not used.
  config.layers -= values.integer_or("nextn_predict_layers", 0, 0, config.layers - 1);
  config.width = values.integer("embedding_length", 1, max_width);
  config.context_length = values.integer("context_length", 1, max_context);
  config.has_mean_norms = architecture.has_mean_norms;
  const bool has_means = architecture.has_mean_norms || architecture.has_bare_norms;
  // Files of Phi-3.5-MoE have it under the other norms' name.
  config.norm_eps =
      values.real_or(has_means && arch != "phimoe" ? "attention.layer_norm_epsilon"
                                                   : "attention.layer_norm_rms_epsilon",
                     1e-5, 0, 1);
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  config.tokens = config.vocabulary;
  if (architecture.has_attention) set_transformer(file, values, architecture, config);
  set_images(values, architecture, config);
  set_states(values, architecture, config);
  if (!config.is_causal && config.is_recurrent()) {
    throw Error(Errc::unsupported, file.path().string(), "states of attention that is not causal");
  }
  if (!config.state_layers.empty() && !config.is_recurrent()) {
    throw Error(Errc::unsupported, file.path().string(), "layers without keys and values");
  }
  if (arch == "stablelm") config.is_parallel = file.find("blk.0.ffn_norm.weight") == nullptr;
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
