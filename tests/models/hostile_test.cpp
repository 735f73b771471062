// Models with invalid metadata: loading ends in an error that names the invalid value.
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>
#include <tenon/log.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vocabulary.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

constexpr double infinite_number = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// A tiny model in memory, to be changed and written.
struct TinyModel {
  explicit TinyModel(const std::string& architecture)
      : file(io::open("tests/models/data/tiny_" + architecture + ".gguf")),
        metadata(file.metadata()) {
    for (const io::TensorEntry& entry : file.tensors())
      tensors.push_back({entry.name, entry.data()});
  }

  void remove(std::string_view key) {
    std::vector<io::Metadata::Entry> kept;
    std::ranges::copy_if(metadata.entries(), std::back_inserter(kept),
                         [&](const auto& entry) { return entry.key != key; });
    metadata = io::Metadata(kept, std::make_shared<io::Metadata>(metadata), "changed");
  }
  void remove_tensor(std::string_view name) {
    std::erase_if(tensors, [&](const io::NamedTensor& tensor) { return tensor.name == name; });
  }
  std::vector<std::string_view> tokens() const {
    const auto found = metadata.strings("tokenizer.ggml.tokens");
    return {found.begin(), found.end()};
  }

  /// What loading the changed model says; it must be this error.
  std::string refused(Errc code) const {
    const TempFolder folder;
    io::save_gguf(folder / "changed.gguf", metadata, tensors);
    models::LanguageModelOptions options;
    options.context = 16;
    options.backend.threads = 1;
    return expect_error(code,
                        [&] { models::LanguageModel::load(folder / "changed.gguf", options); });
  }

  /// What loading the changed model, which works, warns of.
  std::vector<std::string> warnings() const {
    const TempFolder folder;
    io::save_gguf(folder / "changed.gguf", metadata, tensors);
    std::vector<std::string> told;
    LogSink before =
        set_log_sink([&](LogLevel, std::string_view message) { told.emplace_back(message); });
    models::LanguageModel::load(folder / "changed.gguf", {.context = 16});
    set_log_sink(std::move(before));
    return told;
  }

  io::File file;
  io::Metadata metadata;
  std::vector<io::NamedTensor> tensors;
};

/// Sets a key of tiny_llama and expects an error that names it.
template <class T>
void refuse(Errc code, std::string_view key, T value) {
  INFO(key << " = " << value);
  TinyModel model("llama");
  model.metadata.set(key, value);
  CHECK(model.refused(code).find(key) != std::string::npos);
}

}  // namespace

TEST_CASE("hostile models: the unchanged copy loads") {
  const TempFolder folder;
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3", "olmoe", "gpt-oss",
                                   "deepseek2", "mamba", "mamba2", "rwkv7"}) {
    INFO(architecture);
    const TinyModel model(architecture);
    io::save_gguf(folder / "copy.gguf", model.metadata, model.tensors);
    CHECK_NOTHROW(models::LanguageModel::load(folder / "copy.gguf"));
  }
}

TEST_CASE("hostile models: sizes out of range are refused by name") {
  const std::int64_t huge = std::int64_t{1} << 31;
  const struct {
    const char* key;
    std::vector<std::int64_t> values;
  } cases[] = {
      {"llama.block_count", {0, -1, 513, huge}},
      {"llama.embedding_length", {0, -32, huge}},
      {"llama.feed_forward_length", {0, -1, huge}},
      {"llama.attention.head_count", {0, -2, 3, huge}},  // 3 does not divide the width of 32
      {"llama.attention.head_count_kv", {0, 3, huge}},   // more than the heads
      {"llama.attention.key_length", {0, -16, huge}},
      {"llama.attention.value_length", {0, 8}},  // keys have 16
      {"llama.context_length", {0, -1, huge + 1}},
      {"llama.rope.dimension_count", {0, 3, 18}},  // odd, and wider than a head
      {"llama.rope.scaling.original_context_length", {0, huge + 1}},
      {"llama.expert_count", {-1}},
  };
  for (const auto& c : cases) {
    for (const std::int64_t value : c.values) refuse(Errc::bad_hyperparameter, c.key, value);
  }
}

TEST_CASE("hostile models: heads that do not divide into groups") {
  TinyModel model("llama");
  model.metadata.set("llama.attention.head_count", 4);
  model.metadata.set("llama.attention.head_count_kv", 3);
  CHECK(model.refused(Errc::bad_hyperparameter).find("llama.attention.head_count_kv is 3") !=
        std::string::npos);
}

