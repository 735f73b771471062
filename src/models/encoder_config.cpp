// Hyperparameters of encoders: of GGUF files, and of folders.
#include "hyperparameters.hpp"
#include "json_file.hpp"
#include "models/architectures.hpp"

#include <tenon/error.hpp>
#include <tenon/models/encoder.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::models {
namespace {

constexpr std::int64_t max_size = 1 << 20;

/// A file that holds one JSON object; errors name its path.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& path)
      : path_(path.string()), document_(read_json(path)) {
    if (!document_.root().is_object()) throw Error(Errc::bad_type, path_, "is no object");
  }

  std::int64_t integer(const char* key) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) throw Error(Errc::bad_key, path_, fmt::format("no key '{}'", key));
    if (!found->is_number_integer()) refuse(key, *found, "an integer");
    const auto value = found->get<std::int64_t>();
    if (value < 1 || value > max_size) {
      throw Error(Errc::bad_hyperparameter, path_,
                  fmt::format("'{}' is {}, allowed: 1 to {}", key, value, max_size));
    }
    return value;
  }

  double real_or(const char* key, double fallback) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_number()) refuse(key, *found, "a number");
    return found->get<double>();
  }

  bool boolean_or(const char* key, bool fallback) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_boolean()) refuse(key, *found, "a boolean");
    return found->get<bool>();
  }

  std::string text_or(const char* key, const char* fallback) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_string()) refuse(key, *found, "a string");
    return found->get<std::string>();
  }

  bool has(const char* key) const { return find(key) != nullptr; }

  const std::string& path() const noexcept { return path_; }

 private:
  /// Null where there is none, or where it is null.
  const nlohmann::json* find(const char* key) const {
    const auto found = document_.root().find(key);
    return found == document_.root().end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const char* key, const nlohmann::json& value, const char* wanted) const {
    throw Error(Errc::bad_type, path_,
                fmt::format("'{}' is {}, not {}", key, value.type_name(), wanted));
  }

  std::string path_;
  JsonDocument document_;
};

