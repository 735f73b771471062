#include "encoders.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/models/encoder.hpp>

#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string query;
  std::vector<std::string> documents;
  std::string file;
  std::string weights;
  std::optional<std::int64_t> top;
};

void run(const Tool& tool, const Options& options, bool from_file) {
  const std::vector<std::string> documents =
      from_file ? lines_of(read_text(options.file)) : options.documents;
  const auto encoder =
      models::SentenceEncoder::load(tool.model, encoder_options(tool, "rerank", options.weights),
                                    {.pooling = models::Pooling::rank});
  const HostBuffer made = encoder.score(options.query, documents);
  const auto scores = made.values<float>();
  const auto order = best_first(scores, options.top.value_or(std::ssize(documents)));
  if (tool.json) {
    Json results = Json::array();
    for (const std::size_t at : order) {
      results.push_back({{"index", at}, {"score", scores[at]}, {"document", documents[at]}});
    }
    tool.print({{"query", options.query}, {"results", std::move(results)}});
    return;
  }
  for (const std::size_t at : order) fmt::print("{:9.4f}   {}\n", scores[at], documents[at]);
}

}  // namespace

void add_rerank(CLI::App& app, Tool& tool) {
  Command command(app, tool, "rerank", "Documents by how well they answer a query, the best first");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option documents = command.option("DOCUMENT", options->documents, "The documents");
  Option file = command.option("--file", options->file,
                               "A file with a document a line; - for standard input");
  command.either(documents, file);
  command.option("-q,--query", options->query, "The query").required();
  command.option("--top", options->top, "Print so many at most").range(1, 1 << 30);
  command.option("--weights", options->weights,
                 "Quantise the layers' weights to this block type while loading, such as q8_0");
  add_compute(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