TEST_CASE("hostile models: numbers that are none, and scales out of range") {
  for (const double value : {no_number, infinite_number, -1.0}) {
    refuse(Errc::bad_hyperparameter, "llama.attention.layer_norm_rms_epsilon", value);
    refuse(Errc::bad_hyperparameter, "llama.rope.freq_base", value);
    refuse(Errc::bad_hyperparameter, "llama.rope.scaling.factor", value);
  }
  refuse(Errc::bad_hyperparameter, "llama.rope.freq_base", 0.0);
  refuse(Errc::bad_hyperparameter, "llama.rope.scaling.factor", 0.0);
}

TEST_CASE("hostile models: windows of gemma3") {
  for (const std::int64_t value : {std::int64_t{-1}, (std::int64_t{1} << 31) + 1}) {
    TinyModel model("gemma3");
    model.metadata.set("gemma3.attention.sliding_window", value);
    CHECK(model.refused(Errc::bad_hyperparameter).find("gemma3.attention.sliding_window") !=
          std::string::npos);
  }
  TinyModel model("gemma3");
  model.metadata.set("gemma3.attention.sliding_window_pattern", 0);
  CHECK(model.refused(Errc::bad_hyperparameter).find("sliding_window_pattern") !=
        std::string::npos);
}

TEST_CASE("hostile models: layers of gemma4 that the file does not tell apart") {
  const auto refused = [](const auto& change) {
    TinyModel model("gemma4");
    change(model.metadata);
    return model.refused(Errc::unsupported);
  };
  for (const char* key : {"gemma4.attention.head_count_kv", "gemma4.feed_forward_length"}) {
    const auto why = refused([&](io::Metadata& metadata) {
      metadata.set_array<std::int32_t>(key, std::vector<std::int32_t>{1, 1});
    });
    CHECK(why.find(key) != std::string::npos);
  }
  const char* const pattern = "gemma4.attention.sliding_window_pattern";
  const auto why = refused([&](io::Metadata& metadata) { metadata.set(pattern, 3); });
  CHECK(why.find(pattern) != std::string::npos);
}

TEST_CASE("hostile models: experts, groups of them, and latent attention") {
  const std::int64_t huge = std::int64_t{1} << 31;
  const struct {
    const char* architecture;
    const char* key;
    std::vector<std::int64_t> values;
  } cases[] = {
      {"olmoe", "olmoe.expert_used_count", {0, -1, 6, huge}},  // of 5
      {"olmoe", "olmoe.expert_count", {-1, 1, huge}},          // 2 are used
      {"olmoe", "olmoe.expert_gating_func", {0, 4, huge}},
      {"gpt-oss", "gpt-oss.attention.sliding_window", {-1, huge + 1}},
      {"gpt-oss", "gpt-oss.attention.sliding_window_pattern", {0, huge}},
      {"deepseek2", "deepseek2.expert_group_count", {-1, 3, 8, 9, huge}},  // of 8 experts
      {"deepseek2", "deepseek2.expert_group_used_count", {0, -1, 1, 5, huge}},
      {"deepseek2", "deepseek2.leading_dense_block_count", {-1, 3, huge}},
      {"deepseek2", "deepseek2.nextn_predict_layers", {-1, 2, huge}},
      {"deepseek2", "deepseek2.attention.kv_lora_rank", {0, -1, huge}},
      {"deepseek2", "deepseek2.attention.key_length_mla", {0, -1, 16, huge}},
      {"deepseek2", "deepseek2.rope.dimension_count", {0, 15, 48, huge}},
      {"rwkv7", "rwkv7.wkv.head_size", {0, -1, 3, 65, huge}},  // of 64 numbers
      {"rwkv6", "rwkv6.wkv.head_size", {0, -1, 3, 65, huge}},
      {"rwkv6", "rwkv6.rescale_every_n_layers", {-1, huge}},
      {"mamba", "mamba.ssm.conv_kernel", {0, -1, 1, huge}},
      {"mamba", "mamba.ssm.inner_size", {0, -1, huge}},
      {"mamba", "mamba.ssm.state_size", {0, -1, huge}},
      {"mamba2", "mamba2.ssm.time_step_rank", {0, -1, 3, 65, huge}},  // of 64 channels
      {"mamba2", "mamba2.ssm.group_count", {0, -1, 3, 5, huge}},      // of 4 heads
      {"gemma2", "gemma2.attention.sliding_window", {-1, huge + 1}},
      {"lfm2", "lfm2.shortconv.l_cache", {0, -1, 1, huge}},
      {"llama4", "llama4.interleave_moe_layer_step", {0, -1, huge}},
      {"gemma3n", "gemma3n.attention.shared_kv_layers", {-1, 21, 22, huge}},
      {"gemma4",
       "gemma4.attention.shared_kv_layers",
       {-1, 4, 5, 6, huge}},  // the first two have windows
      {"gemma4", "gemma4.attention.sliding_window", {0, -1, huge + 1}},
      {"gemma4", "gemma4.attention.head_count_kv", {3}},  // of 4
      {"gemma4", "gemma4.attention.key_length", {0, -1, 32, huge}},
      {"gemma4", "gemma4.attention.key_length_swa", {0, -1, 64, huge}},
      {"gemma4", "gemma4.rope.dimension_count_swa", {0, -1, 1, 3, 34, huge}},
      {"gemma4", "gemma4.embedding_length_per_layer_input", {-1, huge}},
      {"minicpm3", "minicpm3.attention.kv_lora_rank", {0, -1, huge}},
      {"plm", "plm.attention.key_length", {0, -1, 8, huge}},  // 8 are rotated
      {"plm", "plm.attention.value_length", {0, -1, huge}},
      {"gemma3n", "gemma3n.altup.active_idx", {-1, 4, huge}},
      {"gemma3n", "gemma3n.altup.num_inputs", {0, 1, huge}},
      {"gemma3n", "gemma3n.embedding_length_per_layer_input", {0, -1, huge}},
  };
  for (const auto& c : cases) {
    for (const std::int64_t value : c.values) {
      INFO(c.key << " = " << value);
      TinyModel model(c.architecture);
      model.metadata.set(c.key, value);
      CHECK(model.refused(Errc::bad_hyperparameter).find(c.architecture) != std::string::npos);
    }
  }
}

