// generate MODEL.gguf TEXT: continues a text, character by character.
#include <tenon/tenon.hpp>

#include <cstdio>

using namespace tenon;

int main(int count, char** arguments) try {
  if (count != 3) {
    std::fprintf(stderr, "usage: %s MODEL.gguf TEXT\n", arguments[0]);
    return 2;
  }
  const auto model = models::LanguageModel::load(arguments[1], {.context = 512});
  auto conversation = model.conversation();
  const auto prompt = model.tokenizer().encode(arguments[2]);

  models::GenerateOptions options;
  options.max_tokens = 48;
  options.sampler = {.temperature = 0.7, .top_k = 40, .top_p = 0.95, .seed = 1};
  std::printf("%s", arguments[2]);
  const auto result =
      models::generate(model, conversation, prompt, options, [](std::string_view text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
      });
  std::printf("\n\n%zu tokens at %.1f tokens/s\n", result.tokens.size(),
              result.decode_tokens_per_second());
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
