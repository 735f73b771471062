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
  std::string_view name;
  /// Rows of queries and keys are stored in the order for interleaved rotation.
  bool has_interleaved_rope = false;
  bool has_normalized_router = true;
};
constexpr Architecture known_architectures[] = {
    {.name = "llama", .has_interleaved_rope = true},
    {.name = "qwen2"},
    {.name = "qwen2moe", .has_normalized_router = false},
    {.name = "qwen3"},
    {.name = "qwen3moe"},
    {.name = "olmoe", .has_normalized_router = false},
    {.name = "gpt-oss"},
    {.name = "deepseek2", .has_interleaved_rope = true, .has_normalized_router = false},
    {.name = "gemma3"},
    {.name = "mamba"},
    {.name = "mamba2"},
    {.name = "rwkv7"},
};

const Architecture& architecture_of(const io::File& file) {
  const auto name = file.metadata().get<std::string>("general.architecture");
  const auto* const found = std::ranges::find(known_architectures, name, &Architecture::name);
  if (found != std::end(known_architectures)) return *found;
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
  rope.interleaved = architecture.has_interleaved_rope;
  const std::string scaling = values.text_or("rope.scaling.type", "none");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
    throw Error(Errc::unsupported, config.architecture, fmt::format("rope scaling '{}'", scaling));
  }
  rope.scaling = Name(scaling);
  rope.factor = values.real_or("rope.scaling.factor", 1, 1e-6, 1e6);
  rope.original_context = values.integer_or("rope.scaling.original_context_length",
                                            config.context_length, 1, max_context);
  if (scaling != "yarn") return rope;
  rope.beta_fast = values.real_or("rope.scaling.yarn_beta_fast", rope.beta_fast, 1e-6, 1e6);
  rope.beta_slow = values.real_or("rope.scaling.yarn_beta_slow", rope.beta_slow, 1e-6, 1e6);
  require_default(values, "rope.scaling.yarn_ext_factor", 1);
  rope.attention_factor =
      rope.magnitude() * values.real_or("rope.scaling.attn_factor", 1, 1e-6, 1e6);
  return rope;
}