TEST_CASE("hostile models: experts whose tensors are missing or of other sizes") {
  const struct {
    const char* architecture;
    const char* tensor;
  } cases[] = {
      {"olmoe", "blk.1.ffn_gate_inp.weight"},
      {"olmoe", "blk.0.ffn_up_exps.weight"},
      {"gpt-oss", "blk.0.post_attention_norm.weight"},
      {"gpt-oss", "blk.1.ffn_down_exps.weight"},
      {"deepseek2", "blk.0.attn_kv_a_norm.weight"},
      {"deepseek2", "blk.1.attn_v_b.weight"},
      {"deepseek2", "blk.0.ffn_gate.weight"},
      {"deepseek2", "blk.1.attn_q_a_norm.weight"},
      {"rwkv7", "blk.0.time_mix_lerp_fused.weight"},
      {"rwkv7", "blk.1.time_mix_v1.weight"},
      {"rwkv7", "blk.1.attn_norm_2.weight"},
      {"rwkv7", "token_embd_norm.weight"},
      {"rwkv6", "blk.1.time_mix_lerp_fused.weight"},
      {"rwkv6", "blk.2.time_mix_w2.weight"},
      {"rwkv6", "blk.0.channel_mix_receptance.weight"},
      {"mamba", "blk.0.ssm_in.weight"},
      {"mamba", "blk.1.ssm_x.weight"},
      {"mamba", "blk.1.ssm_a"},
      {"mamba", "blk.0.ssm_conv1d.weight"},
      {"mamba2", "blk.0.ssm_norm.weight"},
      {"mamba2", "blk.1.ssm_dt.bias"},
      {"gemma3", "blk.1.post_ffw_norm.weight"},
      {"olmo2", "blk.0.post_attention_norm.weight"},
      {"phi3", "blk.1.ffn_up.weight"},
      {"command-r", "blk.0.attn_norm.weight"},
      {"lfm2", "blk.0.shortconv.conv.weight"},
      {"granitehybrid", "blk.0.ssm_norm.weight"},
      {"qwen35", "blk.0.attn_gate.weight"},
      {"qwen35", "blk.3.attn_q_norm.weight"},
      {"bloom", "token_embd_norm.weight"},
      {"mpt", "blk.1.ffn_up.weight"},
      {"jais", "blk.0.ffn_gate.weight"},
      {"stablelm_12b", "blk.0.attn_norm.weight"},
      {"qwen3next", "blk.0.ssm_ba.weight"},
      {"qwen3next", "blk.2.attn_qkv.weight"},
      {"falcon-h1", "blk.1.ssm_out.weight"},
      {"falcon-h1", "blk.1.attn_q.weight"},
      {"nemotron_h", "blk.1.attn_norm.weight"},
      {"nemotron_h", "blk.2.ssm_norm.weight"},
      {"nemotron_h", "blk.4.ffn_down.weight"},
      {"hunyuan-dense", "blk.1.attn_k_norm.weight"},
      {"dbrx", "blk.1.attn_output_norm.weight"},
      {"nemotron_h_moe", "blk.4.ffn_up_exps.weight"},
      {"nemotron_h_moe", "blk.1.ffn_down_shexp.weight"},
      {"jamba", "blk.0.ssm_b_norm.weight"},
      {"jamba", "blk.1.ffn_up_exps.weight"},
      {"llama4", "blk.3.ffn_up_exps.weight"},
      {"gemma3n", "altup_proj.weight"},
      {"gemma3n", "per_layer_token_embd.weight"},
      {"gemma3n", "blk.21.laurel_r.weight"},
      {"gemma3n", "blk.0.altup_correct_scale.weight"},
      {"apertus", "blk.1.ffn_up.weight"},
      {"minicpm3", "blk.1.attn_kv_b.weight"},
      {"plm", "blk.0.attn_q.weight"},
      {"deci", "blk.2.attn_output.weight"},
      {"deci", "blk.1.ffn_norm.weight"},
      {"exaone-moe", "blk.1.ffn_up_exps.weight"},
      {"llama4", "blk.0.attn_norm.weight"},
  };
  for (const auto& c : cases) {
    INFO(c.tensor);
    TinyModel model(c.architecture);
    model.remove_tensor(c.tensor);
    CHECK(model.refused(Errc::bad_reference).find(c.tensor) != std::string::npos);
    TinyModel other(c.architecture);
    for (io::NamedTensor& tensor : other.tensors) {
      if (tensor.name == c.tensor) tensor.data = HostBuffer::zeros(Shape({3, 5, 32}, f32));
    }
    other.refused(Errc::corrupt);
  }
  for (const char* key : {"inner_size", "state_size", "conv_kernel"}) {
    TinyModel other("mamba");
    other.metadata.set(std::string("mamba.ssm.") + key, 8);
    other.refused(Errc::corrupt);
  }
  TinyModel sinks("gpt-oss");
  for (io::NamedTensor& tensor : sinks.tensors) {
    if (tensor.name.ends_with("attn_sinks.weight"))
      tensor.data = HostBuffer::zeros(Shape({3}, f32));
  }
  sinks.refused(Errc::corrupt);
}

