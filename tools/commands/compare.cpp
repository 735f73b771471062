#include "loaded_program.hpp"
#include "tool.hpp"

#include <tenon/compare.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/session.hpp>
#include <tenon/weights_view.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string recorded;
  std::string save;
  std::string weights;
  std::vector<std::string> names;
  double relative = 1e-3, absolute = 0;
  std::int64_t rows = 40;
};

/// All positions of token ids at once, without a cache: i32[1, S] -> logits.
Program decoder_program(const io::File& file) {
  const models::DecoderConfig config = models::DecoderConfig::from(file);
  const WeightsView view = file.view();
  const auto decoder = models::Decoder<>::init(view, config);
  Graph graph;
  const Graph::Recording recording(graph);
  return graph.program(
      std::vector{decoder.scores(graph.input("ids", Shape({1, symbol("S")}, i32)))});
}

/// Hidden states of the recorded sizes: ids i32[B, S], mask f32[B, S].
Program encoder_program(const io::File& file, const io::File& recorded) {
  const WeightsView view = file.view();
  const auto encoder = models::Encoder<>::init(view, models::EncoderConfig::from(file));
  const Shape ids = recorded.at("ids").shape;
  Graph graph;
  const Graph::Recording recording(graph);
  return graph.program(std::vector{encoder.hidden(graph.input("ids", ids.with_dtype(i32)),
                                                  graph.input("mask", ids.with_dtype(f32)))});
}

LoadedProgram open_model(const Tool& tool, const Options& options, const DevicePtr& device,
                         const io::File& recorded) {
  if (is_network(tool.model) || is_text(tool.model)) {
    return load_program(tool.model, options.weights, device);
  }
  io::File file = io::open(tool.model, {.access = io::Access::guarded});
  if (!options.weights.empty()) {
    throw Error(Errc::bad_argument, "--weights", "is for texts: a model has its own");
  }
  Program program =
      file.format() == io::Format::gguf ? decoder_program(file) : encoder_program(file, recorded);
  std::vector<std::string> names;
  for (const io::TensorEntry& entry : file.tensors()) names.push_back(entry.name);
  auto weights = io::load_buffers(file, names, device);
  return {std::move(program), {}, std::move(weights), std::move(file)};
}

void save(const Options& options, Session session, const std::vector<Buffer>& inputs) {
  const Program& program = session.program();
  std::vector<io::NamedTensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tensors.push_back({program.main().values[i].name, inputs[i].to_host()});
  }
  for (auto& [name, array] : record_activations(session.fork(), inputs, options.names)) {
    tensors.push_back({name, std::move(array)});
  }
  io::save_safetensors(options.save, tensors);
}

Json to_json(const Comparison& comparison) {
  Json values = Json::array();
  for (const ValueDifference& one : comparison.values) {
    const Difference& d = one.difference;
    values.push_back({{"name", one.name},
                      {"value", one.value},
                      {"op", one.op},
                      {"elements", d.elements},
                      {"max", d.max},
                      {"mean", d.mean},
                      {"p50", d.p50},
                      {"p90", d.p90},
                      {"p99", d.p99},
                      {"largest", d.scale},
                      {"within", one.is_within}});
  }
  const ValueDifference* const first = comparison.first();
  return {{"first", first == nullptr ? Json() : Json(first->name)},
          {"values", values},
          {"unknown", comparison.unknown}};
}

void run(Tool& tool, const Options& options) {
  const DevicePtr device = tool.open_device();
  const io::File file = io::open(options.recorded);
  const LoadedProgram model = open_model(tool, options, device, file);
  RecordedValues recorded;
  const std::vector<Buffer> inputs = program_inputs(model.program, file, device, recorded);
  const CompileOptions on =
      detail::on_device(device, {.backend = tool.backend(), .cpu_fallback = tool.cpu_fallback});
  Session session(model.program,
                  {.backends = on.backends, .results_on_device = on.results_on_device});
  session.bind(std::make_shared<const WeightSet>(model.weights));
  if (!options.save.empty()) {
    save(options, std::move(session), inputs);
    if (model.file) model.file->check_pages();
    if (tool.json) tool.print({{"saved", options.save}});
    return;
  }
  const Comparison comparison = compare_activations(std::move(session), inputs, recorded,
                                                    {options.absolute, options.relative});
  if (model.file) model.file->check_pages();
  const ValueDifference* const first = comparison.first();
  if (first != nullptr) tool.status = differs_status;
  if (tool.json) {
    tool.print(to_json(comparison));
    return;
  }
  fmt::print("{}", comparison.table(static_cast<std::size_t>(options.rows)));
  if (!comparison.unknown.empty()) {
    fmt::print("no step computes {}\n", fmt::join(comparison.unknown, ", "));
  }
  if (first == nullptr) {
    fmt::print("all {} values are within the tolerance\n", comparison.values.size());
  } else {
    fmt::print("the first that differs: {} ({})\n", first->name, first->op);
  }
}

}  // namespace

void add_compare(CLI::App& app, Tool& tool) {
  Command command(
      app, tool, "compare",
      "Whether a model computes what was recorded: per value the largest difference, the mean, "
      "percentiles; and the first value that differs (exit status 7)");
  auto options = std::make_shared<Options>();
  command
      .option("MODEL", tool.model,
              "A model file (.gguf, .safetensors), a model's folder, a network's JSON or a "
              "program's text")
      .required()
      .not_empty();
  command
      .option(
          "RECORDED", options->recorded,
          "A safetensors file: the inputs by their names (ids; mask, of an encoder; those "
          "of a network or a text), and "
          "activations by the names of the program's values, or as layer[3]: what layer 3 of the "
          "stack `layer` returns")
      .required();
  command.option(
      "--save", options->save,
      "Write the activations of this model to a file, with the inputs, instead of comparing");
  add_weights(command, options->weights);
  command.option("--name", options->names, "With --save: only these values").one_value_each();
  command.option("--relative", options->relative,
                 "Tolerance, relative to the largest number of a recorded array");
  command.option("--absolute", options->absolute, "Tolerance to add to that");
  command.option("--rows", options->rows, "Rows of the table at most").range(1, 1'000'000);
  add_compute(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
