#include "generation.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>

namespace tenon::models {
namespace {

double per_second(std::int64_t count, std::chrono::nanoseconds time) noexcept {
  return time.count() > 0 ? static_cast<double>(count) * 1e9 / static_cast<double>(time.count())
                          : 0;
}

}  // namespace

double Generated::prefill_tokens_per_second() const noexcept {
  return per_second(prompt_tokens - reused_tokens, prefill_time);
}
double Generated::decode_tokens_per_second() const noexcept {
  return per_second(std::max<std::int64_t>(static_cast<std::int64_t>(tokens.size()) - 1, 0),
                    decode_time);
}

Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view)>& emit) {
  return with_memory_errors(
      "generate", [&] { return Generation(model, conversation, options, emit).run(prompt); });
}

Generated generate(const LanguageModel& model, Conversation& conversation,
                   std::span<const PromptPart> prompt, const GenerateOptions& options,
                   const std::function<void(std::string_view text)>& emit) {
  return with_memory_errors("generate", [&] {
    if (prompt.empty() || prompt.back().tokens.empty()) {
      throw Error(Errc::bad_argument, "generate", "the prompt does not end with tokens");
    }
    return Generation(model, conversation, options, emit)
        .run(prompt.back().tokens, prompt.first(prompt.size() - 1));
  });
}

}  // namespace tenon::models
