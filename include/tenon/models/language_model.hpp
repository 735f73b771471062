#pragma once

#include <tenon/backend.hpp>
#include <tenon/held.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/adapters.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/nn/sampler.hpp>
#include <tenon/session.hpp>
#include <tenon/text/chat.hpp>
#include <tenon/text/grammar.hpp>
#include <tenon/text/tokenizer.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

class AnswerBatch;
class KeptPrompts;

struct LanguageModelOptions {
  std::int64_t context =
      0;  ///< capacity of a conversation in positions; 0: the model's context, at most 4096
  std::int64_t chunk = 512;  ///< tokens of a prompt that are processed at once
  /// Type of the KV cache: f32, f16, bf16 or a block type whose block size divides the head
  /// dimension. Unset: f16, or f32 where `backend` is exact. q8_0 takes 8.5 bits per number.
  std::optional<DType> cache{};
  /// Where the model runs: as for compile(). Weights and the KV cache lie in its memory. Null: the
  /// CPU, on the registered backends (<tenon/tenon.hpp> registers those of the package).
  DevicePtr device{};
  /// Ops that the device's own backend refuses run on the CPU: as CompileOptions::cpu_fallback.
  bool cpu_fallback = false;
  BackendOptions backend{};  ///< threads, precision, the device's own options
  /// Progress and cancellation of mapping and packing. Progress counts the bytes of prepared
  /// weights; it is called on the loading thread and must not use the model. A stop request takes
  /// effect between pieces of a weight (8 MiB).
  io::LoadOptions load{};
  /// Defer packing to the first read: for uses that need only the program and its plan. Progress
  /// then ends with mapping.
  bool lazy = false;
  /// A folder for packed weights and the tokenizer's tables, which the next process maps instead of
  /// making them; they are as large as the model's file. Empty: they are made at each start.
  std::filesystem::path packed_folder{};
  /// Low-rank adapters that run beside the weights, all of them at once. They add two small products
  /// to each of their layers; merge_adapters() has no such cost, but rounds weights of block types
  /// once more.
  std::vector<AdapterSource> adapters{};
};

/// Wall time of the phases of load(), on the calling thread. Work of other threads counts only
/// while that thread waits for it.
struct LoadTimes {
  std::chrono::nanoseconds map{};        ///< opening the files, mapping weights
  std::chrono::nanoseconds plan{};       ///< recording and planning a decoding step
  std::chrono::nanoseconds pack{};       ///< packing weights, or mapping packed ones
  std::chrono::nanoseconds tokenizer{};  ///< waiting for the tokenizer
  std::chrono::nanoseconds total() const noexcept { return map + plan + pack + tokenizer; }
};

using tenon::Interrupt;

class LanguageModel;

/// What each of the rows that Conversation::read_embeddings() reads attends to, besides all that was
/// read before.
enum class RowAttention : std::uint8_t {
  causal,  ///< itself and the rows before it
  /// All of these rows, in both directions, as Gemma 3 reads an image; they are one run, whatever
  /// LanguageModelOptions::chunk is. Errc::unsupported for more rows than a sliding window has, and
  /// for models that keep states, have latent attention, ALiBi or chunks.
  mutual,
};

/// Rows and columns of an image whose positions have two axes: its embeddings, row after row.
struct ImageGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t embeddings() const noexcept { return rows * columns; }
};

/// A conversation with a model: the tokens read so far and their KV cache. A handle: copies are the
/// same conversation, fork() makes another. One thread at a time (Errc::busy). Use of a moved-from one
/// throws Errc::call_order, as for LanguageModel.
///
/// Models whose states only move on (Mamba, see rewindable()) go back to the beginning of a chunk that
/// was interrupted, too; of a single token they end the step first. Any other error within such a
/// step empties the conversation.
class Conversation {
 public:
  /// The most probable token, and how probable it is.
  struct Guess {
    std::int32_t token = 0;
    float probability = 0;
  };

  /// Reads tokens and returns the logits of the last one: f32, one per row of the vocabulary, valid
  /// until the next call. Errors:
  ///
  ///   limit_exceeded      more tokens than the context can hold; the conversation is unchanged
  ///   out_of_range        an id outside the vocabulary; the conversation is unchanged
  ///   bad_argument        no tokens; the conversation is unchanged
  ///   io_error            the model's file was truncated
  ///   cancelled, timeout  by `interrupt`; the conversation holds the chunks read so far
  std::span<const float> read(std::span<const std::int32_t> tokens,
                              const Interrupt& interrupt = {});