TEST_CASE("hostile models: keys that are missing or of another type") {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.context_length",
        "tokenizer.ggml.model", "tokenizer.ggml.tokens"}) {
    INFO(key);
    TinyModel model("llama");
    model.remove(key);
    CHECK(model.refused(Errc::bad_key).find(key) != std::string::npos);
  }
  refuse(Errc::bad_type, "llama.block_count", "two");
  refuse(Errc::bad_type, "llama.block_count", 2.0);
  refuse(Errc::bad_type, "llama.block_count", std::numeric_limits<std::uint64_t>::max());
  refuse(Errc::bad_type, "llama.rope.freq_base", true);
  refuse(Errc::bad_type, "general.architecture", 7);
  refuse(Errc::bad_type, "tokenizer.ggml.tokens", "one string");
}

TEST_CASE("hostile models: what no build of this library reads") {
  const auto unsupported = [](std::string_view key, auto value, std::string_view says) {
    TinyModel model("llama");
    model.metadata.set(key, value);
    CHECK(model.refused(Errc::unsupported).find(says) != std::string::npos);
  };
  unsupported("general.architecture", "arctic", "'arctic'");
  unsupported("llama.rope.scaling.type", "warped", "'warped'");
  unsupported("tokenizer.ggml.model", "unigram", "'unigram'");
  unsupported("tokenizer.ggml.model", "no_vocab", "without a vocabulary");
  unsupported("tokenizer.ggml.pre", "martian", "martian");

  TinyModel before(
      "deepseek2");  // as a file from before keys and values were split, which has both in one
  before.remove("deepseek2.attention.key_length_mla");
  CHECK(before.refused(Errc::bad_reference).find("attn_kv_b.weight") != std::string::npos);
  TinyModel tempered("deepseek2");
  tempered.metadata.set("deepseek2.attention.temperature_scale", 0.1);
  tempered.refused(Errc::unsupported);
  TinyModel mixed("gpt-oss");
  mixed.metadata.set("gpt-oss.rope.scaling.yarn_ext_factor", 0.5);
  mixed.refused(Errc::unsupported);
  TinyModel clipped("deepseek2");
  clipped.metadata.set("deepseek2.attention.clamp_kqv", 8.0);
  CHECK(clipped.refused(Errc::unsupported).find("clamp_kqv is 8") != std::string::npos);
  TinyModel latent("nemotron_h_moe");
  latent.metadata.set("nemotron_h_moe.moe_latent_size", 16);
  CHECK(latent.refused(Errc::bad_reference).find("ffn_latent_down.weight") != std::string::npos);
  TinyModel other_latent("nemotron_h_moe_latent");
  other_latent.metadata.set("nemotron_h_moe.moe_latent_size", 32);
  CHECK(other_latent.refused(Errc::corrupt).find("ffn_latent_down") != std::string::npos);
  for (const auto& [architecture, key] : {std::pair("ernie4_5-moe", "interleave_moe_layer_step"),
                                          {"granitemoe", "moe_latent_size"}}) {
    TinyModel model(architecture);
    model.metadata.set(std::string(architecture) + "." + key, 2);
    CHECK(model.refused(Errc::unsupported).find(key) != std::string::npos);
  }
  for (const auto& [key, value] :
       {std::pair("attention.sliding_window", 4096), {"expert_count", 0}}) {
    TinyModel model("llama4");
    model.metadata.set(std::string("llama4.") + key, value);
    CHECK(model.refused(Errc::unsupported).find("llama4") != std::string::npos);
  }
  for (const std::vector<float>& numbers : {std::vector<float>{0.3F}, {0.3F, INFINITY}}) {
    TinyModel model("apertus");
    model.metadata.set_array<float>("xielu.alpha_p", numbers);
    CHECK(model.refused(Errc::unsupported).find("xielu.alpha_p") != std::string::npos);
  }
  TinyModel stretched("hunyuan-dense");
  stretched.metadata.set("hunyuan-dense.rope.scaling.alpha", 50.0);
  CHECK(stretched.refused(Errc::unsupported).find("alpha is 50") != std::string::npos);
  TinyModel activations("mpt");
  activations.tensors.push_back({"blk.0.ffn_act.scales", HostBuffer::zeros(Shape({32}, f32))});
  CHECK(activations.refused(Errc::unsupported).find("ffn_act.scales") != std::string::npos);
}

