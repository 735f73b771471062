#include "dialogue.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr std::string_view marker = models::image_marker;

std::size_t count_markers(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(marker, at)) != std::string_view::npos;
       at += marker.size()) {
    ++count;
  }
  return count;
}

/// An answer that spells a marker stands for no image.
std::string without_markers(std::string text) {
  for (std::size_t at = 0; (at = text.find(marker)) != std::string::npos;) {
    text.erase(at, marker.size());
  }
  return text;
}

std::int64_t positions_of(const std::vector<models::PromptPart>& parts) {
  std::int64_t count = 0;
  for (const models::PromptPart& part : parts) count += part.positions();
  return count;
}

/// Positions that a prompt leaves free for the answer, of those that the context has.
constexpr std::int64_t share_for_answer = 4;

std::vector<text::ChatMessage> with_system(const std::string& system) {
  if (system.empty()) return {};
  return {{"system", system}};
}

}  // namespace

Dialogue::Dialogue(const models::LanguageModel& model, std::optional<text::ChatFormat> format,
                   models::GenerateOptions options, models::Conversation conversation,
                   bool reads_images)
    : model_(model),
      format_(std::move(format)),
      options_(std::move(options)),
      conversation_(std::move(conversation)),
      reads_images_(reads_images) {
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
  pictures_.clear();
  first_ = 0;
  transcript_.clear();
}

Dialogue::Opening Dialogue::read_opening(const models::Interrupt& interrupt) {
  if (!format_) return {};
  // Two messages of different tokens have it in common.
  std::vector<std::int32_t> opening = formatted(turns_.size(), "a", {}).front().tokens;
  const std::vector<std::int32_t> other = formatted(turns_.size(), "1", {}).front().tokens;
  const auto [end, unused] = std::ranges::mismatch(opening, other);
  const auto size = static_cast<std::size_t>(end - opening.begin());
  if (size == 0 || !has_room(static_cast<std::int64_t>(size))) return {};
  opening.resize(std::min(size + 1, opening.size()));  // with a token to come, so that all are kept
  const std::size_t kept = conversation_.keep_prefix_of(opening);
  if (kept < size) conversation_.read(std::span(opening).subspan(kept, size - kept), interrupt);
  return {kept, size - kept};
}

Dialogue::Answer Dialogue::answer(std::string message, std::vector<MessagePicture> pictures,
                                  const models::Interrupt& interrupt,
                                  const std::function<void(std::string_view)>& emit) {
  if (count_markers(message) == 0) {
    for (std::size_t i = 0; i < pictures.size(); ++i) message.insert(0, marker);
  }
  if (const std::size_t markers = count_markers(message);
      reads_images_ && markers != pictures.size()) {
    throw Error(Errc::bad_argument, "chat",
                fmt::format("{} images for {} markers", pictures.size(), markers));
  }
  const Parts parts = prompt(message, pictures);
  options_.interrupt = interrupt;
  Answer answer{models::generate(model_, conversation_, unread(parts), options_, emit), first_ / 2};
  const models::Generated& made = answer.generated;
  if (conversation_.position() < positions_of(parts)) return answer;
  if (!format_) {
    transcript_ = parts.front().tokens;
    transcript_.insert(transcript_.end(), made.tokens.begin(), made.tokens.end());
  }
  turns_.push_back({"user", std::move(message)});
  turns_.push_back({"assistant", reads_images_ ? without_markers(made.text) : made.text});
  pictures_.push_back(std::move(pictures));
  return answer;
}

