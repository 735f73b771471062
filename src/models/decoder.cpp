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
      : metadata_(file.metadata()),
        file_(file.path().filename().string()),
        prefix_(std::move(architecture)) {}

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

 private:
  std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }
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
nn::RouterOptions router_of(const Hyperparameters& values, const DecoderConfig& config) {
  constexpr std::int64_t softmax = 1, sigmoid = 2;  // of "expert_gating_func"
  nn::RouterOptions router;
  router.used = values.integer("expert_used_count", 1, config.experts);
  router.normalized = values.boolean_or("expert_weights_norm", config.architecture != "qwen2moe");
  router.scale = values.real_or("expert_weights_scale", 1, 0, 1e6);
  if (router.scale == 0) router.scale = 1;  // which files that have none may say
  const std::int64_t scores = values.integer_or("expert_gating_func", softmax, softmax, sigmoid);
  if (scores == sigmoid) router.scores = "sigmoid";
  return router;
}

Rope rope_of(const Hyperparameters& values, const DecoderConfig& config) {
  Rope rope;
  rope.theta = values.real_or("rope.freq_base", 10000, 1, 1e30);
  rope.dims = values.integer_or("rope.dimension_count", config.head_dim, 2, config.head_dim);
  if (rope.dims % 2 != 0)
    values.refuse("rope.dimension_count", std::to_string(rope.dims), "even numbers");
  // Files of the llama family store queries and keys in the order for interleaved rotation.
  rope.interleaved = config.architecture == "llama";
  const std::string scaling = values.text_or("rope.scaling.type", "none");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
    throw Error(Errc::unsupported, config.architecture, fmt::format("rope scaling '{}'", scaling));
  }
  rope.scaling = Name(scaling);
  rope.factor = values.real_or("rope.scaling.factor", 1, 1e-6, 1e6);
  rope.original_context = values.integer_or("rope.scaling.original_context_length",
                                            config.context_length, 1, max_context);
  return rope;
}

}  // namespace

DecoderConfig DecoderConfig::from(const io::File& file) {
  if (file.format() != io::Format::gguf) {
    throw Error(Errc::unsupported, file.path().filename().string(),
                fmt::format("a language model is read from a GGUF file, this is {}",
                            io::name(file.format())));
  }
  DecoderConfig config;
  config.architecture = file.metadata().get<std::string>("general.architecture");
  const std::string& arch = config.architecture;
  constexpr std::string_view known[] = {"llama", "qwen2",    "qwen2moe",
                                        "qwen3", "qwen3moe", "gemma3"};
  if (std::ranges::find(known, arch) == std::end(known)) {
    throw Error(Errc::unsupported, file.path().filename().string(),
                fmt::format("architecture '{}'; known are {}", arch, fmt::join(known, ", ")));
  }
  const Hyperparameters values(file, arch);
  config.layers = values.integer("block_count", 1, max_layers);
  config.width = values.integer("embedding_length", 1, max_width);
  config.experts = values.integer_or("expert_count", 0, 0, max_experts);
  if (config.experts == 0) {
    config.intermediate_size = values.integer("feed_forward_length", 1, max_width);
  } else {
    config.router = router_of(values, config);
  }
  config.heads = values.integer("attention.head_count", 1, max_heads);
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
  config.context_length = values.integer("context_length", 1, max_context);
  config.norm_eps = values.real_or("attention.layer_norm_rms_epsilon", 1e-5, 0, 1);
  config.rope = rope_of(values, config);
  config.local_rope = config.rope;
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  config.tokens = config.vocabulary;
  if (arch == "gemma3") {
    config.activation = "gelu_tanh";
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
    config.window = values.integer_or("attention.sliding_window", 0, 0, max_context);
    config.global_every = values.integer_or("attention.sliding_window_pattern", 6, 1, max_layers);
    // Layers with a sliding window have their own rope base and no rope scaling.
    config.local_rope.theta = values.real_or("rope.freq_base_swa", 10000, 1, 1e30);
    config.local_rope.scaling = "none";
    config.local_rope.factor = 1;
  }
  return config;
}

namespace {

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
  const bool local = config.is_local(index);
  const auto norm = [&](std::string_view name) {
    return nn::RmsNorm<>::init(view[name], config.norm_eps);
  };
  const auto optional_norm = [&](std::string_view name) -> std::optional<nn::RmsNorm<>> {
    if (!view.contains(std::string(name) + ".weight")) return std::nullopt;
    return norm(name);
  };
  DecoderLayer layer;
  layer.attention_norm = norm("attn_norm");
  nn::MultiHeadAttention<>& attention = layer.attention;
  attention.query = nn::Linear<>::init(view["attn_q"]);
  attention.key = nn::Linear<>::init(view["attn_k"]);
  attention.value = nn::Linear<>::init(view["attn_v"]);
  attention.output = nn::Linear<>::init(view["attn_output"]);
  attention.query_norm = optional_norm("attn_q_norm");
  attention.key_norm = optional_norm("attn_k_norm");
  attention.heads = config.heads;
  attention.kv_heads = config.kv_heads;
  attention.head_dim = config.head_dim;
  attention.options.causal = true;
  attention.options.scale = config.attention_scale;
  attention.options.window = local ? config.window : 0;
  attention.rope = local ? config.local_rope : config.rope;
  layer.post_attention_norm = optional_norm("post_attention_norm");
  layer.feed_forward_norm = norm("ffn_norm");
  if (config.experts > 0) {
    layer.experts = expert_part(view, config);
  } else {
    layer.feed_forward = dense_part(view, "", config.activation);
  }
  layer.post_feed_forward_norm = optional_norm("post_ffw_norm");
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
    decoder.layers.back().attention.rope_factors = factors;
  }
  decoder.norm = nn::RmsNorm<>::init(view["output_norm"], config.norm_eps);
  if (view.contains("output.weight")) decoder.head = nn::Linear<>::init(view["output"]);
  return decoder;
}

nn::KvCache<Shape> cache_shape(const DecoderConfig& config, std::int64_t capacity, DType dtype,
                               std::int64_t batch) {
  return nn::kv_cache_shape(config.layers, batch, config.kv_heads, capacity, config.head_dim,
                            dtype);
}

}  // namespace tenon::models
