#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/models/encoder.hpp>

#include <memory>
#include <optional>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::vector<std::string> texts;
  std::string file;
  std::string out;
  std::string weights;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

void run(const Tool& tool, const Options& options, bool from_file) {
  const std::vector<std::string> texts =
      from_file ? lines_of(read_text(options.file)) : options.texts;
  std::optional<DType> weights;
  if (!options.weights.empty()) {
    weights = find_dtype(options.weights);
    if (!weights) throw Error(Errc::bad_argument, "embed", "no type " + options.weights);
  }
  const auto encoder = models::SentenceEncoder::load(tool.model, {.device = tool.open_device(),
                                                                  .cpu_fallback = tool.cpu_fallback,
                                                                  .backend = tool.backend(),
                                                                  .weights = weights});
  const HostBuffer embeddings = encoder.embed(texts);
  if (!options.out.empty()) io::write_npy(options.out, embeddings);
  const auto count = static_cast<std::int64_t>(texts.size());
  // The matrix of similarities is printed for a few texts only, not for a file of them.
  const bool compares = count >= 2 && count <= 16;
  if (tool.json) {
    Json rows = Json::array();
    Json similarities = Json::array();
    const auto values = embeddings.values<float>();
    const auto width = static_cast<std::size_t>(encoder.config().width);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto row = values.subspan(i * width, width);
      if (options.out.empty()) rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    Json result{{"count", count}, {"width", width}};
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
  fmt::print("{} embeddings of {} numbers{}\n", count, encoder.config().width,
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
  Command command(app, tool, "embed", "Embeddings of sentences, and their similarities");
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
  add_compute(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
