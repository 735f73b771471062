#pragma once

#include <tenon/backend.hpp>
#include <tenon/fields.hpp>
#include <tenon/held.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// Hyperparameters of a BERT encoder, from the config.json beside its weights.
struct BertConfig {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t intermediate_size = 0;  ///< width of the feed-forward part
  std::int64_t heads = 0;
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  std::int64_t max_tokens =
      0;  ///< longer texts are truncated; from sentence_bert_config.json, else max_positions
  double norm_eps = 1e-12;
  Name activation = "gelu";

  /// Errors: not_found (no config.json), bad_key, bad_type, bad_hyperparameter, unsupported.
  static BertConfig from(const io::File& file);
};

template <class T = Tensor>
struct BertLayer {
  nn::MultiHeadAttention<T> attention;
  nn::LayerNorm<T> attention_norm;
  nn::FeedForward<T> feed_forward;
  nn::LayerNorm<T> output_norm;
  TENON_FIELDS(attention, attention_norm, feed_forward, output_norm)
};

/// BERT (Devlin et al., 2018) as a sentence encoder: hidden states, mean pooling, normalised to
/// length 1.
template <class T = Tensor>
struct Bert {
  nn::Embedding<T> words;
  T positions;  ///< [max_positions, width]
  T types;      ///< [token types, width]; every token has type 0
  nn::LayerNorm<T> norm;
  std::vector<BertLayer<T>> layers;
  TENON_FIELDS(words, positions, types, norm, layers)

  /// Declares the weights by their Hugging Face names.
  static Bert init(const WeightsView& view, const BertConfig& config);

  /// Hidden states: ids i32 [B, S], mask f32 [B, S] with 1 for tokens and 0 for padding
  /// -> f32 [B, S, width].
  Tensor hidden(const Tensor& ids, const Tensor& mask) const
    requires std::same_as<T, Tensor>
  {
    const Tensor embedded =
        words.forward(ids) + slice(positions, 0, 0, ids.dim(1)) + slice(types, 0, 0, 1);
    // Added to the attention scores: 0 for tokens, a large negative number for padding.
    const Tensor hide = unsqueeze(unsqueeze((mask - 1.0) * 1e9, 1), 1);
    return repeat(layers, norm.forward(embedded),
                  [&](const BertLayer<Tensor>& layer, const Tensor&, const Tensor& x) {
                    const Tensor middle =
                        layer.attention_norm.forward(layer.attention.forward(x, hide) + x);
                    return layer.output_norm.forward(layer.feed_forward.forward(middle) + middle);
                  });
  }

  /// Sentence embeddings: f32 [B, width], each of Euclidean length 1.
  Tensor embed(const Tensor& ids, const Tensor& mask) const
    requires std::same_as<T, Tensor>
  {
    return nn::normalize(nn::mean_pool(hidden(ids, mask), mask));
  }
};

template <>
Bert<Tensor> Bert<Tensor>::init(const WeightsView& view, const BertConfig& config);

struct EncoderOptions {
  /// Where the model runs: as for compile(). Null: the CPU.
  DevicePtr device{};
  /// Ops that the device's own backend refuses run on the CPU: as CompileOptions::cpu_fallback.
  bool cpu_fallback = false;
  BackendOptions backend{};  ///< threads, precision, the device's own options
  /// A block type to which the layers' weights are quantised while loading: less memory, and
  /// integer matrix multiplications. Embedding tables and norms keep the file's type. Unset: none.
  std::optional<DType> weights{};
};

/// A sentence encoder from a folder with model.safetensors, config.json and tokenizer.json. A
/// handle: copies are the same encoder, for one thread at a time (Errc::busy); each further thread
/// takes a fork(). The file is mapped (io::Access::guarded): if another process truncates it, loading
/// and embedding throw Errc::io_error. Use of a moved-from one throws Errc::call_order.
class SentenceEncoder {
 public:
  /// `path`: the folder, or its model.safetensors. Errors, which name the path of the file at
  /// fault: those of io::open, BertConfig::from, load_tokenizer, compile(); bad_reference and those
  /// of ops for weights that are missing or do not fit; bad_argument for EncoderOptions::weights
  /// that is not a block type.
  static SentenceEncoder load(const std::filesystem::path& path,
                              const EncoderOptions& options = {});

  /// Another encoder for another thread. It shares everything except the activations: weights, which
  /// are packed once for both, tokenizer and plans.
  SentenceEncoder fork() const;

  const BertConfig& config() const;
  const text::Tokenizer& tokenizer() const;
  const io::File& file() const;

  /// Token ids of a text, with special tokens, truncated to BertConfig::max_tokens.
  std::vector<std::int32_t> tokens(std::string_view text) const;

  /// One embedding per text: f32 [texts, width]. Errc::bad_argument for no texts.
  HostBuffer embed(std::span<const std::string> texts) const;
  HostBuffer embed(std::initializer_list<std::string_view> texts) const;

  /// The embedding of one text: f32 [width].
  HostBuffer embed(std::string_view text) const;

  /// The same for token ids, i32 [B, S], and a mask, f32 [B, S] with 1 for tokens and 0 for
  /// padding; in the device's memory.
  Buffer embed(const Buffer& ids, const Buffer& mask) const;

  const Program& program() const;
  PlanReport plan() const;

 private:
  struct Impl;
  explicit SentenceEncoder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<Impl, "SentenceEncoder"> impl_;
};

/// Cosine similarity: the dot product of rows `a` and `b` of normalised embeddings, f32 [texts,
/// width]. Errors: bad_shape, bad_type (other arrays), out_of_range (a row that there is not).
double similarity(const HostBuffer& embeddings, std::int64_t a, std::int64_t b);

}  // namespace tenon::models