/// An activation by its name in Hugging Face's configurations.
Name activation_of(const JsonObject& json) {
  const std::string name = json.text_or("hidden_act", "gelu");
  if (name == "gelu" || name == "relu" || name == "silu") return Name(name);
  if (name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_tanh") return "gelu_tanh";
  throw Error(Errc::unsupported, json.path(),
              fmt::format("hidden_act '{}'; known are gelu, gelu_new, gelu_pytorch_tanh, relu, "
                          "silu, swish",
                          name));
}

/// The folder of the pooling that modules.json names; where there is no such file, the usual one.
std::filesystem::path pooling_folder(const io::File& file) {
  const auto folder = file.path().parent_path(), path = folder / "modules.json";
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return folder / "1_Pooling";
  const JsonDocument document = read_json(path);
  if (!document.root().is_array()) throw Error(Errc::bad_type, path.string(), "is no list");
  std::filesystem::path found;
  for (const nlohmann::json& module : document.root()) {
    const auto text = [&](const char* key) {
      const bool has_text = module.is_object() && module.contains(key) && module[key].is_string();
      if (has_text) return module[key].get<std::string>();
      throw Error(Errc::bad_type, path.string(), fmt::format("a module without a text '{}'", key));
    };
    const std::string whole = text("type"), type = whole.substr(whole.rfind('.') + 1);
    if (type == "Pooling") {
      found = text("path");
      if (found != found.filename()) {
        throw Error(Errc::bad_reference, path.string(),
                    fmt::format("'{}' is no folder beside it", found.string()));
      }
    } else if (type != "Transformer" && type != "Normalize") {
      throw Error(Errc::unsupported, path.string(),
                  fmt::format("a module '{}'; known are Normalize, Pooling, Transformer", whole));
    }
  }
  if (found.empty()) throw Error(Errc::unsupported, path.string(), "no module is a Pooling");
  return folder / found;
}

/// What a folder of sentence-transformers says of its pooling; mean where it says nothing, as there.
Pooling pooling_of(const io::File& file) {
  const auto path = pooling_folder(file) / "config.json";
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return Pooling::mean;
  const JsonObject json(path);
  std::string mode = json.text_or("pooling_mode", "");  // of newer files
  if (mode.empty()) {
    for (const char* one : {"cls_token", "lasttoken", "max_tokens", "mean_sqrt_len_tokens",
                            "mean_tokens", "weightedmean_tokens"}) {
      const bool is_default = std::string_view(one) == "mean_tokens";
      if (!json.boolean_or(fmt::format("pooling_mode_{}", one).c_str(), is_default)) continue;
      mode += (mode.empty() ? "" : " and ") + std::string(one);
    }
  }
  if (mode == "mean" || mode == "mean_tokens") return Pooling::mean;
  if (mode == "cls" || mode == "cls_token") return Pooling::cls;
  if (mode == "lasttoken") return Pooling::last;
  throw Error(
      Errc::unsupported, json.path(),
      fmt::format("pooling '{}'; known are one of mean, the first token and the last", mode));
}

EncoderConfig from_folder(const io::File& file) {
  const auto path = file.sibling("config.json");
  if (!path) throw Error(Errc::not_found, file.path().string(), "no config.json beside the model");
  const JsonObject json(*path);
  const std::string type = json.text_or("model_type", "");
  const bool is_roberta = type == "roberta" || type == "xlm-roberta" || type == "camembert";
  if (type != "bert" && !is_roberta) {
    throw Error(
        Errc::unsupported, json.path(),
        fmt::format("model_type '{}'; known are bert, camembert, roberta, xlm-roberta", type));
  }
  EncoderConfig config;
  config.layers = json.integer("num_hidden_layers");
  config.width = json.integer("hidden_size");
  config.intermediate_size = json.integer("intermediate_size");
  config.heads = json.integer("num_attention_heads");
  config.vocabulary = json.integer("vocab_size");
  config.max_positions = json.integer("max_position_embeddings");
  config.norm_eps = json.real_or("layer_norm_eps", 1e-12);
  config.activation = activation_of(json);
  if (config.width % config.heads != 0) {
    throw Error(Errc::bad_hyperparameter, json.path(),
                fmt::format("'num_attention_heads' is {}, allowed: divisors of {}", config.heads,
                            config.width));
  }
  if (is_roberta) {
    // Positions begin behind the one that padding has.
    config.first_position = 1 + json.integer("pad_token_id");
    if (config.first_position >= config.max_positions) {
      throw Error(Errc::bad_hyperparameter, json.path(),
                  fmt::format("'pad_token_id' leaves none of {} positions", config.max_positions));
    }
    config.max_positions -= config.first_position;
  }
  config.max_tokens = config.max_positions;
  if (const auto sentence = file.sibling("sentence_bert_config.json")) {
    const JsonObject limits(*sentence);
    if (limits.has("max_seq_length")) {
      config.max_tokens = std::min(config.max_positions, limits.integer("max_seq_length"));
    }
  }
  config.pooling = pooling_of(file);
  return config;
}

/// One of the poolings by its number in GGUF files; nothing where the file says none.
std::optional<Pooling> pooling_key(const Hyperparameters& values, std::string_view key) {
  constexpr std::int64_t unspecified = -1;
  const std::int64_t number =
      values.integer_or(key, unspecified, unspecified, static_cast<std::int64_t>(Pooling::rank));
  if (number == unspecified) return std::nullopt;
  return static_cast<Pooling>(number);
}

bool has_classifier(const io::File& file) {
  return file.find("cls.weight") != nullptr || file.find("cls.output.weight") != nullptr;
}

Rope rope_of(const Hyperparameters& values, const EncoderConfig& config) {
  Rope rope;
  const std::int64_t size = config.width / config.heads;
  rope.theta = values.real_or("rope.freq_base", 10000, 1, 1e30);
  rope.dims = values.integer_or("rope.dimension_count", size, 2, size);
  if (rope.dims % 2 != 0)
    values.refuse("rope.dimension_count", std::to_string(rope.dims), "even numbers");
  const std::string scaling = values.text_or("rope.scaling.type", "none");
  if (scaling != "none" && scaling != "linear") {
    throw Error(Errc::unsupported, values.file(), fmt::format("rope scaling '{}'", scaling));
  }
  rope.scaling = Name(scaling);
  rope.factor = values.real_or("rope.scaling.factor", 1, 1e-6, 1e6);
  return rope;
}

/// Of the family that models::Encoder computes.
EncoderConfig of_bert_family(const io::File& file, const std::string& architecture) {
  const Hyperparameters values(file, architecture);
  EncoderConfig config;
  config.architecture = architecture;
  config.layers = values.integer("block_count", 1, max_layers);
  config.width = values.integer("embedding_length", 1, max_width);
  config.intermediate_size = values.integer("feed_forward_length", 1, max_width);
  config.heads = values.integer("attention.head_count", 1, max_heads);
  config.max_positions = values.integer("context_length", 1, max_size);
  config.norm_eps = values.real_or("attention.layer_norm_epsilon", 1e-12, 0, 1);
  config.vocabulary = file.at("token_embd.weight").shape.dim(0);
  if (config.width % config.heads != 0) {
    values.refuse("attention.head_count", std::to_string(config.heads),
                  fmt::format("divisors of the width {}", config.width));
  }
  if (values.boolean_or("attention.causal", false)) {
    throw Error(Errc::unsupported, values.file(), "causal attention of an encoder");
  }
  if (architecture == "jina-bert-v2") {
    config.max_alibi_bias = values.real_or("attention.max_alibi_bias", 8, 1e-6, 1e3);
  } else if (architecture != "bert") {
    config.rope = rope_of(values, config);
  }
  if (architecture == "nomic-bert") config.activation = "silu";
  if (architecture == "nomic-bert-moe") {
    config.experts_every = values.integer_or("moe_every_n_layers", 0, 0, max_layers);
  }
  if (config.experts_every > 0) {
    config.experts = values.integer("expert_count", 1, max_experts);
    config.router.used = values.integer("expert_used_count", 1, config.experts);
    config.router.normalized = false;
  }
  return config;
}

/// What is common to both, of a model that DecoderConfig reads.
EncoderConfig of_decoder(const DecoderConfig& decoder) {
  EncoderConfig config;
  config.architecture = decoder.architecture;
  config.layers = decoder.layers;
  config.width = decoder.width;
  config.intermediate_size = decoder.intermediate_size;
  config.heads = decoder.heads;
  config.vocabulary = decoder.vocabulary;
  config.max_positions = decoder.context_length;
  config.norm_eps = decoder.norm_eps;
  config.activation = decoder.activation;
  config.ranked = decoder.is_causal ? Pooling::last : Pooling::cls;
  return config;
}

EncoderConfig from_gguf(const io::File& file) {
  const auto architecture = file.metadata().get<std::string>("general.architecture");
  EncoderConfig config = is_of_bert_family(architecture) ? of_bert_family(file, architecture)
                                                         : of_decoder(DecoderConfig::from(file));
  config.max_tokens = config.max_positions;
  const Hyperparameters values(file, architecture);
  const Pooling usual = has_classifier(file) ? Pooling::rank
                        : is_encoder(file)   ? Pooling::mean
                                             : Pooling::none;
  config.pooling = pooling_key(values, "pooling_type").value_or(usual);
  if (architecture == "modern-bert") {
    const auto ranked = pooling_key(values, "classifier.pooling_type").value_or(Pooling::mean);
    if (ranked != Pooling::mean && ranked != Pooling::cls) {
      values.refuse("classifier.pooling_type", std::string(name(ranked)), "mean, cls");
    }
    config.ranked = ranked;
  }
  return config;
}

}  // namespace

