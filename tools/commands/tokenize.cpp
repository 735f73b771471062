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
  CLI::App& command = *app.add_subcommand("tokenize", "Token ids of a text");
  auto options = std::make_shared<Options>();
  add_model(command, tool);
  auto* text = command.add_option("TEXT", options->text, "The text");
  auto* file = command.add_option("--file", options->file,
                                  "A file that holds the text; - for standard input");
  text->excludes(file);
  command.add_flag("--no-special", options->no_special,
                   "Add no BOS or EOS and read special tokens' spellings as plain text");
  add_json(command, tool);
  command.callback([&tool, options, text, file] {
    if (text->count() + file->count() == 0) throw CLI::RequiredError("TEXT or --file");
    tool.run = [&tool, options, from_file = file->count() > 0] { run(tool, *options, from_file); };
  });
}

}  // namespace tenon::tool
