// embed MODEL_FOLDER: which of a few sentences is nearest to a question.
#include <tenon/tenon.hpp>

#include <cstdio>
#include <string>
#include <vector>

using namespace tenon;

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s MODEL_FOLDER\n", arguments[0]);
    return 2;
  }
  const auto encoder = models::SentenceEncoder::load(arguments[1]);
  const std::vector<std::string> texts = {
      "How do I keep bread fresh?",
      "Store loaves in a linen bag at room temperature.",
      "The train to the coast leaves at nine.",
      "A crust stays crisp longer in paper than in plastic.",
  };
  const HostBuffer embeddings = encoder.embed(texts);
  std::printf("%s\n", texts[0].c_str());
  for (std::int64_t i = 1; i < static_cast<std::int64_t>(texts.size()); ++i) {
    std::printf("  %6.3f  %s\n", models::similarity(embeddings, 0, i),
                texts[static_cast<std::size_t>(i)].c_str());
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
