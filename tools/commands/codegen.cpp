#include "tool.hpp"

#include <tenon/codegen.hpp>
#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string path;
  std::string output;
  bool with_main = false;
  bool no_lines = false;
};

bool is_header(const std::filesystem::path& path) {
  return path.extension() == ".hpp" || path.extension() == ".h";
}

void run(const Tool& tool, const Options& options) {
  if (options.with_main && is_header(options.output)) {
    throw Error(Errc::bad_argument, options.output, "a header has no main()");
  }
  const Program program = read_program(options.path);
  CodegenOptions how;
  how.with_main = options.with_main;
  if (!options.no_lines && options.path != "-" && !is_network(options.path)) {
    how.text_file = options.path;
    how.output_file = options.output.empty() ? "model.cpp" : options.output;
  }
  const std::string code = codegen(program, how);
  if (!options.output.empty()) write_text(options.output, code);
  if (tool.json) {
    tool.print({{"file", options.path}, {"output", options.output}, {"code", code}});
  } else if (options.output.empty()) {
    fmt::print("{}", code);
  }
}

}  // namespace

void add_codegen(CLI::App& app, Tool& tool) {
  Command command(app, tool, "codegen", "C++ source that computes what a program's text says");
  auto options = std::make_shared<Options>();
  command
      .option("FILE", options->path,
              "The text of a program, - is standard input; or a network's JSON")
      .required();
  command.option("-o,--output", options->output, "Write the code to this file");
  command.flag("--main", options->with_main,
               "Add main(): inputs and weights come from files, results go to one");
  command.flag("--no-lines", options->no_lines, "Leave out #line, for code that is to be edited");
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
