#include <tenon/error.hpp>
#include <tenon/models/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::models {
namespace {

/// Reads "<architecture>.<key>" values and refuses those out of range.
class Hyperparameters {
 public:
  Hyperparameters(const io::File& file, std::string architecture)
      : metadata_(file.metadata()), file_(file.path().string()), prefix_(std::move(architecture)) {}

  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    return checked(key, metadata_.get<std::int64_t>(full(key)), low, high);
  }
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                          std::int64_t high) const {
    return checked(key, metadata_.get_or<std::int64_t>(full(key), fallback), low, high);
  }
  double real_or(std::string_view key, double fallback, double low, double high) const {
    const double value = metadata_.get_or<double>(full(key), fallback);
    if (!(value >= low && value <= high))
      refuse(key, fmt::format("{}", value), fmt::format("{} to {}", low, high));
    return value;
  }
  bool boolean(std::string_view key) const { return metadata_.get<bool>(full(key)); }
  /// Nothing where there is another value than a list of booleans.
  std::optional<std::vector<std::uint8_t>> booleans(std::string_view key) const {
    const io::MetaValue* const value = metadata_.find(full(key));
    if (value == nullptr || !std::holds_alternative<io::MetaArray>(*value)) return std::nullopt;
    return metadata_.get<std::vector<std::uint8_t>>(full(key));
  }
  /// The same of integers.
  std::optional<std::vector<std::int32_t>> integers(std::string_view key) const {
    const io::MetaValue* const value = metadata_.find(full(key));
    if (value == nullptr || !std::holds_alternative<io::MetaArray>(*value)) return std::nullopt;
    return metadata_.get<std::vector<std::int32_t>>(full(key));
  }
  bool boolean_or(std::string_view key, bool fallback) const {
    return metadata_.get_or<bool>(full(key), fallback);
  }
  std::string text_or(std::string_view key, std::string fallback) const {
    return metadata_.get_or<std::string>(full(key), std::move(fallback));
  }
  bool contains(std::string_view key) const { return metadata_.contains(full(key)); }

  [[noreturn]] void refuse(std::string_view key, const std::string& value,
                           const std::string& allowed) const {
    throw Error(Errc::bad_hyperparameter, file_,
                fmt::format("{} is {}, allowed: {}", full(key), value, allowed));
  }

  const std::string& file() const noexcept { return file_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  std::int64_t checked(std::string_view key, std::int64_t value, std::int64_t low,
                       std::int64_t high) const {
    if (value < low || value > high)
      refuse(key, std::to_string(value), fmt::format("{} to {}", low, high));
    return value;
  }

  const io::Metadata& metadata_;
  std::string file_;
  std::string prefix_;
};

// Far above all existing models, far below an overflow.
constexpr std::int64_t max_layers = 512;
constexpr std::int64_t max_width = 1 << 20;
constexpr std::int64_t max_heads = 1 << 14;
constexpr std::int64_t max_experts = 1 << 16;
constexpr std::int64_t max_context = std::int64_t{1} << 31;

/// What a file does not say follows from its architecture.
struct Architecture {
  /// Where a feed-forward part has the weight of its gate: for itself, above that of "ffn_up" in one tensor, or nowhere.
  enum class Gate : std::uint8_t { own, fused, none };

  std::string_view name;
  /// Rows of queries and keys are stored in the order for interleaved rotation, which the model had
  /// (`is_interleaved`) or which its converter brought them into (`is_reordered`).
  bool is_interleaved = false;
  bool is_reordered = false;
  bool has_position_embeddings = false;  ///< in place of a rotary embedding
  bool has_mean_norms = false;
  bool has_first_norms = true;  ///< before each part of a layer
  bool has_last_norms = false;  ///< behind each part of a layer
  bool is_parallel = false;
  std::string_view feed_forward_norm = "ffn_norm";
  std::string_view activation = "silu";
  Gate gate = Gate::own;
  bool has_normalized_router = true;
  bool has_gated_attention = false;  ///< and layers of nn::GatedDeltaNet
  /// With "embedding_scale", "residual_scale" and "logit_scale", by which logits are divided.
  bool has_scales = false;
  bool has_scaled_embedding = false;  ///< by the root of the width
  /// Layers have sliding windows, but each such one; 0: none has.
  std::int64_t global_every = 0;
  bool has_plain_local_rope = false;  ///< layers with a window: no scaling of positions
  std::int64_t unrotated_every = 0;   ///< see DecoderConfig

