#include "python.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>

#include <filesystem>
#include <memory>
#include <string>

namespace tenon::tool {
namespace {

struct Options {
  std::string source, target;
};

void run(Tool& tool, const Options& options) {
  if (std::filesystem::path(options.source).extension() != ".tenon") {
    throw Error(Errc::unsupported, options.source, "a program's text (.tenon) is exported");
  }
  tool.status = run_python("tenon.onnx", {options.source, "--output", options.target}, tool.json);
  if (tool.json && tool.status == 0) tool.print({{"written", options.target}});
}

}  // namespace

void add_export(CLI::App& app, Tool& tool) {
  Command command(app, tool, "export",
                  "A model of ONNX of a program's text; by the Python package");
  auto options = std::make_shared<Options>();
  command.option("PROGRAM", options->source, "A program's text; its weights are beside it")
      .required();
  command.option("-o,--output", options->target, "model.onnx").required();
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
