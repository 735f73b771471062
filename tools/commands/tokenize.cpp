#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/vocabulary.hpp>

#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string text;
  std::string file;
  bool no_special = false;
};

void run(const Tool& tool, const Options& options, bool from_file) {
  const std::string text = from_file ? read_text(options.file) : options.text;
  const auto tokenizer = models::load_tokenizer(io::open(tool.model));
  const auto ids = tokenizer.encode(
      text, {.add_special = !options.no_special, .parse_special = !options.no_special});
  if (!tool.json) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return;
  }
  Json pieces = Json::array();
  for (const std::int32_t id : ids) pieces.push_back(std::string(tokenizer.token(id)));
  tool.print({{"count", ids.size()}, {"ids", ids}, {"tokens", pieces}});
}

}  // namespace

void add_tokenize(CLI::App& app, Tool& tool) {
  Command command(app, tool, "tokenize", "Token ids of a text");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option text = command.option("TEXT", options->text, "The text");
  Option file =
      command.option("--file", options->file, "A file that holds the text; - for standard input");
  command.either(text, file);
  command.flag("--no-special", options->no_special,
               "Add no BOS or EOS and read special tokens' spellings as plain text");
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
