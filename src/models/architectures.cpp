#include "models/architectures.hpp"

#include <algorithm>
#include <iterator>

namespace tenon::models {
namespace {

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

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(known_architectures, name, &Architecture::name);
  return found == std::end(known_architectures) ? nullptr : found;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Architecture& known : known_architectures) names.push_back(known.name);
  return names;
}

}  // namespace tenon::models
