#include "python.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::tool {
namespace {

struct Options {
  std::string source, target;
  std::vector<std::string> shapes;
};

void run(Tool& tool, const Options& options) {
  const std::string kind = std::filesystem::path(options.source).extension().string();
  const bool is_torch = kind == ".pt2";
  if (!is_torch && kind != ".onnx") {
    throw Error(
        Errc::unsupported, options.source,
        "models of ONNX (.onnx) and programs that torch.export has saved (.pt2) are imported; "
        "GGUF and safetensors files are read as they are");
  }
  std::vector<std::string> arguments = {options.source};
  const std::string target =
      options.target.empty()
          ? std::filesystem::path(options.source).replace_extension(".tenon").string()
          : options.target;
  arguments.insert(arguments.end(), {"--output", target});
  for (const std::string& shape : options.shapes)
    arguments.insert(arguments.end(), {"--shape", shape});
  tool.status =
      run_python(is_torch ? "tenon.torch" : "tenon.onnx", std::move(arguments), tool.json);
  if (tool.json && tool.status == 0) tool.print({{"written", target}});
}

}  // namespace

void add_import(CLI::App& app, Tool& tool) {
  Command command(app, tool, "import",
                  "A program's text, with its weights beside it, of a model of ONNX or PyTorch; by "
                  "the Python package");
  auto options = std::make_shared<Options>();
  command.option("MODEL", options->source, "model.onnx, or model.pt2 of torch.export").required();
  command.option("-o,--output", options->target,
                 "model.tenon; weights go to model.safetensors. Without it, beside the model");
  command
      .option("--shape", options->shapes,
              "A named size, or an input's sizes: batch=4, x=1,3,224,224")
      .one_value_each();
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