  /// As read(), but returns the most probable next token of the tokenizer's vocabulary, the lowest
  /// id among equals, without storing logits. A single NaN among the logits counts as the largest.
  /// Errc::bad_input, after the tokens were read, when all logits are NaN.
  std::int32_t read_greedy(std::span<const std::int32_t> tokens, const Interrupt& interrupt = {});

  /// As read(), but draws the next token of the tokenizer's vocabulary where the model runs: the
  /// program of a step ends with sampling, and its result is a token. What is kept and how probable
  /// it is, is as for nn::Sampler with `history`, but for the seventh digit; the random numbers are
  /// others: those of the seed and of the token's position, so that a conversation that is rewound
  /// draws the same again. Where the nn::sampling_candidates most probable tokens are too few for
  /// top_k or top_p, a second program puts the whole vocabulary in order. Errors: those of
  /// nn::SamplerOptions::check() and nn::check_in_program(); Errc::bad_input, after the tokens were read,
  /// when all logits are NaN.
  std::int32_t read_sampled(std::span<const std::int32_t> tokens, const nn::SamplerOptions& sampler,
                            std::span<const std::int32_t> history = {},
                            const Interrupt& interrupt = {});

  /// As read(), with the logits of every token: calls `take` in order with pieces [rows,
  /// vocabulary], valid during the call.
  void read_all(std::span<const std::int32_t> tokens,
                const std::function<void(std::span<const float> logits, std::int64_t rows)>& take,
                const Interrupt& interrupt = {});

  /// The same at once, for a few tokens: f32 [tokens, vocabulary], valid until the next call.
  std::span<const float> read_all(std::span<const std::int32_t> tokens,
                                  const Interrupt& interrupt = {});

  /// As read_greedy(), for every token: the most probable one behind each, -1 where all logits are NaN.
  std::vector<std::int32_t> read_all_greedy(std::span<const std::int32_t> tokens,
                                            const Interrupt& interrupt = {});

  /// As read_greedy(), with the token's probability, which is NaN when a logit is.
  Guess read_guess(std::span<const std::int32_t> tokens, const Interrupt& interrupt = {});

  /// Reads embeddings in the place of tokens, such as those of an image (VisionEncoder::encode): `rows`
  /// [count, DecoderConfig::width], as the first layer reads them; a model's embedding scale is not
  /// applied. They take `count` positions, and the logits of the last are returned, as by read().
  ///
  /// Errors: those of read(), with bad_argument for no rows or a part of one; unsupported for models whose
  /// layers look up inputs by token (gemma3n), and for RowAttention::mutual, see there.
  std::span<const float> read_embeddings(std::span<const float> rows,
                                         RowAttention attention = RowAttention::causal,
                                         const Interrupt& interrupt = {});

  /// The same of an image in a model whose positions of images have two axes (M-RoPE of Qwen2-VL and later ones):
  /// `rows` [grid.embeddings(), DecoderConfig::image_row()]. Row and column count from the position that the next token
  /// would have had, and what follows continues behind the greatest; of the context an image takes a place for each
  /// embedding. Errors: those of read(), with bad_argument for another number of rows; unsupported for other models.
  std::span<const float> read_image(std::span<const float> rows, const ImageGrid& grid,
                                    const Interrupt& interrupt = {});

  /// Whether it is one of this model, or of a copy of the handle.
  bool is_of(const LanguageModel& model) const;
  /// Its model.
  LanguageModel model() const;
  /// Whether `other` is a handle of the same conversation.
  bool is_same(const Conversation& other) const;

