#pragma once

#include <tenon/fields.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/train/initialize.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Low-rank adapters of a decoder: trained with the model's weights as they are, of block types too,
// saved alone, and merged.
//
//   const models::LoraConfig lora{.rank = 8, .alpha = 16};
//   const auto shapes = models::adapter_shapes(decoder, lora);
//   auto adapters = train::initialize(shapes, seed, device, models::lora_initial);
//   …                                  // in a step: models::with_adapters(decoder, adapters)
//   models::save_adapters("adapter", adapters, lora, decoder.config);
//
// A language model runs with them beside its weights: LanguageModelOptions::adapters.

namespace tenon::models {

/// Which linear layers have adapters, under Hugging Face's names: q_proj, k_proj, v_proj, o_proj,
/// gate_proj, up_proj and down_proj; of models where one weight has several (DecoderConfig's
/// has_fused_attention and has_fused_gate) also qkv_proj and gate_up_proj, which are all of it. Each
/// has factors of its own there, too, for its rows of the weight.
struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 16;  ///< the change is alpha / rank * B A
  std::vector<std::string> targets{"q_proj", "v_proj"};

  double scale() const noexcept { return alpha / static_cast<double>(rank); }
};

/// The adapters of a decoder's layer; empty for layers that are no targets.
template <class T = Tensor>
struct LayerAdapters {
  std::optional<nn::Lora<T>> query, key, value, output, gate, up, down;
  TENON_FIELDS(query, key, value, output, gate, up, down)
};

template <class T = Tensor>
struct DecoderAdapters {
  std::vector<LayerAdapters<T>> layers;
  TENON_FIELDS(layers)
};

/// The shapes of a decoder's adapters, of f32. Errc::bad_argument for a rank below 1, an unknown
/// target, and one that the decoder has not.
DecoderAdapters<Shape> adapter_shapes(const Decoder<Tensor>& decoder, const LoraConfig& config);

/// The decoder with adapters beside its linear layers. Errors, which name the layer and the target:
/// Errc::bad_argument where the numbers of layers differ, for a target that the layer has not and
/// for a scale that is not finite; Errc::shape_mismatch.
Decoder<Tensor> with_adapters(Decoder<Tensor> decoder, const DecoderAdapters<Tensor>& adapters);
/// The same of the weights that such a decoder is bound to.
Bufferized<Decoder<Tensor>> with_adapters(Bufferized<Decoder<Tensor>> weights,
                                          const DecoderAdapters<Buffer>& adapters);

/// For train::initialize: b is 0, so that the first change is none, and a is uniform within
/// 1 / sqrt(in), as PEFT's are.
train::Initial lora_initial(std::string_view path, const Shape& shape);

/// Writes adapters: to a path that ends in .gguf the file that llama.cpp reads; to any other a
/// folder that Hugging Face's PEFT reads, with adapter_model.safetensors and adapter_config.json.
/// PEFT's rows of queries and keys are put into Hugging Face's order where `decoder` has GGUF's
/// (llama). What is read again makes the same change: `config` gives the file's alpha, and an
/// adapter whose scale is not alpha / rank, such as one of several added up, has the rest in its b.
/// PEFT's folder has one rank, the largest, which zeros fill up. Of a weight that is several targets
/// files have one adapter: their ranks add up, unless they have the same factor a.
/// Errors: those of io::save_safetensors and io::save_gguf; Errc::io_error for the folder;
/// Errc::bad_argument for none, and in PEFT's for a target that not every layer has;
/// Errc::shape_mismatch for factors of two ranks.
void save_adapters(const std::filesystem::path& path, const DecoderAdapters<Buffer>& adapters,
                   const LoraConfig& config, const DecoderConfig& decoder);

/// Reads such a folder or file, of PEFT's and llama.cpp's own too, for a decoder with these
/// weights. Factors of other types become f32. Each layer may have other targets, and each target
/// another rank and scale (PEFT's rank_pattern, alpha_pattern, layers_to_transform, use_rslora); the
/// result's configuration has PEFT's r, or of a GGUF file the first rank. A pattern is the name of a
/// module or its last parts, or behind a ^ the whole name; other expressions are refused.
/// Errors: those of io::open and of JSON files; Errc::unsupported for adapters of another kind than
/// plain LoRA, or of tensors that are no target; Errc::bad_reference for a missing factor or
/// target, and for a file of another architecture; Errc::shape_mismatch.
std::pair<DecoderAdapters<HostBuffer>, LoraConfig> load_adapters(const std::filesystem::path& path,
                                                                 const Decoder<Tensor>& decoder);

/// A folder or file of adapters, and a factor of what they change.
struct AdapterSource {
  std::filesystem::path path;
  double scale = 1;
};

/// Reads several and gives the adapters that change a decoder as all of them do together: a target's
/// ranks are those of its adapters, added up. Errors as above; Errc::bad_argument for a scale that is
/// not finite.
DecoderAdapters<HostBuffer> load_adapters(std::span<const AdapterSource> sources,
                                          const Decoder<Tensor>& decoder);

/// weight + scale * B A, computed in f32 and rounded to the weight's type: of a block type, that is
/// a new quantisation, whose error adds to that of the first.
/// weight: [out, in]; the factors are f32. Errc::shape_mismatch.
HostBuffer merged(const HostBuffer& weight, const nn::Lora<HostBuffer>& factors);

/// The weights of a decoder with adapters merged into them, for Exe::bind of the plain decoder.
/// Errors: those of with_adapters.
Bufferized<Decoder<Tensor>> merge_adapters(Bufferized<Decoder<Tensor>> weights,
                                           const DecoderAdapters<Buffer>& adapters,
                                           const DevicePtr& device);

}  // namespace tenon::models