TEST_CASE("hostile models: layers that are one part each where they are not expected") {
  const auto refused = [](const char* architecture, const std::string& key, auto value) {
    TinyModel model(architecture);
    const std::string name = std::string(architecture) + "." + key;
    if constexpr (std::is_integral_v<decltype(value)>) {
      model.metadata.set(name, value);
    } else {
      model.metadata.set_array<std::int32_t>(name, value);
    }
    CHECK(model.refused(Errc::unsupported).find(name) != std::string::npos);
  };
  using List = std::vector<std::int32_t>;
  refused("llama", "feed_forward_length", List{64, 0});
  refused("nemotron_h", "feed_forward_length", 32);
  refused("nemotron_h", "feed_forward_length", List{0, 32});
  refused("nemotron_h", "feed_forward_length", List{0, 32, 0, 0, 64});
  refused("nemotron_h", "attention.head_count_kv", 1);
  refused("deci", "attention.head_count_kv", List{1, 0, 0, 0, 2});
  refused("deci", "attention.head_count", List{2, 0, 2, 0});
  refused("deci", "attention.head_count", List{2, 0, 4, 0, 2});
  refused("deci", "feed_forward_length", List{64, 32, -32, 0, 96});
  TinyModel headless("deci");
  headless.metadata.set_array<std::int32_t>("deci.attention.head_count", List{0, 0, 0, 0, 0});
  CHECK(headless.refused(Errc::bad_hyperparameter).find("head_count") != std::string::npos);
  TinyModel bare("deci");  // attention alone
  bare.metadata.set_array<std::int32_t>("deci.feed_forward_length", List{64, 32, 32, 0, 0});
  CHECK(bare.refused(Errc::unsupported).find("layer 4") != std::string::npos);
}

TEST_CASE("hostile models: limits of attention that are out of range") {
  for (const auto& [architecture, key] : {std::pair("bloom", "max_alibi_bias"),
                                          {"mpt", "clamp_kqv"},
                                          {"mistral3", "temperature_scale"}}) {
    for (const double value : {-1.0, infinite_number, no_number}) {
      TinyModel model(architecture);
      model.metadata.set(std::string(architecture) + ".attention." + key, value);
      CHECK(model.refused(Errc::bad_hyperparameter).find(key) != std::string::npos);
    }
  }
}

