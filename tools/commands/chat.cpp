#include "tool.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string system;
  bool raw = false;
  models::GenerateOptions generate{.max_tokens = 512, .sampler = {}, .stop = {}, .cancel = {}};
};

/// A conversation that rereads only what changed since the last turn. Without a format, turns are
/// plain text, one behind the other.
class Chat {
 public:
  Chat(const models::LanguageModel& model, const text::ChatFormat* format,
       models::GenerateOptions options)
      : model_(model),
        format_(format),
        options_(std::move(options)),
        conversation_(model.conversation()) {
    if (format != nullptr) options_.stop = format->stop_tokens();
  }

  void add(std::string role, std::string content) {
    messages_.push_back({std::move(role), std::move(content)});
  }
  const std::vector<text::ChatMessage>& messages() const { return messages_; }

  models::Generated answer(const std::function<void(std::string_view)>& emit) {
    const std::vector<std::int32_t> ids = prompt();
    const auto [end, unused] = std::ranges::mismatch(read_, ids);
    auto kept = static_cast<std::size_t>(end - read_.begin());
    kept = std::min(kept, ids.size() - 1);  // at least one token, for its logits
    conversation_.rewind(static_cast<std::int64_t>(kept));
    auto result =
        models::generate(model_, conversation_, std::span(ids).subspan(kept), options_, emit);
    transcript_ = ids;
    transcript_.insert(transcript_.end(), result.tokens.begin(), result.tokens.end());
    read_ = transcript_;
    read_.resize(static_cast<std::size_t>(conversation_.position()));
    add("assistant", result.text);
    return result;
  }

 private:
  std::vector<std::int32_t> prompt() const {
    if (format_ != nullptr) return format_->format(messages_).encode(model_.tokenizer());
    std::vector<std::int32_t> ids = transcript_;
    const auto more =
        model_.tokenizer().encode(messages_.back().content, {.add_special = ids.empty()});
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }

  const models::LanguageModel& model_;
  const text::ChatFormat* format_;  // null: raw
  models::GenerateOptions options_;
  models::Conversation conversation_;
  std::vector<text::ChatMessage> messages_;
  std::vector<std::int32_t> transcript_;
  std::vector<std::int32_t> read_;  // of the transcript: the last token drawn is not read yet
};

void run(const Tool& tool, const Options& options) {
  const auto model = models::LanguageModel::load(tool.model, tool.language_model());
  const auto format = options.raw ? std::nullopt : model.chat_format();
  if (!format && !options.raw) {
    throw Error(Errc::template_error, tool.model,
                "the file has no chat template; --raw sends messages as plain text");
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (!tool.json) fmt::print(stderr, "model loaded in {:.2f} s\n", seconds(model.load_time()));
  Chat chat(model, format ? &*format : nullptr, options.generate);
  if (!options.system.empty()) chat.add("system", options.system);
  const auto print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  Json turns = Json::array();
  std::string line;
  while (true) {
    if (terminal && !tool.json) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    chat.add("user", line);
    const auto result = chat.answer(tool.json ? std::function<void(std::string_view)>() : print);
    if (tool.json) {
      turns.push_back({{"user", line},
                       {"assistant", result.text},
                       {"prompt_tokens", result.prompt_tokens},
                       {"tokens", result.tokens.size()},
                       {"prefill_tok_s", result.prefill_tokens_per_second()},
                       {"decode_tok_s", result.decode_tokens_per_second()}});
      continue;
    }
    fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr,
               "[prompt {} tokens at {:.1f} tokens/s, answer {} tokens at {:.1f} tokens/s]\n",
               result.prompt_tokens, result.prefill_tokens_per_second(), result.tokens.size(),
               result.decode_tokens_per_second());
  }
  if (tool.json) tool.print({{"load_s", seconds(model.load_time())}, {"turns", turns}});
}

}  // namespace

void add_chat(CLI::App& app, Tool& tool) {
  Command command(app, tool, "chat", "Talk to a model: one message a line on standard input");
  auto options = std::make_shared<Options>();
  add_model(command);
  const Option system = command.option("--system", options->system,
                                       "A system message; the template's own without it");
  command
      .flag("--raw", options->raw,
            "Plain text instead of the file's chat template; each line is gone on with")
      .excludes(system);
  command.option("-n,--max-tokens", options->generate.max_tokens, "Tokens per answer at most")
      .range(1, 1 << 24);
  add_sampling(command, options->generate.sampler);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
