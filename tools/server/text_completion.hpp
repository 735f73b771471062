#pragma once

#include "server/completion.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// POST /v1/completions: texts that are continued.
class TextCompletion : public Completion {
 public:
  /// Errors: those of Completion; bad_type for a prompt that is no text, token ids, or an array of them; unsupported for
  /// `suffix`, `best_of` above 1, and `echo` with `logprobs`.
  TextCompletion(const ServedModel& served, const RequestFields& fields);

 private:
  void add_text(const std::string& text);
  void add_tokens(const Json& ids);
  std::string_view echoed(std::size_t index) const;
  /// Of these tokens, the first of which begins behind so many characters, to which theirs are
  /// added.
  Json logprobs(Choices choices, std::size_t& offset) const;

  Json choice(std::size_t index, const models::Generated& answer) override;
  Json first_delta(std::size_t index) override;
  Json delta(std::size_t index, std::string_view text, Choices drawn) override;
  Json last_delta(std::size_t index, const models::Generated& answer) override;

  std::vector<std::string> texts_;  // of the prompts, with `echo`
  bool echoes_ = false;
  /// Log-probabilities that were sent of an answer.
  struct Sent {
    std::size_t choices = 0, characters = 0;
  };
  std::map<std::size_t, Sent> sent_;  // by the answer's index
};

}  // namespace tenon::tool