TEST_CASE("hostile models: more layers than the file says, and tensors of other shapes") {
  TinyModel fewer("llama");
  fewer.metadata.set("llama.block_count", std::uint32_t{1});
  CHECK(fewer.refused(Errc::corrupt).find("blk.1.") != std::string::npos);
  // Unless those are said to predict further tokens.
  TinyModel further("llama");
  further.metadata.set("llama.nextn_predict_layers", std::uint32_t{1});
  CHECK(further.warnings().empty());

  TinyModel frequencies("llama");
  frequencies.remove_tensor("rope_freqs.weight");
  frequencies.tensors.push_back({"rope_freqs.weight", HostBuffer::zeros(Shape({3}, f32))});
  CHECK(frequencies.refused(Errc::corrupt).find("changed.gguf") != std::string::npos);
}

TEST_CASE("hostile models: tensors that nothing reads are told") {
  TinyModel model("llama");
  CHECK(model.warnings().empty());
  for (const char* name : {"blk.0.attn_q.bogus", "foo"}) {
    model.tensors.push_back({name, HostBuffer::zeros(Shape({3}, f32))});
  }
  const std::vector<std::string> warnings = model.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("2 tensors are not read: blk.0.attn_q.bogus, foo") != std::string::npos);
}

TEST_CASE("hostile models: metadata that disagrees with the tensors") {
  TinyModel deeper("llama");
  deeper.metadata.set("llama.block_count", 3);
  CHECK(deeper.refused(Errc::bad_reference).find("blk.2.") != std::string::npos);

  TinyModel headless("llama");
  headless.remove_tensor("output_norm.weight");
  CHECK(headless.refused(Errc::bad_reference).find("output_norm.weight") != std::string::npos);

  TinyModel wide("llama");
  wide.metadata.set("llama.attention.key_length", 32);
  wide.metadata.set("llama.attention.value_length", 32);
  wide.refused(Errc::bad_shape);
}

TEST_CASE("hostile vocabularies: lists of different lengths") {
  for (const std::size_t length : {std::size_t{1}, std::size_t{271}, std::size_t{273}}) {
    TinyModel scores("llama");
    scores.metadata.set_array<float>("tokenizer.ggml.scores", std::vector<float>(length, 0.0f));
    CHECK(scores.refused(Errc::bad_tokenizer).find("scores for 272 tokens") != std::string::npos);
    TinyModel types("llama");
    types.metadata.set_array<std::int32_t>("tokenizer.ggml.token_type",
                                           std::vector<std::int32_t>(length, 1));
    CHECK(types.refused(Errc::bad_tokenizer).find("token types for 272 tokens") !=
          std::string::npos);
  }
}

TEST_CASE("hostile vocabularies: tokens twice, none, or other than embeddings") {
  TinyModel twice("llama");
  auto tokens = twice.tokens();
  tokens[20] = tokens[10];
  twice.metadata.set_strings("tokenizer.ggml.tokens", tokens);
  const std::string text = twice.refused(Errc::bad_tokenizer);
  CHECK(text.find("tokens 10 and 20") != std::string::npos);
  CHECK(text.find("changed.gguf") != std::string::npos);

  TinyModel none("llama");
  none.metadata.set_strings("tokenizer.ggml.tokens", {});
  none.refused(Errc::bad_tokenizer);

  TinyModel more("llama");
  tokens = more.tokens();
  tokens.push_back("one too many");
  more.metadata.set_strings("tokenizer.ggml.tokens", tokens);
  more.remove("tokenizer.ggml.token_type");
  CHECK(more.refused(Errc::bad_tokenizer).find("273 tokens, but embeddings for 272") !=
        std::string::npos);

  TinyModel fewer("llama");
  tokens = fewer.tokens();
  tokens.pop_back();
  fewer.metadata.set_strings("tokenizer.ggml.tokens", tokens);
  fewer.remove("tokenizer.ggml.token_type");
  const auto merges = fewer.metadata.strings("tokenizer.ggml.merges");
  fewer.metadata.set_strings("tokenizer.ggml.merges", std::vector{merges[0]});  // of these tokens
  CHECK(fewer.refused(Errc::bad_tokenizer).find("271 tokens, but embeddings for 272") !=
        std::string::npos);
}

TEST_CASE("hostile vocabularies: byte-level BPE without merges") {
  TinyModel absent("llama");
  absent.remove("tokenizer.ggml.merges");
  CHECK(absent.refused(Errc::bad_tokenizer).find("tokenizer.ggml.merges") != std::string::npos);
  TinyModel empty("llama");
  empty.metadata.set_strings("tokenizer.ggml.merges", {});
  CHECK(empty.refused(Errc::bad_tokenizer).find("tokenizer.ggml.merges") != std::string::npos);
}

