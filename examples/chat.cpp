// chat MODEL.gguf [MESSAGE ...]: a conversation in the format that the file's own template names.
// Messages come from the command line, or else a line each from standard input.
#include <tenon/tenon.hpp>

#include <cstddef>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

using namespace tenon;

int main(int count, char** arguments) try {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [MESSAGE ...]\n", arguments[0]);
    return 2;
  }
  const auto model = models::LanguageModel::load(arguments[1], {.context = 2048});
  const auto format = model.chat_format();  // throws where it is no Jinja template
  if (!format) {
    std::fprintf(stderr, "%s has no chat template; see the example `generate`\n", arguments[1]);
    return 3;
  }
  models::GenerateOptions options;
  options.max_tokens = 96;
  options.sampler = {.temperature = 0};
  options.stop = format->stop_tokens();

  auto conversation = model.conversation();
  std::vector<text::ChatMessage> messages;
  for (int next = 2;; ++next) {
    std::string line;
    if (count > 2 ? next == count : !std::getline(std::cin, line)) break;
    messages.push_back({"user", count > 2 ? arguments[next] : line});
    std::printf("> %s\n", messages.back().content.c_str());

    // The whole conversation as tokens; those that were read in earlier turns stay read.
    const auto prompt = format->format(messages).encode(model.tokenizer());
    const std::size_t known = conversation.keep_prefix_of(prompt);

    const auto answer = models::generate(model, conversation, std::span(prompt).subspan(known),
                                         options, [](std::string_view text) {
                                           std::fwrite(text.data(), 1, text.size(), stdout);
                                           std::fflush(stdout);
                                         });
    std::printf("\n");
    messages.push_back({"assistant", answer.text});
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