  /// The tokens that it holds; valid until the next call that reads or rewinds. At positions of embeddings
  /// there is -1 - p, which is no token: p is the first position of those that were read at once, so that
  /// two images are told apart.
  std::span<const std::int32_t> tokens() const;
  /// Number of tokens that it holds, and that it can hold.
  std::int64_t position() const;
  std::int64_t capacity() const;
  /// Drops all but the first `position` tokens. Errc::out_of_range unless it holds that many,
  /// Errc::unsupported unless it is rewindable().
  void rewind(std::int64_t position);
  /// The last position up to `position` that rewind() goes to: that one, but 0 in models whose states
  /// only move on (Mamba), unless it is the current one, and the beginning of embeddings that were read
  /// at once.
  std::int64_t rewindable(std::int64_t position) const;
  /// Rewinds to where it begins to differ from `tokens`, at the latest before the last of them, and
  /// returns that position, so that the next read() begins there and gives the logits of the last:
  ///
  ///     const auto kept = conversation.keep_prefix_of(prompt);
  ///     const auto logits = conversation.read(prompt.subspan(kept));
  ///
  /// Where states only move on, it is 0 unless `tokens` continue all that it holds. Embeddings equal no
  /// tokens: what is kept ends before the first of them. Errc::bad_argument for no tokens.
  std::size_t keep_prefix_of(std::span<const std::int32_t> tokens);

  /// A second conversation that holds the same tokens and continues independently, on any thread: for
  /// several answers to one prompt, or to come back to a position where states only move on. Weights
  /// and plans are shared; of the cache what the tokens take is copied, where it lies. Options of
  /// profiling are not. Errors: out_of_memory, out_of_device_memory.
  Conversation fork() const;

  /// Writes the tokens and what they take of the cache to a safetensors file, which replaces `path`
  /// atomically; LanguageModel::restore() reads it. The format has a version, and later libraries may
  /// refuse it. Errors: those of io::save_safetensors.
  void save(const std::filesystem::path& path) const;

  /// Total time of planning: the first chunk of each length needs a plan.
  std::chrono::nanoseconds plan_time() const;

  /// Whether reads record step_times(); and the trace that receives their steps as events.
  /// Errc::call_order after the first read.
  void enable_time_profile(bool enable);
  void set_trace(std::shared_ptr<Trace> trace);
  /// Times of the last read, for all its chunks; Profile sums them up.
  std::span<const StepTime> step_times() const;

 private:
  friend class KeptPrompts;
  friend class LanguageModel;
  struct Impl;
  explicit Conversation(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<Impl, "Conversation"> impl_;
};

/// A decoder-only language model from a GGUF file, ready to run on the device of its options
/// (LanguageModelOptions::device). A handle; thread-safe, except for its conversations.
///
/// Weights and vocabulary are read from the mapped file (io::Access::guarded). If another process
/// truncates the file, loading, reading and generating throw Errc::io_error, as does every later
/// call.
class LanguageModel {
 public:
  /// Opens and maps the file, plans a decoding step and packs the weights. Errors: those of
  /// io::open, DecoderConfig::from, load_tokenizer, load_adapters; Errc::cancelled.
  static LanguageModel load(const std::filesystem::path& path,
                            const LanguageModelOptions& options = {});

  const DecoderConfig& config() const;
  const text::Tokenizer& tokenizer() const;
  const io::File& file() const;
  std::int64_t context() const;
  std::int64_t chunk() const;  ///< LanguageModelOptions::chunk
  const LoadTimes& load_times() const;

  /// The format of the file's chat template, if it has one, under these variables; those of the tokens are the
  /// tokenizer's unless they are set. `name`: of a further template that some files have, such as "tool_use" for
  /// conversations with tools; empty: the file's own. Errors: those of text::ChatFormat::from_template.
  std::optional<text::ChatFormat> chat_format(text::ChatVariables variables = {},
                                              std::string_view name = {}) const;

  /// A conversation without tokens.
  Conversation conversation() const;

  /// The conversation that Conversation::save() wrote to a file. It continues with the logits of the
  /// one that was saved, bit by bit on the same device with the same options; LanguageModelOptions
  /// may differ in all but `cache` and `adapters`, and the context may be another one that its tokens
  /// fit. The model's file may have been moved or copied, but must have the same contents (its header
  /// and samples of its weights are compared). The file is checked as one from a stranger. Errors
  /// name it:
  ///
  ///   those of io::open    it is missing, cut short or not a safetensors file
  ///   bad_magic            it holds no conversation
  ///   unsupported_version  it was written in a later version of the format
  ///   incompatible         it is of another model, other adapters or another type of cache
  ///   limit_exceeded       it has more tokens than context()
  ///   corrupt              its bytes are not those that were written
  ///   bad_key, bad_reference, bad_type, bad_shape
  ///                        its metadata or tensors are not those of a conversation
  Conversation restore(const std::filesystem::path& path) const;

