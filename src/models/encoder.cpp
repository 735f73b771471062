// The weights of encoders by their names in files.
#include <tenon/error.hpp>
#include <tenon/models/encoder.hpp>

#include <string>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// `key`: what says in `place` how many there are.
void check_positions(const std::string& place, const char* key, const Tensor& positions,
                     const EncoderConfig& config) {
  const std::int64_t rows = positions.shape().dim(0);
  if (config.first_position + config.max_tokens > rows) {
    throw Error(Errc::bad_hyperparameter, place,
                fmt::format("'{}' is {}, but the file holds {} positions", key,
                            config.first_position + config.max_tokens, rows));
  }
}

Encoder<> from_folder(const WeightsView& whole, const EncoderConfig& config) {
  // Some files put everything below "bert.", those of classifiers below "roberta.".
  const WeightsView view = whole.contains("embeddings.word_embeddings.weight") ? whole
                           : whole.contains("roberta.embeddings.word_embeddings.weight")
                               ? whole["roberta"]
                               : whole["bert"];
  Encoder<> made;
  const WeightsView embeddings = view["embeddings"];
  made.words = nn::Embedding<>::init(embeddings["word_embeddings"]);
  made.positions = embeddings["position_embeddings"].tensor("weight");
  check_positions("config.json", "max_position_embeddings", *made.positions, config);
  made.first_position = config.first_position;
  made.types = embeddings["token_type_embeddings"].tensor("weight");
  made.norm = nn::LayerNorm<>::init(embeddings["LayerNorm"], config.norm_eps);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const WeightsView layer = view["encoder"]["layer"][i];
    const WeightsView attention = layer["attention"];
    EncoderLayer<> part;
    part.attention = nn::MultiHeadAttention<>::init(attention, config.heads,
                                                    {.query = "self.query",
                                                     .key = "self.key",
                                                     .value = "self.value",
                                                     .output = "output.dense"});
    part.attention_norm = nn::LayerNorm<>::init(attention["output"]["LayerNorm"], config.norm_eps);
    nn::FeedForward<> dense;
    dense.up = nn::Linear<>::init(layer["intermediate"]["dense"]);
    dense.down = nn::Linear<>::init(layer["output"]["dense"]);
    dense.activation = config.activation;
    part.feed_forward = std::move(dense);
    part.output_norm = nn::LayerNorm<>::init(layer["output"]["LayerNorm"], config.norm_eps);
    made.layers.push_back(std::move(part));
  }
  return made;
}

nn::MultiHeadAttention<> attention_part(const WeightsView& view, const EncoderConfig& config) {
  nn::MultiHeadAttention<> made;
  const WeightsView fused = view["attn_qkv"];
  if (fused.contains("weight")) {
    const std::int64_t dims[] = {3 * config.width, config.width};
    static_cast<void>(fused.tensor("weight", dims));
    if (view["attn_q"].contains("bias")) {
      throw Error(
          Errc::unsupported, view.origin(),
          fmt::format("{} beside {}", view["attn_q"].full_name("bias"), fused.full_name("weight")));
    }
    const auto rows = [&](std::int64_t first) {
      return nn::Linear<>::init_rows(fused, first, config.width);
    };
    made.query = rows(0);
    made.key = rows(config.width);
    made.value = rows(2 * config.width);
  } else {
    made.query = nn::Linear<>::init(view["attn_q"]);
    made.key = nn::Linear<>::init(view["attn_k"]);
    made.value = nn::Linear<>::init(view["attn_v"]);
  }
  made.output = nn::Linear<>::init(view["attn_output"]);
  const auto add_norm = [&](const char* name, std::optional<nn::LayerNorm<>>& norm) {
    if (!view[name].contains("weight")) return;
    const std::int64_t dims[] = {config.width};
    static_cast<void>(view[name].tensor("weight", dims));
    norm = nn::LayerNorm<>::init(view[name], config.norm_eps);
  };
  add_norm("attn_q_norm", made.query_layer_norm);
  add_norm("attn_k_norm", made.key_layer_norm);
  made.heads = made.kv_heads = config.heads;
  made.head_dim = config.width / config.heads;
  made.rope = config.rope;
  made.max_alibi_bias = config.max_alibi_bias;
  return made;
}

nn::FeedForward<> dense_part(const WeightsView& view, const EncoderConfig& config) {
  nn::FeedForward<> made;
  const WeightsView up = view["ffn_up"];
  const std::int64_t rows = up.tensor("weight").dim(0);
  // Jina's files have the gate above it in one weight, for itself, or none.
  if (view["ffn_gate"].contains("weight")) {
    made.gate = nn::Linear<>::init(view["ffn_gate"]);
    made.up = nn::Linear<>::init(up);
  } else if (rows == 2 * config.intermediate_size) {
    made.gate = nn::Linear<>::init_rows(up, 0, config.intermediate_size);
    made.up = nn::Linear<>::init_rows(up, config.intermediate_size, config.intermediate_size);
  } else {
    made.up = nn::Linear<>::init(up);
  }
  made.down = nn::Linear<>::init(view["ffn_down"]);
  made.activation = config.activation;
  return made;
}

nn::MixtureOfExperts<> expert_part(const WeightsView& view, const EncoderConfig& config) {
  nn::MixtureOfExperts<> made;
  made.router = nn::Linear<>::init(view["ffn_gate_inp"]);
  made.up = view["ffn_up_exps"].tensor("weight");
  made.down = view["ffn_down_exps"].tensor("weight");
  made.up_bias = view["ffn_up_exps"].find("bias");
  made.down_bias = view["ffn_down_exps"].find("bias");
  made.activation = config.activation;
  made.options = config.router;
  return made;
}

Encoder<> from_gguf(const WeightsView& view, const EncoderConfig& config) {
  Encoder<> made;
  made.words = nn::Embedding<>::init(view["token_embd"]);
  if (!config.rope && config.max_alibi_bias == 0) {
    made.positions = view["position_embd"].tensor("weight");
    check_positions(view.origin(), "bert.context_length", *made.positions, config);
  }
  made.types = view["token_types"].find("weight");
  made.norm = nn::LayerNorm<>::init(view["token_embd_norm"], config.norm_eps);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const WeightsView layer = view["blk"][i];
    const auto norm = [&](const char* name) {
      return nn::LayerNorm<>::init(layer[name], config.norm_eps);
    };
    EncoderLayer<> part;
    part.attention = attention_part(layer, config);
    part.attention_norm = norm("attn_output_norm");
    if (layer["attn_norm_2"].contains("weight")) part.second_norm = norm("attn_norm_2");
    if (config.experts_every > 0 && i % config.experts_every == 1) {
      part.experts = expert_part(layer, config);
    } else {
      part.feed_forward = dense_part(layer, config);
    }
    part.output_norm = norm("layer_output_norm");
    made.layers.push_back(std::move(part));
  }
  return made;
}

}  // namespace

template <>
Encoder<Tensor> Encoder<Tensor>::init(const WeightsView& view, const EncoderConfig& config) {
  return view.contains("token_embd.weight") ? from_gguf(view, config) : from_folder(view, config);
}

}  // namespace tenon::models
