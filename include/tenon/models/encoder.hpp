#pragma once

#include <tenon/backend.hpp>
#include <tenon/fields.hpp>
#include <tenon/held.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/decoder.hpp>
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

/// What an embedding is made of, from the hidden states of a text's tokens; GGUF's `pooling_type` has the same numbers.
enum class Pooling : std::uint8_t {
  none,  ///< an embedding for each token
  mean,  ///< of all tokens
  cls,   ///< of the first token
  last,  ///< of the last token
  rank,  ///< scores of two texts, by a classifier
};
/// "none", "mean", "cls", "last" or "rank".
std::string_view name(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

/// What an embedding x is divided by; all zeros stay so.
enum class Normalization : std::uint8_t {
  none,
  euclidean,  ///< sqrt(sum x_i^2): of length 1
  taxicab,    ///< sum |x_i|
  /// max |x_i| / 32760, so that all fits 16 bits.
  max_int16,
};
/// "none", "euclidean", "taxicab" or "max_int16".
std::optional<Normalization> find_normalization(std::string_view name);

/// Hyperparameters of an encoder, from the config.json beside its weights or from GGUF metadata.
struct EncoderConfig {
  std::string architecture = "bert";  ///< one of those that docs/embeddings.md lists
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t intermediate_size = 0;  ///< width of the feed-forward part
  std::int64_t heads = 0;
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  /// Row of the first token in the table of positions (folders of RoBERTa's).
  std::int64_t first_position = 0;
  /// Longer texts are truncated; from sentence_bert_config.json, else max_positions.
  std::int64_t max_tokens = 0;
  double norm_eps = 1e-12;
  Name activation = "gelu";
  std::optional<Rope> rope;        ///< in place of a table of positions
  double max_alibi_bias = 0;       ///< the same; 0: no ALiBi
  std::int64_t experts = 0;        ///< of those layers that have some
  std::int64_t experts_every = 0;  ///< layer i has experts when i % this == 1; 0: none has
  nn::RouterOptions router;
  Pooling pooling = Pooling::mean;
  /// Of Pooling::rank: what the classifier reads, one of mean, cls and last.
  Pooling ranked = Pooling::cls;

  /// Of a file that DecoderConfig reads: what both have in common. Errors: not_found (no config.json), bad_key, bad_type,
  /// bad_hyperparameter, unsupported.
  static EncoderConfig from(const io::File& file);
};

/// Whether a GGUF file is one of an encoder, which makes embeddings or scores and no text, by its architecture.
bool is_encoder(const io::File& file);

/// A layer of the BERT family: y = norm(x + attention(x)), then norm(y + feed_forward(y)).
template <class T = Tensor>
struct EncoderLayer {
  nn::MultiHeadAttention<T> attention;
  nn::LayerNorm<T> attention_norm;
  /// Of what attention_norm gives and x once more (some of Jina's).
  std::optional<nn::LayerNorm<T>> second_norm;
  std::optional<nn::FeedForward<T>> feed_forward;
  std::optional<nn::MixtureOfExperts<T>> experts;  ///< in place of feed_forward
  nn::LayerNorm<T> output_norm;
  TENON_FIELDS(attention, attention_norm, second_norm, feed_forward, experts, output_norm)
};

/// The encoders whose norms are behind each sum: BERT (Devlin et al., 2018), RoBERTa, nomic-bert, jina-bert. They know of
/// positions by a table, a rotary embedding or ALiBi in both directions.
template <class T = Tensor>
struct Encoder {
  nn::Embedding<T> words;
  std::optional<T> positions;  ///< [max_positions, width]
  std::optional<T> types;      ///< [token types, width]; every token has type 0
  nn::LayerNorm<T> norm;
  std::vector<EncoderLayer<T>> layers;
  std::int64_t first_position = 0;
  TENON_FIELDS(words, positions, types, norm, layers, first_position)

  /// Declares the weights by their names in Hugging Face's files of BERT and RoBERTa, or in GGUF files.
  static Encoder init(const WeightsView& view, const EncoderConfig& config);

  /// Hidden states: ids i32 [B, S], mask f32 [B, S] with 1 for tokens and 0 for padding behind them
  /// -> f32 [B, S, width].
  Tensor hidden(const Tensor& ids, const Tensor& mask) const
    requires std::same_as<T, Tensor>
  {
    Tensor embedded = words.forward(ids);
    if (positions) {
      embedded = embedded + (positions->shape().dtype() == DType::f32
                                 ? slice(*positions, 0, first_position, first_position + ids.dim(1))
                                 : embedding(iota(ids, 1, i32, first_position), *positions));
    }
    if (types) {
      embedded = embedded + (types->shape().dtype() == DType::f32 ? slice(*types, 0, 0, 1)
                                                                  : embedding(iota(1), *types));
    }
    // Added to the attention scores: 0 for tokens, a large negative number for padding.
    const Tensor hide = unsqueeze(unsqueeze((mask - 1.0) * 1e9, 1), 1);
    const Tensor place = iota(ids, 1, i32);
    return repeat(layers, norm.forward(embedded),
                  [&](const EncoderLayer<Tensor>& layer, const Tensor&, const Tensor& x) {
                    const Tensor mixed = layer.attention.rope
                                             ? layer.attention.forward(x, place, hide)
                                             : layer.attention.forward(x, hide);
                    Tensor middle = layer.attention_norm.forward(mixed + x);
                    if (layer.second_norm) middle = layer.second_norm->forward(middle + x);
                    const Tensor fed = layer.experts ? layer.experts->forward(middle)
                                                     : layer.feed_forward->forward(middle);
                    return layer.output_norm.forward(fed + middle);
                  });
  }
};

template <>
Encoder<Tensor> Encoder<Tensor>::init(const WeightsView& view, const EncoderConfig& config);

/// A classifier of pooled hidden states: output(norm(activation(dense(x)))), of which some parts may be missing.
template <class T = Tensor>
struct RankHead {
  std::optional<nn::Linear<T>> dense;
  std::optional<nn::LayerNorm<T>> norm;
  std::optional<nn::Linear<T>> output;
  bool has_gelu = false;     ///< the activation is gelu, otherwise tanh
  bool has_softmax = false;  ///< of the results (Qwen3's rerankers)
  TENON_FIELDS(dense, norm, output, has_gelu, has_softmax)

  /// x [B, width] -> [B, labels].
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    Tensor y = x;
    if (dense) {
      y = dense->forward(y);
      y = has_gelu ? gelu(y) : tanh(y);
      if (norm) y = norm->forward(y);
    }
    if (output) y = output->forward(y);
    return has_softmax ? softmax(y) : y;
  }
};