  /// Reads a token in each of several conversations, in one step: weights are read once for all of them, so that a
  /// step of several takes little longer than that of one where it waits for memory. Logits f32 [conversations,
  /// vocabulary], row i of conversations[i]. On the CPU they are, bit by bit, those that Conversation::read() gives
  /// for one token, whatever the others are. The first step of each number of conversations needs a plan;
  /// Conversation::step_times() have nothing of it.
  ///
  /// Errors, after which the conversations are what they were (states that only move on may be lost):
  ///
  ///   bad_argument        no conversations, another number of tokens, a conversation of another model or one twice
  ///   limit_exceeded      a conversation that is full
  ///   out_of_range        an id outside the vocabulary
  ///   busy                a conversation is in use
  ///   cancelled, timeout  by `interrupt`
  HostBuffer read_each(std::span<const Conversation> conversations,
                       std::span<const std::int32_t> tokens, const Interrupt& interrupt = {}) const;

  /// The same with the most probable token behind each, as Conversation::read_all_greedy() gives it.
  std::vector<std::int32_t> read_each_greedy(std::span<const Conversation> conversations,
                                             std::span<const std::int32_t> tokens,
                                             const Interrupt& interrupt = {}) const;

  /// The program of one decoding step, and its plan.
  const Program& program() const;
  PlanReport plan() const;

 private:
  friend class AnswerBatch;
  friend class Conversation;
  friend class KeptPrompts;
  struct Impl;
  explicit LanguageModel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<Impl, "LanguageModel"> impl_;
};

/// Speculative decoding: tokens of the answer are guessed ahead, and the model reads several at once, which takes
/// less time than one by one. Each token is drawn as it is without a draft, of the model's logits and by the same
/// random number, and a drafted one counts where it is the one that was drawn. So drafts change how long an answer
/// takes, and not the answer, but for logits that depend on how many rows are computed at once (see max_tokens).
///
/// Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding (2023), with draws instead
/// of their test of probabilities, as in llama.cpp.
struct DraftOptions {
  /// A conversation with a smaller model, which guesses its most probable tokens. It is kept in step: rewound to
  /// where it differs from the answer's tokens, and given the rest (without embeddings, which it has not). It is
  /// used within generate() only, and may stay for the next call.
  std::optional<Conversation> model{};
  /// A draft of `model` ends with the first token that is less probable.
  double min_probability = 0.75;
  /// Drafts are looked up in the text so far: what followed the last tokens, at most this many, where they stood
  /// before. The longest match counts, of equals the last one. 0: they are not. With `model`, it guesses
  /// where nothing is found.
  ///
  /// Saxena: Prompt Lookup Decoding (2023).
  std::int64_t lookup = 0;
  std::int64_t min_lookup = 3;  ///< tokens that match at least; `lookup` where that is less
  /// Tokens of a draft at most. How long they are follows from how many of the last ones were right, never from
  /// times: the same call has the same drafts. The CPU's backend has kernels for one to four rows of a product,
  /// which give the same bits and cost little more than one; larger drafts are for other devices.
  std::int64_t max_tokens = 3;

