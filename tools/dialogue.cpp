#include "dialogue.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

/// Positions that a prompt leaves free for the answer, of those that the context has.
constexpr std::int64_t share_for_answer = 4;

std::vector<text::ChatMessage> with_system(const std::string& system) {
  if (system.empty()) return {};
  return {{"system", system}};
}

}  // namespace

Dialogue::Dialogue(const models::LanguageModel& model, std::optional<text::ChatFormat> format,
                   models::GenerateOptions options, models::Conversation conversation)
    : model_(model),
      format_(std::move(format)),
      options_(std::move(options)),
      conversation_(std::move(conversation)) {
  if (!format_) return;
  for (std::string& token : format_->stop_tokens()) options_.stop.push_back(std::move(token));
}

void Dialogue::set_system(std::string content) {
  if (!content.empty()) {
    if (!format_) {
      throw Error(Errc::bad_argument, "chat", "plain text (--raw) has no system message");
    }
    auto messages = with_system(content);
    messages.push_back({"user", "a"});
    static_cast<void>(format_->format(messages));  // throws where there is no system role
  }
  system_ = std::move(content);
}

void Dialogue::clear() {
  turns_.clear();
  first_ = 0;
  transcript_.clear();
}

Dialogue::Opening Dialogue::read_opening(const models::Interrupt& interrupt) {
  if (!format_) return {};
  // Two messages of different tokens have it in common.
  std::vector<std::int32_t> opening = formatted(turns_.size(), "a");
  const std::vector<std::int32_t> other = formatted(turns_.size(), "1");
  const auto [end, unused] = std::ranges::mismatch(opening, other);
  const auto size = static_cast<std::size_t>(end - opening.begin());
  if (size == 0 || !has_room(size)) return {};
  opening.resize(std::min(size + 1, opening.size()));  // with a token to come, so that all are kept
  const std::size_t kept = conversation_.keep_prefix_of(opening);
  if (kept < size) conversation_.read(std::span(opening).subspan(kept, size - kept), interrupt);
  return {kept, size - kept};
}

Dialogue::Answer Dialogue::answer(std::string message, const models::Interrupt& interrupt,
                                  const std::function<void(std::string_view)>& emit) {
  const std::vector<std::int32_t> ids = prompt(message);
  const std::size_t kept = conversation_.keep_prefix_of(ids);
  options_.interrupt = interrupt;
  Answer answer{
      models::generate(model_, conversation_, std::span(ids).subspan(kept), options_, emit),
      first_ / 2};
  const models::Generated& made = answer.generated;
  if (static_cast<std::size_t>(conversation_.position()) < ids.size()) return answer;
  std::vector<std::int32_t> transcript = ids;
  transcript.insert(transcript.end(), made.tokens.begin(), made.tokens.end());
  transcript_ = std::move(transcript);
  turns_.push_back({"user", std::move(message)});
  turns_.push_back({"assistant", made.text});
  return answer;
}

std::vector<text::ChatMessage> Dialogue::messages() const {
  std::vector<text::ChatMessage> all = with_system(system_);
  all.insert(all.end(), turns_.begin(), turns_.end());
  return all;
}

std::vector<std::int32_t> Dialogue::prompt(const std::string& message) {
  std::size_t first = first_;
  std::vector<std::int32_t> ids = format_ ? formatted(first, message) : continued(message);
  while (format_ && !has_room(ids.size()) && first < turns_.size()) {
    first += 2;
    ids = formatted(first, message);
  }
  if (static_cast<std::int64_t>(ids.size()) > conversation_.capacity()) {
    throw Error(Errc::bad_argument, "chat",
                fmt::format("the message takes {} tokens with what is always read, the context "
                            "holds {}: shorten it, or start with a larger --ctx",
                            ids.size(), conversation_.capacity()));
  }
  if (ids.empty()) throw Error(Errc::bad_argument, "chat", "the message has no tokens");
  first_ = first;
  return ids;
}

/// The system message, the turns from `first` on and a new message.
std::vector<std::int32_t> Dialogue::formatted(std::size_t first, const std::string& message) const {
  auto messages = with_system(system_);
  messages.insert(messages.end(), turns_.begin() + static_cast<std::ptrdiff_t>(first),
                  turns_.end());
  messages.push_back({"user", message});
  return format_->format(messages).encode(model_.tokenizer());
}

/// The text so far, less its oldest tokens where room is needed, and more of it.
std::vector<std::int32_t> Dialogue::continued(const std::string& message) const {
  std::vector<std::int32_t> ids = transcript_;
  const auto more = model_.tokenizer().encode(message, {.add_special = ids.empty()});
  ids.insert(ids.end(), more.begin(), more.end());
  if (!has_room(ids.size()) && more.size() < ids.size()) {
    const auto kept = std::max(more.size(), static_cast<std::size_t>(conversation_.capacity() / 2));
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(std::min(kept, ids.size())));
  }
  return ids;
}

bool Dialogue::has_room(std::size_t tokens) const {
  const std::int64_t answer =
      std::min(options_.max_tokens, conversation_.capacity() / share_for_answer);
  return static_cast<std::int64_t>(tokens) + answer <= conversation_.capacity();
}

}  // namespace tenon::tool