/// Embeddings or scores of texts: an encoder or a decoder, and what is made of its hidden states.
template <class T = Tensor>
struct SentenceModel {
  std::optional<Encoder<T>> encoder;
  std::optional<Decoder<T>> decoder;  ///< where there is no encoder
  std::vector<nn::Linear<T>> dense;   ///< behind the pooling (EmbeddingGemma)
  std::optional<RankHead<T>> head;    ///< of Pooling::rank
  Pooling pooling = Pooling::mean;
  Pooling ranked = Pooling::cls;  ///< see EncoderConfig
  Normalization normalization = Normalization::euclidean;
  TENON_FIELDS(encoder, decoder, dense, head, pooling, ranked, normalization)

  /// Embeddings f32 [B, width], or of each token [B, S, width] with Pooling::none; with Pooling::rank scores f32 [B, labels].
  /// ids i32 [B, S], mask f32 [B, S] with 1 for tokens and 0 for padding behind them.
  Tensor embed(const Tensor& ids, const Tensor& mask) const
    requires std::same_as<T, Tensor>
  {
    const Tensor x = encoder ? encoder->hidden(ids, mask) : decoder->states(ids, mask);
    if (pooling == Pooling::rank) return head->forward(pooled(x, mask, ranked));
    Tensor y = pooled(x, mask, pooling);
    for (const nn::Linear<Tensor>& layer : dense) y = layer.forward(y);
    return normalized(y);
  }

 private:
  static Tensor pooled(const Tensor& x, const Tensor& mask, Pooling by)
    requires std::same_as<T, Tensor>
  {
    switch (by) {
      case Pooling::mean:
        return nn::mean_pool(x, mask);
      case Pooling::cls:
        return nn::first_pool(x);
      case Pooling::last:
        return nn::last_pool(x, mask);
      default:
        return x;
    }
  }
  Tensor normalized(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    constexpr double least = 1e-30;  // zeros stay so
    switch (normalization) {
      case Normalization::euclidean:
        return nn::normalize(x);
      case Normalization::taxicab:
        return x / (sum(abs(x), {-1}, true) + least);
      case Normalization::max_int16:
        return x / (max(abs(x), {-1}, true) * (1.0 / 32760) + least);
      default:
        return x;
    }
  }
};

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

