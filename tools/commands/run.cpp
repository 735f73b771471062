#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/network.hpp>
#include <tenon/io/save.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string inputs;
  std::string weights;
  std::string save;
  bool steps = false;
};

struct Loaded {
  Program program;
  std::map<std::string, Buffer> weights;
  std::optional<io::File> file;  // the weights are its pages
};

Loaded load(const Tool& tool, const Options& options, const DevicePtr& device) {
  if (is_network(tool.model)) {
    io::Network network = io::load_network(tool.model);
    Loaded loaded{std::move(network.program), {}, {}};
    for (const auto& [name, weight] : network.weights) {
      loaded.weights.emplace(name, weight.to_device(device));
    }
    return loaded;
  }
  Loaded loaded{parse(read_text(tool.model), tool.model), {}, {}};
  std::filesystem::path path = options.weights;
  if (path.empty() && !loaded.program.weights_file.empty()) {
    path = std::filesystem::path(tool.model).parent_path() / loaded.program.weights_file;
  }
  if (path.empty()) return loaded;
  loaded.file = io::open(path, {.access = io::Access::guarded});
  std::vector<std::string> names;
  for (const io::TensorEntry& entry : loaded.file->tensors()) names.push_back(entry.name);
  loaded.weights = io::load_buffers(*loaded.file, names, device);
  return loaded;
}

/// Prints each step with the line of the text that it comes from.
void watch(Session& session) {
  session.set_merge(false);
  session.set_post_callback([](const StepEvent& event) {
    for (std::size_t i = 0; i < event.outputs.size(); ++i) {
      fmt::print("{} = {}: {}\n", event.values[i], event.op,
                 to_string(event.outputs[i].to_host(), 2));
    }
  });
}

void run(const Tool& tool, const Options& options) {
  const DevicePtr device = tool.open_device();
  const Loaded loaded = load(tool, options, device);
  std::vector<Buffer> inputs;
  if (!options.inputs.empty()) {
    RecordedValues rest;
    inputs = program_inputs(loaded.program, io::open(options.inputs), device, rest);
  } else if (loaded.program.main().parameter_count > 0) {
    throw Error(Errc::bad_argument, "run", "the program has inputs: give a file of them, --inputs");
  }
  const CompileOptions on =
      detail::on_device(device, {.backend = tool.backend(), .cpu_fallback = tool.cpu_fallback});
  Session session(loaded.program,
                  {.backends = on.backends, .results_on_device = on.results_on_device});
  session.bind(std::make_shared<const WeightSet>(loaded.weights));
  if (options.steps) watch(session);
  const std::vector<Buffer> results = session.forward(inputs);
  if (loaded.file) loaded.file->check_pages();

  const Function& main = loaded.program.main();
  std::vector<io::NamedTensor> named;
  for (std::size_t i = 0; i < results.size(); ++i) {
    named.push_back({main.values[main.results[i]].name, results[i].to_host()});
  }
  if (!options.save.empty()) io::save_safetensors(options.save, named);
  Json json = Json::array();
  for (const io::NamedTensor& result : named) {
    json.push_back({{"name", result.name}, {"type", to_string(result.data.shape())}});
    if (!tool.json) {
      fmt::print("{} = {}\n", result.name, to_string(result.data));
    }
  }
  if (tool.json) {
    tool.print({{"results", json}, {"seconds", seconds(session.total_time())}});
  }
}

}  // namespace

void add_run(CLI::App& app, Tool& tool) {
  Command command(app, tool, "run", "Run a program's text, or a network that graph --save wrote");
  auto options = std::make_shared<Options>();
  command.option("PROGRAM", tool.model, "A program's text, or a network's JSON").required();
  command.option("--inputs", options->inputs,
                 "A safetensors file with the program's inputs, by the names of its parameters");
  command.option(
      "--weights", options->weights,
      "The program's constants: a GGUF or safetensors file (default: the one that the text "
      "names, beside it)");
  command.option("--save", options->save, "Write the results to a safetensors file");
  command.flag("--steps", options->steps, "Print what each step computes, step by step");
  add_compute(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
