#include "tool.hpp"

#include <tenon/error.hpp>

#include <cstdio>
#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string prompt;
  std::string prompt_file;
  bool chat = false;
  models::GenerateOptions generate;
};

std::string_view end_word(models::Generated::End end) {
  switch (end) {
    case models::Generated::End::token:
      return "end token";
    case models::Generated::End::length:
      return "length";
    case models::Generated::End::context:
      return "context full";
    case models::Generated::End::cancelled:
      return "cancelled";
  }
  return "";
}

void run(const Tool& tool, Options& options, bool from_file) {
  const std::string prompt = from_file ? read_text(options.prompt_file) : options.prompt;
  const auto model = models::LanguageModel::load(tool.model, tool.language_model());
  std::vector<std::int32_t> ids;
  if (options.chat) {
    const auto format = model.chat_format();
    if (!format)
      throw Error(Errc::template_error, tool.model,
                  "the file has no chat template; leave out --chat");
    const text::ChatMessage message{"user", prompt};
    ids = format->format({&message, 1}).encode(model.tokenizer());
    options.generate.stop = format->stop_tokens();
  } else {
    ids = model.tokenizer().encode(prompt);
  }
  if (ids.empty()) throw Error(Errc::bad_argument, "generate", "the prompt has no tokens");
  auto conversation = model.conversation();
  const auto print = [&](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const auto result = models::generate(model, conversation, ids, options.generate,
                                       tool.json ? std::function<void(std::string_view)>() : print);
  if (tool.json) {
    tool.print({{"prompt_tokens", result.prompt_tokens},
                {"tokens", result.tokens},
                {"text", result.text},
                {"end", end_word(result.end)},
                {"load_s", seconds(model.load_time())},
                {"prefill_tok_s", result.prefill_tokens_per_second()},
                {"decode_tok_s", result.decode_tokens_per_second()}});
    return;
  }
  fmt::print("\n");
  fmt::print(
      stderr,
      "\nload {:.2f} s, prompt {} tokens at {:.1f} tokens/s, answer {} tokens at {:.1f} tokens/s\n",
      seconds(model.load_time()), result.prompt_tokens, result.prefill_tokens_per_second(),
      result.tokens.size(), result.decode_tokens_per_second());
}

}  // namespace

void add_generate(CLI::App& app, Tool& tool) {
  Command command(app, tool, "generate", "Go on with a text");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option prompt = command.option("-p,--prompt", options->prompt, "The text to go on with");
  Option file = command.option("--prompt-file", options->prompt_file,
                               "A file that holds the text; - for standard input");
  command.either(prompt, file);
  command.option("-n,--max-tokens", options->generate.max_tokens, "Tokens to make at most")
      .range(0, 1 << 24);
  command.flag("--chat", options->chat,
               "The prompt is a user's message: put the model's chat format around it");
  add_sampling(command, options->generate.sampler);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
