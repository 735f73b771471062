#include "loaded_program.hpp"
#include "stepper.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>
#include <tenon/log.hpp>
#include <tenon/object.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
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
  Stepper::Options steps;
};

void run(const Tool& tool, const Options& options) {
  if (options.steps.asks && tool.json) {
    throw Error(Errc::bad_argument, "run", "--step asks for commands, --json does not");
  }
  const DevicePtr device = tool.open_device();
  const LoadedProgram loaded = load_program(tool.model, options.weights, device);
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
  std::optional<Stepper> stepper;
  if (options.steps.shows()) {
    stepper.emplace(loaded.program, loaded.text, loaded.weights, options.steps, tool.json);
    stepper->watch(session, inputs);
  }
  std::vector<Buffer> results;
  try {
    results = session.forward(inputs);
  } catch (const Stepper::Quit&) {
    return;
  }
  if (loaded.file) loaded.file->check_pages();
  for (const std::string& one : stepper ? stepper->unreached() : std::vector<std::string>()) {
    log(LogLevel::warning,
        fmt::format("--break {}: no step computes it by itself: it is a view, a constant, in a "
                    "loop that did not run, or needed for no result",
                    one));
  }

  const Function& main = loaded.program.main();
  std::vector<io::NamedTensor> named;
  for (std::size_t i = 0; i < results.size(); ++i) {
    named.push_back({main.values[main.results[i]].name, results[i].to_host()});
  }
  if (!options.save.empty()) {
    std::vector<io::NamedTensor> saved;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (std::ranges::count(std::span(main.results).first(i), main.results[i]) > 0) {
        continue;  // returned twice
      }
      saved.push_back(named[i]);
      if (is_object(results[i].shape().dtype())) saved.back().data = save_object(results[i]);
    }
    io::save_safetensors(options.save, saved);
  }
  Json json = Json::array();
  for (const io::NamedTensor& result : named) {
    json.push_back({{"name", result.name}, {"type", to_string(result.data.shape())}});
    if (!tool.json) {
      fmt::print("{} = {}\n", result.name, to_string(result.data));
    }
  }
  if (tool.json) {
    Json facts{{"results", json}, {"seconds", seconds(session.total_time())}};
    if (stepper) facts["steps"] = stepper->shown();
    tool.print(facts);
  }
}

}  // namespace

void add_run(CLI::App& app, Tool& tool) {
  Command command(app, tool, "run", "Run a program's text, or a network that graph --save wrote");
  auto options = std::make_shared<Options>();
  command.option("PROGRAM", tool.model, "A program's text, or a network's JSON").required();
  command.option("--inputs", options->inputs,
                 "A safetensors file with the program's inputs, by the names of its parameters");
  add_weights(command, options->weights);
  command.option("--save", options->save, "Write the results to a safetensors file");
  command.flag("--steps", options->steps.every, "Print what each step computes, step by step");
  command
      .option("--break", options->steps.breaks,
              "Print operands and result of the step at a line of the text, or that computes a "
              "value, each time that it runs")
      .one_value_each();
  command.flag(
      "--step", options->steps.asks,
      "Stop at the first step, or at breakpoints, and read commands: s (to the next step), "
      "c (to the next breakpoint), p NAME (print a value), q");
  add_compute(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
