#pragma once

#include <tenon/interrupt.hpp>
#include <tenon/models/language_model.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tenon::models {

/// How many tokens to draft. A draft whose tokens were all right doubles the next one, another makes it as long as what
/// was right of it, and one more. A draft without any right token counts as a failure, which a right token makes up for;
/// after two failures a step goes without, after each further one twice as many up to 16, so that few steps pay for
/// drafts where they are wrong as a rule.
///
/// Lengths follow from tokens alone, never from times, so that the same text has the same drafts.
class DraftPace {
 public:
  explicit DraftPace(std::int64_t max);

  /// The length of the next draft; 0: this step goes without.
  std::int64_t next() noexcept;
  /// What became of it.
  void settle(std::int64_t drafted, std::int64_t accepted) noexcept;

 private:
  std::int64_t max_, length_;
  std::int64_t failures_ = 0;  // that right tokens have not made up for
  std::int64_t pause_ = 0;     // steps that go without
};

/// Errc::bad_argument for numbers out of range.
void check(const DraftOptions& options);

/// Up to `count` tokens that followed the last tokens of `text` where those stood before: as many of the last ones as
/// match, `min_match` to `max_match`; of equal matches the last. What followed may reach into the draft itself, so
/// that a text that repeats itself goes on doing so.
std::vector<std::int32_t> looked_up(std::span<const std::int32_t> text, std::int64_t min_match,
                                    std::int64_t max_match, std::int64_t count);

/// Guesses the next tokens of one answer.
class Drafter {
 public:
  /// `ends`: whether a token ends the answer; drafts end before one. Errors: those of GenerateOptions::draft. The
  /// options and the interrupt must live as long.
  Drafter(const DraftOptions& options, const LanguageModel& target,
          const Conversation& conversation, std::function<bool(std::int32_t)> ends,
          const Interrupt& interrupt);

  /// At most `limit` tokens that may follow `text`. Errors: those of reading.
  std::vector<std::int32_t> draft(std::span<const std::int32_t> text, std::int64_t limit);
  /// How many tokens of the last draft were drawn; to be called before the next one.
  void settle(std::int64_t accepted);

 private:
  std::vector<std::int32_t> by_lookup(std::span<const std::int32_t> text, std::int64_t limit);
  std::vector<std::int32_t> by_model(std::span<const std::int32_t> text, std::int64_t limit);
  /// Whether there is a token that the draft model does not have.
  bool has_unknown(std::span<const std::int32_t> tokens) const;

  const DraftOptions& options_;
  std::function<bool(std::int32_t)> ends_;
  const Interrupt& interrupt_;
  std::int32_t tokens_;  // that both models have
  DraftPace lookup_, model_;
  DraftPace* used_ = nullptr;  // by the last draft
  std::int64_t drafted_ = 0;   // its length
};

}  // namespace tenon::models