/// What is made of a text.
struct EmbeddingOptions {
  /// Unset: what the file says; rank where it has a classifier's weights and says nothing; otherwise mean of an encoder.
  std::optional<Pooling> pooling{};
  Normalization normalization = Normalization::euclidean;  ///< not of scores
};

/// A sentence encoder or reranker: a GGUF file, of an encoder or of a decoder with a pooling, or a folder of BERT's or
/// RoBERTa's with model.safetensors, config.json and tokenizer.json. A handle: copies are the same encoder, for one thread at
/// a time (Errc::busy); each further thread takes a fork(). The file is mapped (io::Access::guarded): if another process
/// truncates it, loading and embedding throw Errc::io_error. Use of a moved-from one throws Errc::call_order.
class SentenceEncoder {
 public:
  /// `path`: the GGUF file, the folder, or its model.safetensors. Errors, which name the path of the file at
  /// fault: those of io::open, EncoderConfig::from, DecoderConfig::from, load_tokenizer, compile(); bad_reference for
  /// weights that are missing, corrupt for those that do not fit; bad_argument for EncoderOptions::weights
  /// that is not a block type; unsupported for Pooling::rank without a classifier, and for a decoder's file that says no
  /// pooling where none is asked for: it is a language model.
  static SentenceEncoder load(const std::filesystem::path& path, const EncoderOptions& options = {},
                              const EmbeddingOptions& embedding = {});

  /// Another encoder for another thread. It shares everything except the activations: weights, which
  /// are packed once for both, tokenizer and plans.
  SentenceEncoder fork() const;

  /// `pooling` is the one that is in use.
  const EncoderConfig& config() const;
  /// Numbers of an embedding: the width, unless layers behind the pooling change it.
  std::int64_t embedding_width() const;
  const text::Tokenizer& tokenizer() const;
  const io::File& file() const;

  /// Token ids of a text, with special tokens, truncated to EncoderConfig::max_tokens. Embedding such a text logs a warning.
  std::vector<std::int32_t> tokens(std::string_view text) const;

  /// Those of a query and a document for score(): in the file's template "rerank" where it has one (Qwen3), otherwise
  /// Tokenizer::encode_pair. What is too long loses the document's end. Errc::limit_exceeded where a query in a template
  /// leaves no room.
  std::vector<std::int32_t> tokens(std::string_view query, std::string_view document) const;

  /// One embedding per text: f32 [texts, embedding_width()]. Errors: bad_argument for no texts, bad_input for one without
  /// tokens, unsupported with Pooling::none and Pooling::rank; cancelled, timeout by `interrupt`.
  HostBuffer embed(std::span<const std::string> texts, const Interrupt& interrupt = {}) const;
  HostBuffer embed(std::initializer_list<std::string_view> texts) const;

  /// The embedding of one text: f32 [embedding_width()].
  HostBuffer embed(std::string_view text) const;

  /// The same of each text's token ids, such as tokens() gives. Errors, too: out_of_range for ids
  /// outside of the vocabulary, limit_exceeded for more than EncoderConfig::max_tokens.
  HostBuffer embed(std::span<const std::vector<std::int32_t>> ids,
                   const Interrupt& interrupt = {}) const;

  /// With Pooling::none: an embedding for each of the text's tokens, f32 [tokens, embedding_width()]. Errc::unsupported with
  /// another pooling.
  HostBuffer embed_tokens(std::string_view text, const Interrupt& interrupt = {}) const;

  /// With Pooling::rank: how well each document answers the query, f32 [documents], the larger the better. It is what the
  /// classifier gives for its first label; Qwen3's rerankers give a probability. Errors: those of embed() and of tokens();
  /// unsupported with another pooling.
  HostBuffer score(std::string_view query, std::span<const std::string> documents,
                   const Interrupt& interrupt = {}) const;
  /// The same of the token ids of each query with its document.
  HostBuffer score(std::span<const std::vector<std::int32_t>> ids,
                   const Interrupt& interrupt = {}) const;

  /// SentenceModel::embed of token ids, i32 [B, S], and a mask, f32 [B, S] with 1 for tokens and 0 for
  /// padding behind them; in the device's memory.
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
