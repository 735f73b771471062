#pragma once

#include <tenon/backend.hpp>
#include <tenon/held.hpp>
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
#include <string_view>
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
  /// Both cover mapping and packing. Progress counts the bytes of weights that are ready to compute
  /// with, on the thread that loads; it must not use the model. A stop request ends the load
  /// between pieces of a weight (8 MiB).
  io::LoadOptions load{};
  /// Leave packing to the first read: for those who want the program and its plan only. Progress
  /// then ends with mapping.
  bool lazy = false;
  /// A folder where packed weights and the tokenizer's tables are kept, for the next process to map
  /// instead of making them: as large as the model's file. Empty: they are made at each start.
  std::filesystem::path packed_folder{};
};

/// Where the time of loading went, as the thread saw it that called load(): what other threads did
/// meanwhile costs nothing here.
struct LoadTimes {
  std::chrono::nanoseconds map{};        ///< opening the files, mapping weights
  std::chrono::nanoseconds plan{};       ///< recording and planning a decoding step
  std::chrono::nanoseconds pack{};       ///< packing weights, or mapping what was kept of them
  std::chrono::nanoseconds tokenizer{};  ///< waiting for the tokenizer
  std::chrono::nanoseconds total() const noexcept { return map + plan + pack + tokenizer; }
};

/// Ends long work early. Looked at before each piece of a prompt (LanguageModelOptions::chunk) and
/// before each token that is generated.
struct Interrupt {
  std::stop_token cancel{};
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// Errc::cancelled, or Errc::timeout past the deadline.
  void check(std::string_view where) const;
};

/// A conversation with a model: the cache of what was read so far. One thread at a time. One that
/// was moved from: Errc::call_order; the same holds for a LanguageModel.
class Conversation {
 public:
  /// Reads tokens and returns the logits of the last one: f32, one per token of the vocabulary,
  /// valid until the next call. Errc::limit_exceeded when the context is full, Errc::out_of_range
  /// for an id outside the vocabulary, Errc::bad_argument for no tokens; the conversation then is
  /// as before. Errc::io_error when the model's file was cut short. Errc::cancelled or
  /// Errc::timeout when `interrupt` says so; the conversation then holds the pieces that were read.
  std::span<const float> read(std::span<const std::int32_t> tokens,
                              const Interrupt& interrupt = {});

  /// As read(), but returns the token that most likely comes next, the lowest of equal ones, of
  /// those that the tokenizer knows; nobody stores logits. Errc::bad_input, after the tokens were
  /// read, when the model's state is NaN, so that no logit is a number; a NaN among logits that are
  /// numbers counts as the greatest.
  std::int32_t read_greedy(std::span<const std::int32_t> tokens, const Interrupt& interrupt = {});

  /// As read(), with the logits of every token, handed over in order in pieces of [rows,
  /// vocabulary].
  void read_all(std::span<const std::int32_t> tokens,
                const std::function<void(std::span<const float> logits, std::int64_t rows)>& take,
                const Interrupt& interrupt = {});

  /// How many tokens it holds, and may hold.
  std::int64_t position() const;
  std::int64_t capacity() const;
  /// Forgets all but the first `position` tokens.
  void rewind(std::int64_t position);
  /// Time spent so far on plans: the first piece of each length needs one.
  std::chrono::nanoseconds plan_time() const;

  /// Whether step_times() will have something to say, and where steps go as events.
  /// Errc::call_order after the first read.
  void enable_time_profile(bool enable);
  void set_trace(std::shared_ptr<Trace> trace);
  /// Of the last read, all its pieces; Profile sums them up.
  std::span<const StepTime> step_times() const;

 private:
  friend class LanguageModel;
  struct Impl;
  explicit Conversation(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<Impl, "Conversation"> impl_;
};

/// A decoder-only language model from a GGUF file, ready to run on the registered backends (the CPU
/// backend is registered by load()). A handle; thread-safe but for its conversations.
///
/// Weights and words are read from the mapped file (io::Access::guarded). Where somebody cuts the
/// file short, loading, reading and generating end in Errc::io_error, and so does every later call.
class LanguageModel {
 public:
  /// Opens, maps, plans and packs: the model can answer when this returns. Errors: those of
  /// io::open, DecoderConfig::from, load_tokenizer; Errc::cancelled.
  static LanguageModel load(const std::filesystem::path& path,
                            const LanguageModelOptions& options = {});

  const DecoderConfig& config() const;
  const text::Tokenizer& tokenizer() const;
  const io::File& file() const;
  std::int64_t context() const;
  const LoadTimes& load_times() const;

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
  tenon::detail::Held<Impl, "LanguageModel"> impl_;
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  nn::SamplerOptions sampler{};
  /// What ends the answer and is no part of it: a token of that spelling, or the text as it comes.
  /// Errc::bad_argument for an empty one.
  std::vector<std::string> stop{};
  /// Log-probabilities of each token and of so many that were likeliest in its place: of the
  /// model's own distribution, before penalties and temperature. Without a number, none.
  std::optional<std::int64_t> logprobs{};
  Interrupt interrupt{};  ///< ends early, without an error
};

struct Generated {
  enum class End {
    token,      ///< the model ended its answer, or a token of GenerateOptions::stop came
    stop,       ///< a text of GenerateOptions::stop came
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
    std::vector<LogProbability> top;  ///< best first
  };

  std::vector<std::int32_t> tokens;  ///< without one that ended it; those of a stop text are here
  std::string text;                  ///< up to the stop text
  std::vector<Choice> choices;       ///< one per token where log-probabilities were asked for
  End end = End::length;
  std::int64_t prompt_tokens = 0;           ///< that were read
  std::chrono::nanoseconds plan_time{};     ///< planning for a prompt of this length
  std::chrono::nanoseconds prefill_time{};  ///< reading the prompt, without that
  std::chrono::nanoseconds decode_time{};   ///< making the tokens after the first
  double prefill_tokens_per_second() const noexcept;
  double decode_tokens_per_second() const noexcept;
};

/// Reads `prompt`, then draws tokens until one ends the text. `emit` gets whole UTF-8 characters as
/// they come, and never a part of a stop text.
Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view text)>& emit = {});

}  // namespace tenon::models