/// What the conversation does not hold of a prompt, which ends with tokens. It is rewound to where that begins.
Dialogue::Parts Dialogue::unread(Parts parts) {
  const auto tokens = conversation_.tokens();
  const auto token_at = [&](std::int64_t at) { return tokens[static_cast<std::size_t>(at)]; };
  std::map<std::int64_t, HostBuffer> images;
  std::int64_t same = 0, begin = 0;
  for (const models::PromptPart& part : parts) {
    const std::int64_t count = part.positions(), end = begin + count;
    const auto holds = [&](std::int64_t at) {
      if (part.rows.is_empty()) {
        return token_at(at) == part.tokens[static_cast<std::size_t>(at - begin)];
      }
      const auto held = held_.find(begin);
      return token_at(at) == -1 - begin && held != held_.end() &&
             held->second.bytes() == part.rows.bytes();
    };
    while (same >= begin && same < end && same < conversation_.position() && holds(same)) ++same;
    if (!part.rows.is_empty()) {
      if (same > begin && same < end) same = begin;  // it was read in part
      images.emplace(begin, part.rows);
    }
    begin = end;
  }
  // The last token is read once more where all are held, for the logits behind it.
  conversation_.rewind(conversation_.rewindable(std::min(same, begin - 1)));
  held_ = std::move(images);

  Parts rest;
  std::int64_t skipped = conversation_.position();
  for (models::PromptPart& part : parts) {
    const std::int64_t count = part.positions();
    if (skipped >= count) {
      skipped -= count;
      continue;
    }
    part.tokens.erase(part.tokens.begin(), part.tokens.begin() + skipped);
    skipped = 0;
    rest.push_back(std::move(part));
  }
  return rest;
}

std::vector<text::ChatMessage> Dialogue::messages() const {
  std::vector<text::ChatMessage> all = with_system(system_);
  all.insert(all.end(), turns_.begin(), turns_.end());
  return all;
}

std::vector<std::string> Dialogue::pictures() const {
  std::vector<std::string> paths;
  for (const std::vector<MessagePicture>& turn : pictures_) {
    for (const MessagePicture& picture : turn) paths.push_back(picture.path);
  }
  return paths;
}

Dialogue::Parts Dialogue::prompt(const std::string& message,
                                 const std::vector<MessagePicture>& pictures) {
  std::size_t first = first_;
  Parts parts =
      format_ ? formatted(first, message, pictures) : Parts{{.tokens = continued(message)}};
  while (format_ && !has_room(positions_of(parts)) && first < turns_.size()) {
    first += 2;
    parts = formatted(first, message, pictures);
  }
  const std::int64_t positions = positions_of(parts);
  if (positions > conversation_.capacity()) {
    throw Error(Errc::bad_argument, "chat",
                fmt::format("the message takes {} tokens with what is always read, the context "
                            "holds {}: shorten it, or start with a larger --ctx",
                            positions, conversation_.capacity()));
  }
  if (positions == 0) throw Error(Errc::bad_argument, "chat", "the message has no tokens");
  first_ = first;
  return parts;
}

/// The system message, the turns from `first` on and a new message.
Dialogue::Parts Dialogue::formatted(std::size_t first, const std::string& message,
                                    const std::vector<MessagePicture>& pictures) const {
  auto messages = with_system(system_);
  messages.insert(messages.end(), turns_.begin() + static_cast<std::ptrdiff_t>(first),
                  turns_.end());
  messages.push_back({"user", message});
  const text::Prompt prompt = format_->format(messages);
  std::vector<models::EncodedImage> images;
  const auto add = [&](const std::vector<MessagePicture>& some) {
    for (const MessagePicture& picture : some) images.push_back(picture.image);
  };
  for (std::size_t turn = first / 2; turn < pictures_.size(); ++turn) add(pictures_[turn]);
  add(pictures);
  // Without images a marker is a text as any other.
  if (images.empty()) return {{.tokens = prompt.encode(model_.tokenizer())}};
  return models::image_prompt(model_, prompt, images);
}

/// The text so far, less its oldest tokens where room is needed, and more of it.
std::vector<std::int32_t> Dialogue::continued(const std::string& message) const {
  std::vector<std::int32_t> ids = transcript_;
  const auto more = model_.tokenizer().encode(message, {.add_special = ids.empty()});
  ids.insert(ids.end(), more.begin(), more.end());
  if (!has_room(static_cast<std::int64_t>(ids.size())) && more.size() < ids.size()) {
    const auto kept = std::max(more.size(), static_cast<std::size_t>(conversation_.capacity() / 2));
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(std::min(kept, ids.size())));
  }
  return ids;
}

bool Dialogue::has_room(std::int64_t positions) const {
  const std::int64_t answer =
      std::min(options_.max_tokens, conversation_.capacity() / share_for_answer);
  return positions + answer <= conversation_.capacity();
}

}  // namespace tenon::tool