std::string_view name(Pooling pooling) {
  constexpr std::string_view names[] = {"none", "mean", "cls", "last", "rank"};
  return names[static_cast<std::size_t>(pooling)];
}

std::optional<Pooling> find_pooling(std::string_view word) {
  for (const Pooling pooling :
       {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank}) {
    if (name(pooling) == word) return pooling;
  }
  return std::nullopt;
}

std::optional<Normalization> find_normalization(std::string_view word) {
  if (word == "none") return Normalization::none;
  if (word == "euclidean") return Normalization::euclidean;
  if (word == "taxicab") return Normalization::taxicab;
  if (word == "max_int16") return Normalization::max_int16;
  return std::nullopt;
}

bool is_encoder(const io::File& file) {
  if (file.format() != io::Format::gguf) return false;
  const auto architecture = file.metadata().get_or<std::string>("general.architecture", "");
  if (is_of_bert_family(architecture)) return true;
  const Architecture* const known = find_architecture(architecture);
  if (known == nullptr) return false;
  return !file.metadata().get_or<bool>(architecture + ".attention.causal", known->is_causal);
}

EncoderConfig EncoderConfig::from(const io::File& file) {
  return file.format() == io::Format::gguf ? from_gguf(file) : from_folder(file);
}

}  // namespace tenon::models
