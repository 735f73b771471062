#include "terminal.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/vocabulary.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string text;
  std::string file;
  bool no_special = false;
};

/// The one object of a `--json` run, as `Tool::print` would print it, but token by token: a text
/// may have ten million.
void print_json(const text::Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  fmt::print("{{\n  \"count\": {},\n  \"ids\": [{}],\n  \"tokens\": [", ids.size(),
             fmt::join(ids, ", "));
  const bool ascii = is_terminal(STDOUT_FILENO);
  std::string_view before;
  for (const std::int32_t id : ids) {
    const Json token = std::string(tokenizer.token(id));
    fmt::print("{}{}", before, token.dump(-1, ' ', ascii, Json::error_handler_t::replace));
    before = ", ";
  }
  fmt::print("]\n}}\n");
}

void run(const Tool& tool, const Options& options, bool from_file) {
  const std::string text = from_file ? read_text(options.file) : options.text;
  const io::File file = io::open(tool.model, {.access = io::Access::guarded});
  const auto tokenizer = models::load_tokenizer(file);
  const auto ids = tokenizer.encode(
      text, {.add_special = !options.no_special, .parse_special = !options.no_special});
  file.check_pages();
  if (!tool.json) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return;
  }
  print_json(tokenizer, ids);
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