TEST_CASE("hostile vocabularies: types and merges that mean nothing") {
  for (const std::int32_t type : {0, 7, -1, std::numeric_limits<std::int32_t>::max()}) {
    TinyModel model("llama");
    std::vector<std::int32_t> types(272, 1);
    types[200] = type;
    model.metadata.set_array<std::int32_t>("tokenizer.ggml.token_type", types);
    CHECK(model.refused(Errc::bad_tokenizer).find("token_type") != std::string::npos);
  }
  for (const std::string_view merge : {"", " ", "alone", "a ", "zzz yyy"}) {
    INFO("merge '" << merge << "'");
    TinyModel model("llama");
    model.metadata.set_strings("tokenizer.ggml.merges", std::vector{merge});
    model.refused(Errc::bad_tokenizer);
  }
}

TEST_CASE("hostile vocabularies: ids outside of them") {
  for (const char* key : {"bos", "eos", "eot", "unknown", "seperator", "padding", "cls", "mask"}) {
    for (const std::uint32_t id : {std::uint32_t{272}, std::numeric_limits<std::uint32_t>::max()}) {
      INFO(key << " " << id);
      TinyModel model("llama");
      model.metadata.set("tokenizer.ggml." + std::string(key) + "_token_id", id);
      const std::string text = model.refused(Errc::bad_tokenizer);
      CHECK(text.find(std::to_string(id)) != std::string::npos);
      CHECK(text.find("changed.gguf") != std::string::npos);
    }
  }
  refuse(Errc::bad_type, "tokenizer.ggml.bos_token_id", std::int32_t{-1});

  TinyModel model("llama");
  model.remove("tokenizer.ggml.bos_token_id");
  model.metadata.set("tokenizer.ggml.add_bos_token", true);
  CHECK(model.refused(Errc::bad_tokenizer).find("add_bos") != std::string::npos);
}

TEST_CASE("hostile vocabularies: the file still opens for its tensors") {
  const TempFolder folder;
  TinyModel model("llama");
  model.metadata.set_strings("tokenizer.ggml.tokens", {});
  io::save_gguf(folder / "changed.gguf", model.metadata, model.tensors);
  const io::File file = io::open(folder / "changed.gguf");
  expect_error(Errc::bad_tokenizer, [&] { models::load_tokenizer(file); });
  CHECK(file.tensors().size() == model.tensors.size());
  CHECK(file.at("token_embd.weight").data().shape().dim(0) == 272);
}

TEST_CASE("hostile files: a model that is cut short while it loads, or while it is used") {
  const TempFolder folder;
  const auto path = folder / "model.gguf";
  const auto whole = read_bytes("tests/models/data/tiny_llama.gguf");
  models::LanguageModelOptions options;
  options.context = 64;
  options.backend.threads = 1;

  options.load.progress = [&](const io::LoadProgress&) { std::filesystem::resize_file(path, 0); };
  // Told of the first weight that is packed: small ones have been copied by then, so that nothing
  // of the file may be needed any more. Whether the tokenizer is ready is left to chance.
  for (int i = 0; i < 20; ++i) {
    folder.write("model.gguf", whole);
    try {
      models::LanguageModel::load(path, options);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::io_error);
    }
  }

  // An access to a page would have killed this process in the last load; and so here.
  folder.write("model.gguf", whole);
  options.load.progress = {};
  options.lazy = true;  // what is packed while it loads needs no file later
  const auto model = models::LanguageModel::load(path, options);
  std::filesystem::resize_file(path, 0);
  auto conversation = model.conversation();
  const std::vector<std::int32_t> prompt{100, 101, 102};
  const auto generate = [&] { models::generate(model, conversation, prompt, {.max_tokens = 4}); };
  expect_error(Errc::io_error, generate);
  expect_error(Errc::io_error, generate);
  expect_error(Errc::io_error, [&] { conversation.read(prompt); });
}

TEST_CASE("hostile folders: packed weights are kept where only this user may write") {
  using std::filesystem::perms;
  const TempFolder folder;
  models::LanguageModelOptions options;
  options.context = 16;
  options.backend.threads = 1;
  options.packed_folder = folder / "made/packed/";
  const auto load = [&] {
    models::LanguageModel::load("tests/models/data/tiny_llama.gguf", options);
  };
  load();
  CHECK(std::filesystem::status(options.packed_folder).permissions() == perms::owner_all);
  std::filesystem::permissions(options.packed_folder, perms::others_write,
                               std::filesystem::perm_options::add);
  const std::string words = expect_error(Errc::io_error, load);
  CHECK(words.find("others may write it") != std::string::npos);
  std::filesystem::permissions(options.packed_folder, perms::owner_all);
  load();
}