/// Sizes of the heads of an attention that is not latent.
void set_heads(const Hyperparameters& values, DecoderConfig& config) {
  config.kv_heads = values.integer_or("attention.head_count_kv", config.heads, 1, config.heads);
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
  if (config.architecture == "mamba2") {
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

void set_rwkv(const Hyperparameters& values, DecoderConfig& config) {
  RwkvSizes sizes;
  sizes.head_size = values.integer("wkv.head_size", 1, config.width);
  if (config.width % sizes.head_size != 0) {
    values.refuse("wkv.head_size", std::to_string(sizes.head_size),
                  fmt::format("divisors of the width {}", config.width));
  }
  config.norm_eps = values.real_or("attention.layer_norm_epsilon", 1e-5, 0, 1);
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

/// Layers with a sliding window.
void set_windows(const Hyperparameters& values, DecoderConfig& config) {
  const bool is_gemma = config.architecture == "gemma3";
  config.window = values.integer_or("attention.sliding_window", 0, 0, max_context);
  config.global_every =
      values.integer_or("attention.sliding_window_pattern", is_gemma ? 6 : 2, 1, max_layers);
  config.local_rope.theta =
      values.real_or("rope.freq_base_swa", is_gemma ? 10000 : config.rope.theta, 1, 1e30);
  if (!is_gemma) return;
  config.local_rope.scaling = "none";
  config.local_rope.factor = 1;
  config.local_rope.attention_factor = 0;
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
  if (arch == "gemma3") {
    config.activation = "gelu_tanh";
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  }
  if (arch == "gpt-oss") config.activation = "swiglu_oai";
  if (arch == "gemma3" || arch == "gpt-oss") set_windows(values, config);
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
  config.norm_eps = values.real_or("attention.layer_norm_rms_epsilon", 1e-5, 0, 1);
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  config.tokens = config.vocabulary;
  if (arch == "mamba" || arch == "mamba2") {
    set_mamba(values, config);
  } else if (arch == "rwkv7") {
    set_rwkv(values, config);
  } else {
    set_transformer(values, architecture, config);
  }
  return config;
}

namespace {

std::optional<nn::RmsNorm<>> optional_norm(const WeightsView& view, const std::string& name,
                                           const DecoderConfig& config) {
  if (!view.contains(name + ".weight")) return std::nullopt;
  return nn::RmsNorm<>::init(view[name], config.norm_eps);
}

nn::MultiHeadAttention<> attention_part(const WeightsView& view, const DecoderConfig& config,
                                        std::int64_t layer) {
  const bool is_local = config.is_local(layer);
  nn::MultiHeadAttention<> made = nn::MultiHeadAttention<>::init(view, config.heads,
                                                                 {.query = "attn_q",
                                                                  .key = "attn_k",
                                                                  .value = "attn_v",
                                                                  .output = "attn_output",
                                                                  .query_norm = "attn_q_norm",
                                                                  .key_norm = "attn_k_norm"},
                                                                 config.norm_eps);
  made.kv_heads = config.kv_heads;  // which weights of other sizes do not fit
  made.head_dim = config.head_dim;
  made.sinks = view["attn_sinks"].find("weight");
  made.options.causal = true;
  made.options.scale = config.attention_scale;
  made.options.window = is_local ? config.window : 0;
  made.rope = is_local ? config.local_rope : config.rope;
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
nn::FeedForward<> dense_part(const WeightsView& view, const std::string& suffix, Name activation) {
  nn::FeedForward<> made;
  made.gate = nn::Linear<>::init(view["ffn_gate" + suffix]);
  made.up = nn::Linear<>::init(view["ffn_up" + suffix]);
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
  const auto norm = [&](std::string_view name) {
    return nn::RmsNorm<>::init(view[name], config.norm_eps);
  };
  DecoderLayer layer;
  if (config.rwkv) {
    layer.rwkv = rwkv_part(view, config, index);
    return layer;
  }
  layer.attention_norm = norm("attn_norm");
  if (config.mamba) {
    layer.mamba = mamba_part(view, config);
    return layer;
  }
  if (config.latent) {
    layer.latent_attention = latent_part(view, config);
  } else {
    layer.attention = attention_part(view, config, index);
  }
  // gpt-oss has its second norm under the name of Gemma's third.
  const bool is_gpt_oss = config.architecture == "gpt-oss";
  if (!is_gpt_oss) layer.post_attention_norm = optional_norm(view, "post_attention_norm", config);
  layer.feed_forward_norm = norm(is_gpt_oss ? "post_attention_norm" : "ffn_norm");
  if (config.has_experts(index)) {
    layer.experts = expert_part(view, config);
  } else {
    layer.feed_forward = dense_part(view, "", config.activation);
  }
  layer.post_feed_forward_norm = optional_norm(view, "post_ffw_norm", config);
  return layer;
}

template <>
Decoder<Tensor> Decoder<Tensor>::init(const WeightsView& view, const DecoderConfig& config) {
  Decoder decoder;
  decoder.config = config;
  decoder.tokens = nn::Embedding<>::init(view["token_embd"]);
  const std::optional<Tensor> factors = view["rope_freqs"].find("weight");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    decoder.layers.push_back(DecoderLayer<>::init(view["blk"][i], config, i));
    if (auto& attention = decoder.layers.back().attention) attention->rope_factors = factors;
  }
  if (config.rwkv) {
    decoder.embedding_norm = nn::LayerNorm<>::init(view["token_embd_norm"], config.norm_eps);
    decoder.norm.layer = nn::LayerNorm<>::init(view["output_norm"], config.norm_eps);
  } else {
    decoder.norm.rms = nn::RmsNorm<>::init(view["output_norm"], config.norm_eps);
  }
  if (view.contains("output.weight")) decoder.head = nn::Linear<>::init(view["output"]);
  return decoder;
}

DecoderCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                                std::int64_t batch) {
  if (config.rwkv) {
    const std::int64_t size = config.rwkv->head_size;
    return {
        std::nullopt, std::nullopt,
        nn::Rwkv7State<Shape>{Shape({config.layers, batch, 2, config.width}, f32),
                              Shape({config.layers, batch, size, config.width / size, size}, f32)}};
  }
  if (!config.mamba) {
    return {nn::kv_cache_shape(config.layers, batch, config.kv_heads, capacity, config.head_dim,
                               dtype, config.value_dim),
            std::nullopt, std::nullopt};
  }
  const MambaSizes& sizes = *config.mamba;
  const std::int64_t heads = sizes.heads == 0 ? sizes.inner : sizes.heads;
  return {std::nullopt,
          nn::MambaState<Shape>{
              Shape({config.layers, batch, sizes.taps - 1, sizes.convolved()}, f32),
              Shape({config.layers, batch, sizes.states, heads, sizes.inner / heads}, f32)},
          std::nullopt};
}

}  // namespace tenon::models
