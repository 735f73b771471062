#include "program_diff.hpp"
#include "tool.hpp"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string before, after;
};

void run(Tool& tool, const Options& options) {
  const std::vector<std::string> lines =
      differences(read_program(options.before), read_program(options.after));
  if (!lines.empty()) tool.status = differs_status;
  if (tool.json) {
    tool.print({{"equal", lines.empty()}, {"lines", lines}});
    return;
  }
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

}  // namespace

void add_diff(CLI::App& app, Tool& tool) {
  Command command(app, tool, "diff",
                  "Where two programs differ in structure, not in names (exit status 7)");
  auto options = std::make_shared<Options>();
  command.option("BEFORE", options->before, "A program's text, or a network's JSON").required();
  command.option("AFTER", options->after, "Another one").required();
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