TEST_CASE("vocabularies of GGUF files: BERT's pieces carry their mark at the beginning of words") {
  const TempFolder folder;
  io::Metadata metadata;
  metadata.set("general.architecture", "bert");
  metadata.set("tokenizer.ggml.model", "bert");
  metadata.set_strings(
      "tokenizer.ggml.tokens",
      std::vector<std::string_view>{"[CLS]", "[SEP]", "[UNK]", "▁un", "able", "▁able"});
  metadata.set_array<std::int32_t>("tokenizer.ggml.token_type",
                                   std::vector<std::int32_t>{3, 3, 3, 1, 1, 1});
  metadata.set("tokenizer.ggml.cls_token_id", 0u);
  metadata.set("tokenizer.ggml.seperator_token_id", 1u);
  metadata.set("tokenizer.ggml.unknown_token_id", 2u);
  io::save_gguf(folder / "bert.gguf", metadata, {});
  const auto tokenizer = models::load_tokenizer(io::open(folder / "bert.gguf"));
  CHECK(tokenizer.encode("Unable able") == std::vector<std::int32_t>{0, 3, 4, 5, 1});
  CHECK(tokenizer.decode(std::vector<std::int32_t>{3, 4, 5}) == "unable able");
  metadata.set("tokenizer.ggml.normalizer.lowercase", false);
  io::save_gguf(folder / "cased.gguf", metadata, {});
  CHECK(models::load_tokenizer(io::open(folder / "cased.gguf")).encode("Unable able") ==
        std::vector<std::int32_t>{0, 2, 5, 1});
}

TEST_CASE("vocabularies of GGUF files: unigram, with SentencePiece's replacements of either type") {
  using Ids = std::vector<std::int32_t>;
  const TempFolder folder;
  io::Metadata metadata;
  metadata.set("general.architecture", "t5");
  metadata.set("tokenizer.ggml.model", "t5");
  metadata.set_strings("tokenizer.ggml.tokens",
                       std::vector<std::string_view>{"<pad>", "</s>", "<unk>", "▁", "a", "▁a"});
  metadata.set_array<std::int32_t>("tokenizer.ggml.token_type",
                                   std::vector<std::int32_t>{3, 3, 2, 1, 1, 1});
  metadata.set_array<float>("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -3, -2, -1});
  metadata.set("tokenizer.ggml.add_space_prefix", true);
  metadata.set("tokenizer.ggml.remove_extra_whitespaces", true);
  const auto load = [&] {
    io::save_gguf(folder / "t5.gguf", metadata, {});
    return models::load_tokenizer(io::open(folder / "t5.gguf"));
  };
  CHECK(load().encode(" aA ") == Ids{5, 2, 1});
  // A trie of one entry: unit 0 leads to unit 'A' xor 1, whose value, in unit 1, is place 0.
  std::vector<std::uint8_t> table(4 + 4 * 128 + 2, 0xFF);
  const auto put = [&](std::size_t at, std::uint32_t word) {
    for (unsigned i = 0; i < 4; ++i) table[at + i] = static_cast<std::uint8_t>(word >> (8 * i));
  };
  put(0, 4 * 128);
  put(4, 2 << 10);                                                 // the root's base: 2
  put(4 + 4 * ('A' ^ 2), (('A' ^ 2 ^ 1) << 10) | (1 << 8) | 'A');  // a value, at base 1
  put(4 + 4 * 1, std::uint32_t{1} << 31);
  table[table.size() - 2] = 'a';
  table[table.size() - 1] = 0;
  metadata.set_array<std::uint8_t>("tokenizer.ggml.precompiled_charsmap", table);
  CHECK(load().encode(" aA ") == Ids{5, 4, 1});
  metadata.set_array<std::int8_t>("tokenizer.ggml.precompiled_charsmap",
                                  std::vector<std::int8_t>(table.begin(), table.end()));
  CHECK(load().encode(" aA ") == Ids{5, 4, 1});
  metadata.set_array<std::uint8_t>("tokenizer.ggml.precompiled_charsmap",
                                   std::span(table).first(9));
  expect_error(Errc::bad_tokenizer, load);
  metadata.set_array<float>("tokenizer.ggml.precompiled_charsmap", std::vector<float>{1});
  expect_error(Errc::bad_type, load);
}

TEST_CASE("hostile calls: contexts that no machine holds") {
  models::LanguageModelOptions options;
  const auto load = [&] {
    models::LanguageModel::load("tests/models/data/tiny_llama.gguf", options).conversation();
  };
  options.context = -1;
  expect_error(Errc::bad_argument, load);
  options.context = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::shape_overflow, load);
  options.context = 16;
  options.chunk = 0;
  expect_error(Errc::bad_argument, load);
}
