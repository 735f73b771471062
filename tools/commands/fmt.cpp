#include "tool.hpp"

#include <tenon/program.hpp>

#include <memory>
#include <string>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string path;
  bool write = false;
};

void run(const Tool& tool, const Options& options) {
  if (options.write && options.path == "-") {
    throw Error(Errc::bad_argument, "command line",
                "--write is for a file: what standard input has is printed");
  }
  const std::string given = read_text(options.path);
  const std::string text = print(parse(given, options.path));
  const bool differs = text != given;
  if (options.write && differs) write_text(options.path, text);
  if (tool.json) {
    tool.print({{"file", options.path}, {"differs", differs}, {"text", text}});
  } else if (!options.write) {
    fmt::print("{}", text);
  }
}

}  // namespace

void add_fmt(CLI::App& app, Tool& tool) {
  Command command(app, tool, "fmt", "The canonical form of a program's text");
  auto options = std::make_shared<Options>();
  command.option("FILE", options->path, "The text of a program; - is standard input").required();
  command.flag("--write", options->write, "Write it into the file instead of printing it");
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
