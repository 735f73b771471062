#pragma once

#include <tenon/backend.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/nn/sampler.hpp>
#include <tenon/session.hpp>
#include <tenon/text/chat.hpp>
#include <tenon/text/tokenizer.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace tenon::models {

struct LanguageModelOptions {
  std::int64_t context =
      0;  ///< positions a conversation may hold; 0: the model's own, at most 4096
  std::int64_t chunk = 512;  ///< tokens of a prompt that are processed at once
  /// Type of the cache of keys and values: f32, f16, bf16 or a block type whose size divides a
  /// head's. Without one f16, and f32 where `backend` is exact. q8_0 takes 8.5 bits a number.
  std::optional<DType> cache{};
  BackendOptions backend{};  ///< threads, precision
  io::LoadOptions load{};
  /// A folder where packed weights and the tokenizer's tables are kept, for the next process to map
  /// instead of making them: as large as the model's file. Empty: they are made at each start.
  std::filesystem::path packed_folder{};
};

/// A conversation with a model: the cache of what was read so far. One thread at a time.
class Conversation {
 public:
  /// Reads tokens and returns the logits of the last one: f32, one per token of the vocabulary,
  /// valid until the next call. Errc::limit_exceeded when the context is full, Errc::out_of_range
  /// for an id outside the vocabulary, Errc::bad_argument for no tokens; the conversation then is
  /// as before.
  std::span<const float> read(std::span<const std::int32_t> tokens);

  /// As read(), but returns the token that most likely comes next, the lowest of equal ones, of
  /// those that the tokenizer knows; nobody stores logits. Errc::bad_input, after the tokens were
  /// read, when the model's state is NaN, so that no logit is a number; a NaN among logits that are
  /// numbers counts as the greatest.
  std::int32_t read_to_likeliest(std::span<const std::int32_t> tokens);

  /// As read(), with the logits of every token, handed over in order in pieces of [rows,
  /// vocabulary].
  void read_all(std::span<const std::int32_t> tokens,
                const std::function<void(std::span<const float> logits, std::int64_t rows)>& take);

  /// How many tokens it holds, and may hold.
  std::int64_t position() const noexcept;
  std::int64_t capacity() const noexcept;
  /// Forgets all but the first `position` tokens.
  void rewind(std::int64_t position);

 private:
  friend class LanguageModel;
  struct Impl;
  explicit Conversation(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// A decoder-only language model from a GGUF file, ready to run on the registered backends (the CPU
/// backend is registered by load()). A handle; thread-safe but for its conversations.
class LanguageModel {
 public:
  /// Opens, loads and compiles. Errors: those of io::open, DecoderConfig::from, load_tokenizer.
  static LanguageModel load(const std::filesystem::path& path,
                            const LanguageModelOptions& options = {});

  const DecoderConfig& config() const noexcept;
  const text::Tokenizer& tokenizer() const noexcept;
  const io::File& file() const noexcept;
  std::int64_t context() const noexcept;
  std::chrono::nanoseconds load_time() const noexcept;

  /// The format of the file's chat template; none without one. Errors: template_error.
  std::optional<text::ChatFormat> chat_format() const;

  Conversation conversation() const;

  /// The program of one decoding step, and its plan.
  const Program& program() const;
  PlanReport plan() const;

 private:
  friend class Conversation;
  struct Impl;
  explicit LanguageModel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  nn::SamplerOptions sampler{};
  std::vector<std::string> stop{};  ///< spellings of further tokens that end the text
  std::stop_token cancel{};         ///< ends early, without an error
};

struct Generated {
  std::vector<std::int32_t> tokens;  ///< without the one that ended it
  std::string text;
  enum class End { token, length, context, cancelled } end = End::length;
  std::int64_t prompt_tokens = 0;
  std::chrono::nanoseconds prefill_time{};  ///< reading the prompt
  std::chrono::nanoseconds decode_time{};   ///< making the tokens after the first
  double prefill_tokens_per_second() const noexcept;
  double decode_tokens_per_second() const noexcept;
};

/// Reads `prompt`, then draws tokens until one ends the text. `emit` gets whole UTF-8 characters as
/// they come.
Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view text)>& emit = {});

}  // namespace tenon::models
