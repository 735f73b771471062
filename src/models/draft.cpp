#include "draft.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

constexpr std::int64_t first_length = 4;
constexpr std::int64_t most_failures = 6;  // which a pause of 16 steps follows
// As in llama.cpp: so many tokens more may fill up the vocabulary of one size of a family.
constexpr std::size_t padding_tokens = 128;
// Tokens that a draft model has missed are read in pieces whose sizes are powers of two, so that few
// sizes need a plan; more than these, such as a prompt, at once.
constexpr std::size_t pieced_tokens = 64;

void require(bool holds, const char* what, double value) {
  if (!holds) throw Error(Errc::bad_argument, "generate", fmt::format("{} is {}", what, value));
}

void refuse_states(const LanguageModel& model) {
  if (!model.config().is_recurrent()) return;
  throw Error(Errc::unsupported, "generate",
              fmt::format("drafts with {}: its states cannot go back to the tokens that were right",
                          model.config().architecture));
}

/// The number of tokens that both have.
std::size_t check_same_tokens(const LanguageModel& target, const LanguageModel& draft) {
  const text::Tokenizer &ours = target.tokenizer(), &theirs = draft.tokenizer();
  const std::size_t fewer = std::min(ours.vocab_size(), theirs.vocab_size());
  const std::size_t more = std::max(ours.vocab_size(), theirs.vocab_size());
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::incompatible, draft.file().path().string(),
                "cannot draft for " + target.file().path().string() + ": " + why);
  };
  if (more - fewer > padding_tokens) {
    refuse(fmt::format("it has {} tokens, not {}", theirs.vocab_size(), ours.vocab_size()));
  }
  for (std::size_t i = 0; i < fewer; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (ours.token(id) == theirs.token(id)) continue;
    refuse(fmt::format("token {} is '{}', not '{}'", id, theirs.token(id), ours.token(id)));
  }
  return fewer;
}

}  // namespace

void check(const DraftOptions& options) {
  require(options.max_tokens >= 0, "draft.max_tokens", static_cast<double>(options.max_tokens));
  require(options.lookup >= 0, "draft.lookup", static_cast<double>(options.lookup));
  require(options.min_lookup >= 1, "draft.min_lookup", static_cast<double>(options.min_lookup));
  require(options.min_probability >= 0 && options.min_probability <= 1, "draft.min_probability",
          options.min_probability);
}

DraftPace::DraftPace(std::int64_t max) : max_(max), length_(std::min(first_length, max)) {}

std::int64_t DraftPace::next() noexcept {
  if (pause_ == 0) return length_;
  --pause_;
  return 0;
}

void DraftPace::settle(std::int64_t drafted, std::int64_t accepted) noexcept {
  if (accepted == 0) {
    length_ = 1;
    failures_ = std::min(failures_ + 1, most_failures);
    if (failures_ > 1) pause_ = std::int64_t{1} << (failures_ - 2);
    return;
  }
  failures_ = std::max<std::int64_t>(failures_ - accepted, 0);
  length_ = std::min(accepted == drafted ? 2 * std::max(length_, accepted) : accepted + 1, max_);
}

std::vector<std::int32_t> looked_up(std::span<const std::int32_t> text, std::int64_t min_match,
                                    std::int64_t max_match, std::int64_t count) {
  const std::size_t size = text.size();
  const auto most = static_cast<std::size_t>(max_match);
  std::size_t best = 0, begin = 0;  // tokens that match, and the end of the place
  for (std::size_t end = size; end-- > 1 && best < std::min(end, most);) {
    std::size_t match = 0;
    while (match < std::min(end, most) && text[end - 1 - match] == text[size - 1 - match]) ++match;
    if (match <= best) continue;
    best = match;
    begin = end;
  }
  std::vector<std::int32_t> draft;
  if (best < static_cast<std::size_t>(std::max<std::int64_t>(min_match, 1))) return draft;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t from = begin + i;
    draft.push_back(from < size ? text[from] : draft[from - size]);
  }
  return draft;
}

Drafter::Drafter(const DraftOptions& options, const LanguageModel& target,
                 const Conversation& conversation, std::function<bool(std::int32_t)> ends,
                 const Interrupt& interrupt)
    : options_(options),
      ends_(std::move(ends)),
      interrupt_(interrupt),
      tokens_(static_cast<std::int32_t>(target.tokenizer().vocab_size())),
      lookup_(options.max_tokens),
      model_(options.max_tokens) {
  refuse_states(target);
  if (!options.model) return;
  if (options.model->is_same(conversation)) {
    throw Error(Errc::bad_argument, "generate", "a conversation cannot draft for itself");
  }
  const LanguageModel draft = options.model->model();
  refuse_states(draft);
  if (options.model->is_of(target)) return;
  tokens_ = static_cast<std::int32_t>(check_same_tokens(target, draft));
}

std::vector<std::int32_t> Drafter::draft(std::span<const std::int32_t> text, std::int64_t limit) {
  used_ = nullptr;
  drafted_ = 0;
  std::vector<std::int32_t> made;
  if (limit <= 0) return made;
  if (options_.lookup > 0) made = by_lookup(text, limit);
  if (made.empty() && options_.model) made = by_model(text, limit);
  made.erase(std::ranges::find_if(made, ends_), made.end());
  drafted_ = static_cast<std::int64_t>(made.size());
  return made;
}

void Drafter::settle(std::int64_t accepted) {
  if (used_ != nullptr) used_->settle(drafted_, accepted);
  used_ = nullptr;
}

std::vector<std::int32_t> Drafter::by_lookup(std::span<const std::int32_t> text,
                                             std::int64_t limit) {
  auto made = looked_up(text, std::min(options_.min_lookup, options_.lookup), options_.lookup,
                        std::min(limit, options_.max_tokens));
  if (made.empty()) return made;
  used_ = &lookup_;
  made.resize(std::min(made.size(), static_cast<std::size_t>(lookup_.next())));
  if (made.empty()) used_ = nullptr;
  return made;
}

std::vector<std::int32_t> Drafter::by_model(std::span<const std::int32_t> text,
                                            std::int64_t limit) {
  Conversation conversation = *options_.model;
  std::vector<std::int32_t> made;
  // It reads the text and all of the draft but its last token.
  limit = std::min(limit, conversation.capacity() - static_cast<std::int64_t>(text.size()) + 1);
  if (limit <= 0) return made;
  const auto length = static_cast<std::size_t>(std::min(limit, model_.next()));
  if (length == 0) return made;
  auto rest = text.subspan(conversation.keep_prefix_of(text));
  if (has_unknown(rest)) return made;
  used_ = &model_;
  if (rest.size() <= pieced_tokens) {
    while (!std::has_single_bit(rest.size())) {
      const std::size_t piece = std::bit_floor(rest.size());
      conversation.read_guess(rest.first(piece), interrupt_);
      rest = rest.subspan(piece);
    }
  }
  auto guess = conversation.read_guess(rest, interrupt_);
  // One that is not sure is worth a row of the model, but no further step of the draft model.
  while (guess.token < tokens_ && !ends_(guess.token)) {
    made.push_back(guess.token);
    const bool is_sure = static_cast<double>(guess.probability) >= options_.min_probability;
    if (made.size() == length || !is_sure) break;
    guess = conversation.read_guess({&guess.token, 1}, interrupt_);
  }
  return made;
}

bool Drafter::has_unknown(std::span<const std::int32_t> tokens) const {
  const auto known = static_cast<std::int32_t>(options_.model->model().tokenizer().vocab_size());
  return std::ranges::any_of(tokens, [&](std::int32_t id) { return id >= known; });
}

}  // namespace tenon::models
