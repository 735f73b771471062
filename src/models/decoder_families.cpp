#include "models/decoder_families.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// The one number that layers have that are not 0.
std::int64_t number_or_none(const Hyperparameters& values, std::string_view key,
                            const std::vector<std::int64_t>& numbers, std::int64_t high) {
  const std::int64_t most = std::ranges::max(numbers);
  const bool is_one = std::ranges::all_of(
      numbers, [&](std::int64_t number) { return number == 0 || number == most; });
  if (is_one && most <= high) return most;
  throw Error(Errc::unsupported, values.file(),
              fmt::format("{} is not one number or 0 for each layer", values.full(key)));
}

/// Layers at the end without keys and values of their own; `usual`: where the file does not say how many.
void read_shared_values(const DecoderReading& from, std::int64_t usual) {
  constexpr std::string_view key = "attention.shared_kv_layers";
  DecoderConfig& config = from.config;
  const std::int64_t shared = from.values.integer_or(key, usual, 0, config.layers - 1);
  if (shared == 0) return;
  config.with_values = config.layers - shared;
  for (std::int64_t layer = config.with_values; layer < config.layers; ++layer) {
    if (config.layer_of_values(layer) >= 0) continue;
    from.values.refuse(key, std::to_string(shared),
                       fmt::format("those behind a layer {} a window",
                                   config.is_local(layer) ? "with" : "without"));
  }
}

}  // namespace

void require_size_of_keys(const Hyperparameters& values, std::string_view key, std::int64_t size) {
  if (values.integer_or(key, size, 1, max_width) == size) return;
  values.refuse(key, "another size", fmt::format("{}, as keys have", size));
}

std::int64_t read_global_every(const DecoderReading& from) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const Hyperparameters& values = from.values;
  const auto has_window = values.booleans(key);
  if (!has_window) return values.integer_or(key, from.architecture.global_every, 1, max_layers);
  const auto first = std::ranges::find(*has_window, 0);
  const std::int64_t every = first - has_window->begin() + 1;
  for (std::int64_t i = 0; i < from.config.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at < has_window->size() && ((*has_window)[at] != 0) == ((i + 1) % every != 0)) continue;
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} has no period", values.full(key)));
  }
  return every;
}

void read_expert_layers(const DecoderReading& from) {
  for (std::int64_t i = 0; i < from.config.layers; ++i) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    from.config.expert_layers.push_back(from.file.find(router) != nullptr);
  }
}

void assume_gemma2(const DecoderReading& from) {
  constexpr std::int64_t layers_of_27b = 46;  // whose queries have a scale of their own
  DecoderConfig& config = from.config;
  if (config.layers != layers_of_27b) return;
  config.attention_scale =
      1 / std::sqrt(static_cast<double>(config.width) / static_cast<double>(config.heads));
}

/// Grok 1 is what a file that says nothing has.
void assume_grok(const DecoderReading& from) {
  if (from.config.experts == 0) {
    throw Error(Errc::unsupported, from.values.file(), "grok without experts");
  }
  from.config.embedding_scale =
      from.values.real_or("embedding_scale", 78.38367176906169, 1e-6, 1e6);
  from.config.logit_scale = 0.5773502691896257;
  from.config.attention_scale =
      from.values.real_or("attention.output_scale", 0.08838834764831845, 1e-6, 1e6);
}

void assume_jais(const DecoderReading& from) {
  from.config.attention_scale = 1 / static_cast<double>(from.config.head_dim);
}

/// Of files from before these keys were written: of the paper (arXiv:2404.06395), section 4.
void assume_minicpm(const DecoderReading& from) {
  from.config.embedding_scale = 12;
  from.config.residual_scale = 1.4 / std::sqrt(static_cast<double>(from.config.layers));
  from.config.logit_scale = static_cast<double>(from.config.width) / 256;
}