  bool is_used() const noexcept { return max_tokens > 0 && (model || lookup > 0); }
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  /// Its penalties and DRY refer to the tokens of the conversation, the prompt and the answer.
  nn::SamplerOptions sampler{};
  /// Draw tokens where the model runs, by Conversation::read_sampled(): logits stay there. Other
  /// random numbers than without, so that the same seed gives another text. Errc::unsupported with
  /// `logprobs`, which are computed of logits on the host, and for what nn::check_in_program() refuses.
  bool sample_on_device = false;
  /// What the answer may be. Tokens that do not go on as the grammar wants have no probability, before all that
  /// `sampler` does; the answer ends where the grammar allows an end token, or nothing more. At max_tokens or a
  /// stop text it is cut like any other. Errc::unsupported with sample_on_device; Errc::bad_input where the
  /// grammar wants what no token of the vocabulary spells.
  std::optional<text::Grammar> grammar{};
  /// Texts, or spellings of tokens, behind the first of which `grammar` begins; until then all is allowed, an end
  /// without any of them, too: "</think>" of a model that thinks before it answers, "<tool_call>" of one that may call
  /// tools. White space behind the text is not the grammar's. Empty: it holds from the first token on.
  /// Errc::bad_argument for an empty one, and without `grammar`; Errc::bad_input where a token has more behind the text
  /// than the grammar allows.
  std::vector<std::string> grammar_after{};
  /// Spellings of control tokens that the answer's text has; it has no others. Those of text::AnswerFormat, by which a
  /// model marks calls of tools; a grammar may want them. Spellings of other tokens, and of none, are ignored.
  std::vector<std::string> preserved_tokens{};
  /// Stop sequences, which end the answer and are not part of it: a token with that spelling, or
  /// that text in the output. Errc::bad_argument for an empty one.
  std::vector<std::string> stop{};
  /// Record the log-probability of each token, and of this many most probable ones in its place:
  /// those of the model's distribution, before penalties and temperature. Unset: none.
  std::optional<std::int64_t> logprobs{};
  /// Tokens that are guessed ahead. Errc::unsupported with `sample_on_device` unless sampling is greedy, and for
  /// models whose states only move on; Errc::incompatible for a draft model with other tokens: they must be
  /// spelled the same, but one of the models may have up to 128 more, which fill up its vocabulary.
  DraftOptions draft{};
  Interrupt interrupt{};  ///< ends early, without an error
};

struct Generated {
  enum class End {
    token,      ///< an end token of the model, or a token of GenerateOptions::stop
    stop,       ///< a text of GenerateOptions::stop
    grammar,    ///< nothing may follow in GenerateOptions::grammar
    length,     ///< max_tokens
    context,    ///< the conversation is full
    cancelled,  ///< GenerateOptions::interrupt
    deadline,
  };
  struct LogProbability {
    std::int32_t token = 0;
    double value = 0;
  };
  struct Choice {
    LogProbability drawn;
    std::vector<LogProbability> top;  ///< the most probable tokens, best first
  };

  std::vector<std::int32_t> tokens;  ///< without the end token; including those of a stop text
  std::string text;                  ///< up to the stop text
  std::vector<Choice> choices;       ///< one per token, with GenerateOptions::logprobs
  End end = End::length;
  std::int64_t prompt_tokens = 0;  ///< tokens of the prompt that the conversation holds then
  /// Those among them that were not read, but taken from a prompt that began alike: see AnswerBatchOptions.
  std::int64_t reused_tokens = 0;
  std::chrono::nanoseconds plan_time{};     ///< planning for a prompt of this length
  std::chrono::nanoseconds prefill_time{};  ///< reading the prompt, without planning
  std::chrono::nanoseconds decode_time{};   ///< generating the tokens after the first
  std::int64_t drafted_tokens = 0;  ///< with GenerateOptions::draft: tokens that were guessed ahead
  std::int64_t accepted_tokens = 0;  ///< those among them that were drawn
  double prefill_tokens_per_second() const noexcept;
  double decode_tokens_per_second() const noexcept;
};

/// A part of a prompt: tokens, or rows that stand in their place.
struct PromptPart {
  std::vector<std::int32_t> tokens{};
  HostBuffer rows{};  ///< f32 [count, width], see Conversation::read_embeddings; empty: tokens
  RowAttention attention = RowAttention::causal;  ///< of the rows
  ImageGrid grid{};  ///< of rows for Conversation::read_image; without any they are not for that

  std::int64_t positions() const {
    return rows.is_empty() ? static_cast<std::int64_t>(tokens.size()) : rows.shape()[0];
  }
};

/// Reads `prompt`, then samples tokens until one ends the text. `emit` is called with complete
/// UTF-8 characters as they are generated, and never with a part of a stop text; while it runs, the
/// conversation may hold drafted tokens that generate() takes back. Errors: those of reading, and of
/// GenerateOptions; Errc::bad_argument for options out of range, and for a conversation of another
/// model.
Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view text)>& emit = {});

/// The same for a prompt with images (image_prompt() makes one). Errc::bad_argument unless it ends with
/// tokens; bad_shape, bad_type for rows that are not f32 [count, width].
Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const PromptPart> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view text)>& emit = {});

}  // namespace tenon::models
