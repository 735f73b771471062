#include "draft_options.hpp"

#include "tool.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {

void DraftOptions::add_to(Command& command) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Option model = command.option(
      "--model-draft", model_,
      "A smaller model with the same tokens, which guesses the next ones; the answer "
      "is the same, and sooner where it is right (llama.cpp's -md)");
  command
      .option("--draft-p-min", options_.min_probability,
              "The draft model goes on guessing while its tokens are as probable as this")
      .needs(model);
  command
      .option("--lookup", options_.lookup,
              "Guess the next tokens by what followed the last ones, up to N of them, earlier in "
              "the text: for answers that repeat parts of the prompt; 8 is a good number, 0: off")
      .range(0, most);
  command
      .option("--lookup-min", options_.min_lookup,
              "Tokens that match at least, but no more than --lookup")
      .range(1, most);
  command.option("--draft-max", options_.max_tokens, "Tokens that are guessed at once, at most")
      .range(0, most);
}

models::DraftOptions DraftOptions::for_model(const Tool& tool, const models::LanguageModel& model,
                                             std::stop_token stop) const {
  models::DraftOptions options = options_;
  if (model_.empty() || options.max_tokens == 0) return options;
  models::LanguageModelOptions loading = tool.language_model(std::move(stop));
  loading.adapters.clear();
  loading.context = model.context();
  options.model = models::LanguageModel::load(model_, loading).conversation();
  return options;
}

Json DraftOptions::described() const {
  return {{"model_draft", model_.empty() ? Json(nullptr) : Json(model_)},
          {"draft_max", options_.max_tokens},
          {"draft_p_min", options_.min_probability},
          {"lookup", options_.lookup},
          {"lookup_min", options_.min_lookup}};
}

std::string drafts_of(const models::Generated& result) {
  if (result.drafted_tokens == 0) return {};
  return fmt::format(", {} of {} drafted ones accepted ({:.0f} %)", result.accepted_tokens,
                     result.drafted_tokens,
                     100.0 * static_cast<double>(result.accepted_tokens) /
                         static_cast<double>(result.drafted_tokens));
}

}  // namespace tenon::tool