/// Which parts the layers of Llama-Nemotron have: heads of keys and values, heads of queries only, which stand for one
/// projection, or neither, and a feed-forward part or none.
void read_deci_parts(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  DecoderConfig& config = from.config;
  const auto of = [&](std::string_view key) {
    return values.integers_of_layers(key, config.layers, 0, max_width);
  };
  const auto heads = of("attention.head_count"), kv_heads = of("attention.head_count_kv");
  const auto widths = of("feed_forward_length");
  config.heads = number_or_none(values, "attention.head_count", heads, max_heads);
  config.kv_heads = number_or_none(values, "attention.head_count_kv", kv_heads, max_heads);
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

/// Key-value heads of the layers and widths of their feed-forward parts, one number or one for each layer.
void read_gemma4_parts(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  DecoderConfig& config = from.config;
  config.heads = values.integer("attention.head_count", 1, max_heads);
  config.intermediate_size = std::ranges::max(
      values.integers_of_layers("feed_forward_length", config.layers, 1, max_width));
  config.layer_kv_heads =
      values.integers_of_layers("attention.head_count_kv", config.layers, 1, config.heads);
  config.kv_heads = config.layer_kv_heads.front();
  for (const std::int64_t heads : config.layer_kv_heads) {
    if (config.heads % heads == 0) continue;
    values.refuse("attention.head_count_kv", std::to_string(heads),
                  fmt::format("divisors of {} heads", config.heads));
  }
  config.head_dim = values.integer("attention.key_length", 1, max_width);
  require_size_of_keys(values, "attention.value_length", config.head_dim);
  config.value_dim = config.head_dim;
}

/// Layers with a window have heads of another size.
void read_gemma4_windows(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  DecoderConfig& config = from.config;
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
  require_size_of_keys(values, "attention.value_length_swa", config.local_head_dim);
  config.local_rope.dims = values.integer_or("rope.dimension_count_swa",
                                             std::min(config.rope.dims, config.local_head_dim), 2,
                                             config.local_head_dim);
  if (config.local_rope.dims % 2 != 0) {
    values.refuse("rope.dimension_count_swa", std::to_string(config.local_rope.dims),
                  "even numbers");
  }
}

/// Chunks and temperature, of which files say nothing.
void read_llama4_chunks(const DecoderReading& from) {
  constexpr std::int64_t chunk = 8192;
  constexpr std::int64_t experts_without_norms = 128;  // Maverick's
  DecoderConfig& config = from.config;
  from.values.require_integer("attention.sliding_window", chunk);
  if (config.experts == 0) {
    throw Error(Errc::unsupported, from.values.file(), "llama4 without experts");
  }
  config.attention_chunk = chunk;
  config.global_every = read_global_every(from);
  config.temperature = {.scale = 0.1, .length = chunk, .offset = 1};
  config.has_rotated_unit_norms = config.experts != experts_without_norms;
}

/// All layers have windows but each third, beginning with the first.
void read_modern_bert_windows(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  DecoderConfig& config = from.config;
  config.window = values.integer_or("attention.sliding_window", 0, 0, max_context);
  if (config.window == 0) return;
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto listed = values.booleans(key);
  const std::int64_t every = listed ? 1 : values.integer_or(key, 3, 1, max_layers);
  if (listed && std::ssize(*listed) < config.layers) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} does not name every layer", values.full(key)));
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    config.local_layers.push_back(listed ? (*listed)[static_cast<std::size_t>(i)] : i % every != 0);
  }
  config.local_rope.theta = values.real_or("rope.freq_base_swa", 10000, 1, 1e30);
}

/// Parameters of the activation, which the file has as the numbers that were trained.
void read_apertus(const DecoderReading& from) {
  const Hyperparameters values(from.file, "xielu");
  const std::int64_t layers = from.config.layers;
  const auto negative = values.reals_of_layers("alpha_n", layers, 0);
  const auto positive = values.reals_of_layers("alpha_p", layers, 0);
  const auto beta = values.reals_of_layers("beta", layers, 0.5);
  const auto eps = values.reals_of_layers("eps", layers, -1e-6);
  const auto softplus = [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i) {
    from.config.own_activations.push_back({.positive = softplus(positive[i]),
                                           .negative = beta[i] + softplus(negative[i]),
                                           .beta = beta[i],
                                           .eps = eps[i]});
  }
}

/// Streams, shared keys and values, and sparse activations.
void read_gemma3n(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  DecoderConfig& config = from.config;
  AltUpSizes sizes;
  sizes.streams = values.integer_or("altup.num_inputs", sizes.streams, 2, 64);
  sizes.active = values.integer_or("altup.active_idx", 0, 0, sizes.streams - 1);
  constexpr std::int64_t usual_inputs = 256;
  config.layer_inputs =
      values.integer_or("embedding_length_per_layer_input", usual_inputs, 1, max_width);
  constexpr std::int64_t usual = 20;  // with keys and values, in both sizes of the model
  read_shared_values(from, std::max<std::int64_t>(config.layers - usual, 0));
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

void read_gemma4(const DecoderReading& from) {
  from.config.layer_inputs =
      from.values.integer_or("embedding_length_per_layer_input", 0, 0, max_width);
  read_shared_values(from, 0);
  if (from.config.experts > 0) read_expert_layers(from);
}

/// The gates' activation.
void read_modern_bert(const DecoderReading& from) {
  const Hyperparameters& values = from.values;
  const std::string activation = values.text_or("hidden_act", "gelu");
  if (activation != "gelu" && activation != "silu") {
    throw Error(
        Errc::unsupported, values.file(),
        fmt::format("{} '{}'; known are gelu, silu", values.full("hidden_act"), activation));
  }
  from.config.activation = Name(activation);
}

}  // namespace tenon::models