  bool has_interleaved_rope() const noexcept { return is_interleaved || is_reordered; }
};
using Gate = Architecture::Gate;
constexpr Architecture known_architectures[] = {
    {.name = "llama", .is_reordered = true},
    {.name = "qwen"},
    {.name = "qwen2"},
    {.name = "qwen2moe", .has_normalized_router = false},
    {.name = "qwen3"},
    {.name = "qwen3moe"},
    {.name = "olmoe", .has_normalized_router = false},
    {.name = "olmo2",
     .has_first_norms = false,
     .has_last_norms = true,
     .global_every = 4,
     .has_plain_local_rope = true},
    {.name = "gpt-oss",
     .feed_forward_norm = "post_attention_norm",
     .activation = "swiglu_oai",
     .global_every = 2},
    {.name = "deepseek", .is_reordered = true, .has_normalized_router = false},
    {.name = "deepseek2", .is_interleaved = true, .has_normalized_router = false},
    {.name = "dots1"},
    {.name = "gemma", .activation = "gelu_tanh", .has_scaled_embedding = true},
    {.name = "gemma2",
     .has_last_norms = true,
     .activation = "gelu_tanh",
     .has_scaled_embedding = true,
     .global_every = 2},
    {.name = "gemma3",
     .has_last_norms = true,
     .activation = "gelu_tanh",
     .has_scaled_embedding = true,
     .global_every = 6,
     .has_plain_local_rope = true},
    {.name = "phi2",
     .has_mean_norms = true,
     .is_parallel = true,
     .activation = "gelu_tanh",
     .gate = Gate::none},
    {.name = "phi3", .gate = Gate::fused},
    {.name = "smollm3", .is_reordered = true, .unrotated_every = 4},
    {.name = "granite", .is_reordered = true, .has_scales = true},
    {.name = "granitemoe", .is_reordered = true, .has_scales = true},
    {.name = "minicpm", .is_reordered = true, .has_scales = true},
    {.name = "internlm2", .is_reordered = true},
    {.name = "xverse", .is_reordered = true},
    {.name = "orion", .has_mean_norms = true},
    {.name = "exaone"},
    {.name = "exaone4",
     .has_first_norms = false,
     .has_last_norms = true,
     .global_every = 4,
     .unrotated_every = 4},
    {.name = "chatglm", .is_interleaved = true, .gate = Gate::fused},
    {.name = "glm4", .is_interleaved = true, .has_last_norms = true, .gate = Gate::fused},
    {.name = "glm4moe", .feed_forward_norm = "post_attention_norm"},
    {.name = "ernie4_5", .is_interleaved = true},
    {.name = "seed_oss", .feed_forward_norm = "post_attention_norm"},
    {.name = "arcee", .is_reordered = true, .activation = "relu_squared", .gate = Gate::none},
    {.name = "nemotron", .has_mean_norms = true, .activation = "relu_squared", .gate = Gate::none},
    {.name = "stablelm", .has_mean_norms = true},
    {.name = "starcoder2", .has_mean_norms = true, .activation = "gelu_tanh", .gate = Gate::none},
    {.name = "command-r", .is_interleaved = true, .has_mean_norms = true, .is_parallel = true},
    {.name = "cohere2",
     .is_interleaved = true,
     .has_mean_norms = true,
     .is_parallel = true,
     .global_every = 4,
     .unrotated_every = 4},
    {.name = "falcon",
     .has_mean_norms = true,
     .is_parallel = true,
     .activation = "gelu",
     .gate = Gate::none},
    {.name = "gptneox", .has_mean_norms = true, .activation = "gelu", .gate = Gate::none},
    {.name = "gpt2",
     .has_position_embeddings = true,
     .has_mean_norms = true,
     .activation = "gelu_tanh",
     .gate = Gate::none},
    {.name = "starcoder",
     .has_position_embeddings = true,
     .has_mean_norms = true,
     .activation = "gelu_tanh",
     .gate = Gate::none},
    {.name = "qwen35", .feed_forward_norm = "post_attention_norm", .has_gated_attention = true},
    {.name = "qwen35moe", .feed_forward_norm = "post_attention_norm", .has_gated_attention = true},
    {.name = "lfm2"},
    {.name = "lfm2moe"},
    {.name = "granitehybrid", .is_reordered = true, .has_scales = true},
    {.name = "mamba"},
    {.name = "mamba2"},
    {.name = "rwkv7", .has_mean_norms = true},
};

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(known_architectures, name, &Architecture::name);
  return found == std::end(known_architectures) ? nullptr : found;
}

