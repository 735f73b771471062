#include "encoders.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/models/encoder.hpp>

#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::vector<std::string> texts;
  std::string file;
  std::string out;
  std::string weights;
  std::string pooling;
  std::string normalize = "euclidean";
};

/// Embeddings of each token, with the pooling none.
void print_tokens(const Tool& tool, const Options& options, const models::SentenceEncoder& encoder,
                  const std::vector<std::string>& texts) {
  if (!options.out.empty() && texts.size() != 1) {
    throw Error(
        Errc::bad_argument, "embed",
        fmt::format("--out takes the tokens of one text, these are {} texts", texts.size()));
  }
  const auto width = static_cast<std::size_t>(encoder.embedding_width());
  Json all = Json::array();
  for (const std::string& text : texts) {
    const HostBuffer made = encoder.embed_tokens(text);
    if (!options.out.empty()) io::write_npy(options.out, made);
    if (!tool.json) {
      fmt::print("{} embeddings of {} numbers{}\n", made.shape()[0], width,
                 options.out.empty() ? "" : " in " + options.out);
      if (options.out.empty()) fmt::print("{}\n", to_string(made));
      continue;
    }
    Json rows = Json::array();
    const auto values = made.values<float>();
    for (std::size_t at = 0; at < values.size(); at += width) {
      const auto row = values.subspan(at, width);
      rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    all.push_back(std::move(rows));
  }
  if (!tool.json) return;
  Json result{{"count", texts.size()}, {"width", width}, {"pooling", "none"}};
  if (options.out.empty()) {
    result["token_embeddings"] = std::move(all);
  } else {
    result["out"] = options.out;
  }
  tool.print(result);
}

void run(const Tool& tool, const Options& options, bool from_file) {
  const std::vector<std::string> texts =
      from_file ? lines_of(read_text(options.file)) : options.texts;
  const auto normalization = models::find_normalization(options.normalize);
  const auto encoder = models::SentenceEncoder::load(
      tool.model, encoder_options(tool, "embed", options.weights),
      {.pooling = models::find_pooling(options.pooling), .normalization = *normalization});
  if (encoder.config().pooling == models::Pooling::none) {
    print_tokens(tool, options, encoder, texts);
    return;
  }
  if (encoder.config().pooling == models::Pooling::rank) {
    throw Error(Errc::unsupported, tool.model, "a reranker: `tenon rerank` runs it");
  }
  const HostBuffer embeddings = encoder.embed(texts);
  if (!options.out.empty()) io::write_npy(options.out, embeddings);
  const auto count = static_cast<std::int64_t>(texts.size());
  // The matrix of similarities is printed for a few texts only, not for a file of them.
  const bool compares =
      count >= 2 && count <= 16 && *normalization == models::Normalization::euclidean;
  if (tool.json) {
    Json rows = Json::array();
    Json similarities = Json::array();
    const auto values = embeddings.values<float>();
    const auto width = static_cast<std::size_t>(encoder.embedding_width());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto row = values.subspan(i * width, width);
      if (options.out.empty()) rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    Json result{{"count", count},
                {"width", width},
                {"pooling", std::string(models::name(encoder.config().pooling))}};
    if (options.out.empty()) {
      result["embeddings"] = std::move(rows);
    } else {
      result["out"] = options.out;
    }
    if (compares) {
      for (std::int64_t a = 0; a < count; ++a) {
        Json line = Json::array();
        for (std::int64_t b = 0; b < count; ++b)
          line.push_back(models::similarity(embeddings, a, b));
        similarities.push_back(std::move(line));
      }
      result["similarity"] = std::move(similarities);
    }
    tool.print(result);
    return;
  }
  fmt::print("{} embeddings of {} numbers{}\n", count, encoder.embedding_width(),
             options.out.empty() ? "" : " in " + options.out);
  if (compares) {
    for (std::int64_t a = 0; a < count; ++a) {
      for (std::int64_t b = 0; b < count; ++b)
        fmt::print("{:7.4f}", models::similarity(embeddings, a, b));
      fmt::print("   {}\n", texts[static_cast<std::size_t>(a)]);
    }
  } else if (options.out.empty()) {
    fmt::print("{}\n", to_string(embeddings));
  }
}

}  // namespace

void add_embed(CLI::App& app, Tool& tool) {
  Command command(app, tool, "embed", "Embeddings of texts, and their similarities");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option texts = command.option("TEXT", options->texts, "The texts");
  Option file =
      command.option("--file", options->file, "A file with a text a line; - for standard input");
  command.either(texts, file);
  command.option("--out", options->out,
                 "Write the embeddings, f32 [texts, width], to this .npy file");
  command.option("--weights", options->weights,
                 "Quantise the layers' weights to this block type while loading, such as q8_0");
  command
      .option(
          "--pooling", options->pooling,
          "What an embedding is made of, in place of what the file says; none: one of each token")
      .one_of({"none", "mean", "cls", "last"});
  command
      .option("--normalize", options->normalize,
              "What embeddings are divided by: their length, the sum of absolute values, or the "
              "largest of them by 32760")
      .one_of({"none", "euclidean", "taxicab", "max_int16"});
  add_compute(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