const Architecture& architecture_of(const io::File& file) {
  const auto name = file.metadata().get<std::string>("general.architecture");
  if (const Architecture* const known = find_architecture(name)) return *known;
  std::vector<std::string_view> names;
  for (const Architecture& known : known_architectures) names.push_back(known.name);
  throw Error(Errc::unsupported, file.path().string(),
              fmt::format("architecture '{}'; known are {}", name, fmt::join(names, ", ")));
}

/// Refuses a key with a value that changes what is computed, in ways that are not computed here.
void require_default(const Hyperparameters& values, std::string_view key, double allowed) {
  const double value = values.real_or(key, allowed, -1e30, 1e30);
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
  const std::int64_t scores =
      values.integer_or("expert_gating_func", softmax, softmax, softmax_of_chosen);
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
  rope.beta_fast = values.real_or("rope.scaling.yarn_beta_fast", rope.beta_fast, 1e-6, 1e6);
  rope.beta_slow = values.real_or("rope.scaling.yarn_beta_slow", rope.beta_slow, 1e-6, 1e6);
  require_default(values, "rope.scaling.yarn_ext_factor", 1);
  rope.attention_factor = rope.magnitude() * factor;
  return rope;
}

/// Key-value heads, of which a file may say for each layer that it has none, but a state.
void set_kv_heads(const Hyperparameters& values, DecoderConfig& config) {
  constexpr std::string_view key = "attention.head_count_kv";
  const auto of_layers = values.integers(key);
  if (!of_layers) {
    config.kv_heads = values.integer_or(key, config.heads, 1, config.heads);
    return;
  }
  config.kv_heads = of_layers->empty() ? 0 : *std::ranges::max_element(*of_layers);
  const bool is_known = std::ranges::all_of(
      *of_layers, [&](std::int32_t count) { return count == 0 || count == config.kv_heads; });
  if (std::ssize(*of_layers) < config.layers || !is_known || config.kv_heads < 1 ||
      config.kv_heads > config.heads) {
    throw Error(Errc::unsupported, values.file(),
                fmt::format("{} is not one number or 0 for each layer", values.full(key)));
  }
  const auto last = of_layers->begin() + config.layers;
  if (std::find(of_layers->begin(), last, 0) == last) return;
  for (auto count = of_layers->begin(); count != last; ++count) {
    config.state_layers.push_back(*count == 0);
  }
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

/// The same of latent attention. Files from before 2025 have one tensor, "attn_kv_b", in place of
/// its two halves, and not the key that is asked for.
void set_latent_heads(const Hyperparameters& values, DecoderConfig& config) {
  if (!values.contains("attention.key_length_mla")) {
    throw Error(
        Errc::unsupported, values.file(),
        fmt::format("without {}, which files of the split attn_kv_b have; convert the model again",
                    values.full("attention.key_length_mla")));
  }
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

void set_mamba(const Hyperparameters& values, DecoderConfig& config) {
  MambaSizes sizes;
  sizes.taps = values.integer("ssm.conv_kernel", 2, 1 << 10);
  sizes.inner = values.integer("ssm.inner_size", 1, max_width);
  sizes.states = values.integer("ssm.state_size", 1, 1 << 16);
  if (config.architecture != "mamba") {
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

void set_rwkv(const Hyperparameters& values, DecoderConfig& config) {
  RwkvSizes sizes;
  sizes.head_size = values.integer("wkv.head_size", 1, config.width);
  if (config.width % sizes.head_size != 0) {
    values.refuse("wkv.head_size", std::to_string(sizes.head_size),
                  fmt::format("divisors of the width {}", config.width));
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
  const bool is_assumed = arch == "gemma2" || (arch == "exaone4" && config.layers == 64);
  config.window =
      values.integer_or("attention.sliding_window", is_assumed ? 4096 : 0, 0, max_context);
  config.global_every = global_every(values, architecture, config.layers);
  config.local_rope.theta =
      values.real_or("rope.freq_base_swa", arch == "gemma3" ? 10000 : config.rope.theta, 1, 1e30);
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
  if (architecture.has_scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  }
  if (config.architecture == "command-r" || config.architecture == "cohere2") {
    const double scale = values.real_or("logit_scale", 1, 0, largest);
    if (scale != 0) config.logit_scale = scale;
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
  const bool is_minicpm = config.architecture == "minicpm";
  const double depth = 1.4 / std::sqrt(static_cast<double>(config.layers));
  config.embedding_scale = values.real_or("embedding_scale", is_minicpm ? 12 : 1, 0, largest);
  config.residual_scale = values.real_or("residual_scale", is_minicpm ? depth : 1, 0, largest);
  const double divisor = values.real_or(
      "logit_scale", is_minicpm ? static_cast<double>(config.width) / 256 : 1, 1e-6, largest);
  config.logit_scale = 1 / divisor;
  if (config.embedding_scale == 0) config.embedding_scale = 1;
  if (config.residual_scale == 0) config.residual_scale = 1;
}

/// Heads, their rotation, and feed-forward parts.
void set_transformer(const Hyperparameters& values, const Architecture& architecture,
                     DecoderConfig& config) {
  const std::string& arch = config.architecture;
  config.experts = values.integer_or("expert_count", 0, 0, max_experts);
  if (config.experts > 0) {
    config.router = router_of(values, architecture, config);
    config.dense_layers = values.integer_or("leading_dense_block_count", 0, 0, config.layers);
  }
  if (!config.has_experts(0)) {
    config.intermediate_size = values.integer("feed_forward_length", 1, max_width);
  }
  config.heads = values.integer("attention.head_count", 1, max_heads);
  const bool is_latent = arch == "deepseek2";
  is_latent ? set_latent_heads(values, config) : set_heads(values, config);
  require_default(values, "attention.clamp_kqv", 0);
  config.rope = rope_of(values, architecture, config);
  if (is_latent) set_latent_scale(values, config);
  config.local_rope = config.rope;
  config.activation = Name(architecture.activation);
  set_scales(values, architecture, config);
  if (architecture.global_every > 0) set_windows(values, architecture, config);
  // Granite's files say so of models without positions.
  const bool is_rotated =
      !architecture.has_scales || values.boolean_or("rope.scaling.finetuned", true);
  config.has_rope = is_rotated && !architecture.has_position_embeddings;
  // Layers that see everything, of those that have windows, or every fourth.
  const bool follows_windows = architecture.global_every > 0;
  if (!follows_windows || config.window > 0) {
    config.unrotated_every = follows_windows && architecture.unrotated_every > 0
                                 ? config.global_every
                                 : architecture.unrotated_every;
  }
  config.is_parallel = architecture.is_parallel;
  if (arch == "gptneox") config.is_parallel = values.boolean("use_parallel_residual");
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
  config.norm_eps = values.real_or(
      config.has_mean_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      1e-5, 0, 1);
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  config.tokens = config.vocabulary;
  if (arch == "mamba" || arch == "mamba2") {
    set_mamba(values, config);
  } else if (arch == "rwkv7") {
    set_rwkv(values, config);
  } else {
    set_transformer(values, architecture, config);
    if (arch == "granitehybrid" || architecture.has_gated_attention) set_mamba(values, config);
    if (architecture.has_gated_attention) set_delta_layers(values, config);
    if (arch == "lfm2" || arch == "lfm2moe") {
      config.short_conv_taps = values.integer("shortconv.l_cache", 2, 1 << 10);
    }
  }
  if (!config.state_layers.empty() && !config.is_recurrent()) {
    throw Error(Errc::unsupported, file.path().string(), "layers without keys and values");
  }
  if (arch == "stablelm") config.is_parallel = file.find("blk.0.ffn_norm.weight") == nullptr;
  return config;
}

bool has_reordered_heads(const DecoderConfig& config) {
  const Architecture* const known = find_architecture(config.architecture);
  return known != nullptr && known->is_reordered;
}

namespace {

DecoderNorm<> norm_part(const WeightsView& view, const DecoderConfig& config) {
  DecoderNorm<> made;
  if (config.has_mean_norms) {
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
nn::MultiHeadAttention<> projections(const WeightsView& view, const DecoderConfig& config) {
  constexpr nn::AttentionNames names{.query = "attn_q",
                                     .key = "attn_k",
                                     .value = "attn_v",
                                     .output = "attn_output",
                                     .query_norm = "attn_q_norm",
                                     .key_norm = "attn_k_norm"};
  if (config.has_mean_norms && view[names.query_norm].contains("weight")) {
    throw Error(Errc::unsupported, view.origin(),
                fmt::format("norms with mean of each head's queries ({})",
                            view[names.query_norm].full_name("weight")));
  }
  if (config.has_gated_attention) {
    nn::MultiHeadAttention<> made;
    made.query = nn::Linear<>::init(view[names.query]);
    made.key = nn::Linear<>::init(view[names.key]);
    made.value = nn::Linear<>::init(view[names.value]);
    made.output = nn::Linear<>::init(view[names.output]);
    made.query_norm = nn::RmsNorm<>::init(view[names.query_norm], config.norm_eps);
    made.key_norm = nn::RmsNorm<>::init(view[names.key_norm], config.norm_eps);
    made.heads = config.heads;
    made.has_gate = true;
    return made;
  }
  if (!view["attn_qkv"].contains("weight")) {
    return nn::MultiHeadAttention<>::init(view, config.heads, names, config.norm_eps);
  }
  const std::int64_t queries = config.heads * config.head_dim;
  const std::int64_t keys = config.kv_heads * config.head_dim;
  const std::int64_t dims[] = {queries + 2 * keys, config.width};
  static_cast<void>(view["attn_qkv"].tensor("weight", dims));
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    return nn::Linear<>::init_rows(view["attn_qkv"], first, count);
  };
  nn::MultiHeadAttention<> made;
  made.query = rows(0, queries);
  made.key = rows(queries, keys);
  made.value = rows(queries + keys, keys);
  made.output = nn::Linear<>::init(view[names.output]);
  made.heads = config.heads;
  return made;
}

nn::MultiHeadAttention<> attention_part(const WeightsView& view, const DecoderConfig& config,
                                        std::int64_t layer) {
  const bool is_local = config.is_local(layer);
  nn::MultiHeadAttention<> made = projections(view, config);
  made.kv_heads = config.kv_heads;  // which weights of other sizes do not fit
  made.head_dim = config.head_dim;
  made.sinks = view["attn_sinks"].find("weight");
  made.options.causal = true;
  made.options.scale = config.attention_scale;
  made.options.softcap = config.attention_softcap;
  made.options.window = is_local ? config.window : 0;
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
  made.key_up = view["attn_k_b"].tensor("weight");
  made.value_up = view["attn_v_b"].tensor("weight");
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
  made.beta = nn::Linear<>::init(view["ssm_beta"]);
  made.time = nn::Linear<>::init(view["ssm_alpha"]);
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
  } else {
    made.time_bias = view["ssm_dt"].tensor("bias");
    made.norm = view["ssm_norm"].tensor("weight");
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

nn::Rwkv7Layer<> rwkv_part(const WeightsView& view, const DecoderConfig& config,
                           std::int64_t layer) {
  const auto norm = [&](const char* name, double eps) {
    return nn::LayerNorm<>::init(view[name], eps);
  };
  const auto linear = [&](const char* name) { return nn::Linear<>::init(view[name]); };
  const auto weight = [&](const char* name) { return view[name].tensor("weight"); };
  constexpr double head_eps = 64e-5;
  nn::Rwkv7Layer<> made;
  made.time_norm = norm("attn_norm", config.norm_eps);
  made.channel_norm = norm("attn_norm_2", config.norm_eps);
  made.time_mix = weight("time_mix_lerp_fused");
  made.receptance = linear("time_mix_receptance");
  made.key = linear("time_mix_key");
  made.value = linear("time_mix_value");
  made.output = linear("time_mix_output");
  made.decay = low_rank_part(view, "time_mix_w");
  made.rate = low_rank_part(view, "time_mix_a");
  if (layer > 0) made.residual = low_rank_part(view, "time_mix_v");
  if (view.contains("time_mix_g1.weight")) made.gate = low_rank_part(view, "time_mix_g");
  made.key_removed = weight("time_mix_k_k");
  made.key_rate = weight("time_mix_k_a");
  made.bonus = weight("time_mix_r_k");
  made.head_norm = norm("time_mix_ln", head_eps);
  made.channel_mix = weight("channel_mix_lerp_k");
  made.channel_key = linear("channel_mix_key");
  made.channel_value = linear("channel_mix_value");
  made.head_size = config.rwkv->head_size;
  return made;
}

/// Declares the weights that a dense layer, or with `suffix` the shared part of experts, has.
nn::FeedForward<> dense_part(const WeightsView& view, const std::string& suffix, Name activation,
                             Gate gate = Gate::own) {
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
  nn::MixtureOfExperts<> made;
  made.router = nn::Linear<>::init(view["ffn_gate_inp"]);
  made.router_bias = view["exp_probs_b"].find("bias");
  made.gate = view["ffn_gate_exps"].tensor("weight");
  made.up = view["ffn_up_exps"].tensor("weight");
  made.down = view["ffn_down_exps"].tensor("weight");
  made.gate_bias = view["ffn_gate_exps"].find("bias");
  made.up_bias = view["ffn_up_exps"].find("bias");
  made.down_bias = view["ffn_down_exps"].find("bias");
  made.activation = config.activation;
  made.options = config.router;
  if (view.contains("ffn_up_shexp.weight")) {
    made.shared = dense_part(view, "_shexp", config.activation);
  }
  made.shared_gate = view["ffn_gate_inp_shexp"].find("weight");
  return made;
}

}  // namespace

template <>
DecoderLayer<Tensor> DecoderLayer<Tensor>::init(const WeightsView& view,
                                                const DecoderConfig& config, std::int64_t index) {
  const Architecture& architecture = *find_architecture(config.architecture);
  DecoderLayer layer;
  if (config.rwkv) {
    layer.rwkv = rwkv_part(view, config, index);
    return layer;
  }
  if (architecture.has_first_norms) {
    const bool has_two = view["attn_norm_2"].contains("weight");  // Falcon 40B
    layer.attention_norm = norm_part(view[has_two ? "attn_norm_2" : "attn_norm"], config);
    if (has_two) layer.feed_forward_norm = norm_part(view["attn_norm"], config);
  }
  if (config.keeps_state(index)) {
    if (config.mamba && config.mamba->is_delta_net) {
      layer.delta_net = delta_net_part(view, config);
    } else if (config.mamba) {
      layer.mamba = mamba_part(view, config);
    } else {
      layer.short_conv = nn::ShortConv<>::init(view["shortconv"]);
    }
  } else if (config.latent) {
    layer.latent_attention = latent_part(view, config);
  } else {
    layer.attention = attention_part(view, config, index);
  }
  if (!config.has_feed_forward()) return layer;
  const std::string_view second = architecture.feed_forward_norm;
  if (architecture.has_last_norms) {
    layer.post_attention_norm = norm_part(view["post_attention_norm"], config);
    layer.post_feed_forward_norm = norm_part(view["post_ffw_norm"], config);
  }
  if (config.is_parallel) {
    if (!layer.feed_forward_norm) layer.feed_forward_norm = optional_norm(view, second, config);
  } else if (architecture.has_first_norms) {
    layer.feed_forward_norm = norm_part(view[second], config);
  }
  if (config.has_experts(index)) {
    layer.experts = expert_part(view, config);
  } else {
    layer.feed_forward = dense_part(view, "", config.activation, architecture.gate);
  }
  return layer;
}

template <>
Decoder<Tensor> Decoder<Tensor>::init(const WeightsView& view, const DecoderConfig& config) {
  Decoder decoder;
  decoder.config = config;
  decoder.tokens = nn::Embedding<>::init(view["token_embd"]);
  if (find_architecture(config.architecture)->has_position_embeddings) {
    decoder.positions = nn::Embedding<>::init(view["position_embd"]);
  }
  std::optional<Tensor> factors = view["rope_freqs"].find("weight");
  if (!factors) {
    factors =
        view[config.has_long_context ? "rope_factors_long" : "rope_factors_short"].find("weight");
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    decoder.layers.push_back(DecoderLayer<>::init(view["blk"][i], config, i));
    if (auto& attention = decoder.layers.back().attention) attention->rope_factors = factors;
  }
  if (config.rwkv) {
    decoder.embedding_norm = nn::LayerNorm<>::init(view["token_embd_norm"], config.norm_eps);
  }
  // Files of LFM2 have the last norm under the name of one before the first layer.
  const bool is_lfm2 = config.short_conv_taps > 0 && !view.contains("output_norm.weight");
  decoder.norm = norm_part(view[is_lfm2 ? "token_embd_norm" : "output_norm"], config);
  if (view.contains("output.weight")) decoder.head = nn::Linear<>::init(view["output"]);
  return decoder;
}

DecoderCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                                std::int64_t batch) {
  DecoderCache<Shape> shapes;
  if (config.has_attention()) {
    shapes.attention = nn::kv_cache_shape(config.layers, batch, config.kv_heads, capacity,
                                          config.head_dim, dtype, config.value_dim);
  }
  if (config.rwkv) {
    const std::int64_t size = config.rwkv->head_size;
    shapes.rwkv =
        nn::Rwkv7State<Shape>{Shape({config.layers, batch, 2, config.width}, f32),
                              Shape({config.layers, batch, size, config.width / size, size}, f32)};
  }
  if (config.mamba) {
    const MambaSizes& sizes = *config.mamba;
    const std::int64_t heads = sizes.heads == 0 ? sizes.inner : sizes.heads;
    shapes.mamba = nn::MambaState<Shape>{
        Shape({config.layers, batch, sizes.taps - 1, sizes.convolved()}, f32),
        Shape({config.layers, batch, sizes.states, heads, sizes.inner / heads}, f32)};
  }
  if (config.short_conv_taps > 0) {
    shapes.short_conv =
        Shape({config.layers, batch, config.short_conv_taps - 1, config.width}, f32);
  }
  return shapes;
}

}  // namespace tenon::models
