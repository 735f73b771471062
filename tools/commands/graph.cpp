#include "encoders.hpp"
#include "tool.hpp"

#include <tenon/draw.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/network.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  bool dot = false;
  bool svg = false;
  bool text = false;
  std::string save;  // JSON
  std::string raw;
};

struct Described {
  io::Network network;             // without the model's weights, unless it is a network's file
  std::optional<PlanReport> plan;  // none for sizes that are symbolic
};

/// The plan for the sizes that the program states, of its constants too; only where it is shown.
std::optional<PlanReport> plan_of(const Program& program, const Tool& tool) {
  if (!tool.json) return std::nullopt;
  for (const Function& function : program.functions) {
    for (const Instruction& one : function.body) {
      if (one.kind != Instruction::Kind::constant) continue;
      if (!function.values[one.result].shape) return std::nullopt;
    }
  }
  std::vector<Shape> inputs;
  const Function& main = program.main();
  for (ValueId i = 0; i < main.parameter_count; ++i) {
    const std::optional<Shape>& shape = main.values[i].shape;
    if (!shape || !shape->is_static()) return std::nullopt;
    inputs.push_back(*shape);
  }
  const CompileOptions options = detail::on_device(
      tool.open_device(), {.backend = tool.backend(), .cpu_fallback = tool.cpu_fallback});
  Session session(program,
                  {.backends = options.backends, .results_on_device = options.results_on_device});
  return session.report(inputs);
}

Described describe(const Tool& tool) {
  if (is_network(tool.model)) {
    Described described{io::load_network(tool.model), {}};
    described.plan = plan_of(described.network.program, tool);
    return described;
  }
  if (is_text(tool.model)) {
    Described described{{parse(read_text(tool.model), tool.model), {}}, {}};
    described.plan = plan_of(described.network.program, tool);
    return described;
  }
  if (!is_encoder(tool.model)) {
    auto options = tool.language_model();
    options.lazy = true;
    const auto model = models::LanguageModel::load(tool.model, options);
    return {{model.program(), {}}, model.plan()};
  }
  const auto encoder = models::SentenceEncoder::load(
      tool.model,
      {.device = tool.open_device(), .cpu_fallback = tool.cpu_fallback, .backend = tool.backend()});
  return {{encoder.program(), {}}, encoder.plan()};
}

/// The program with the model's tensors as two files.
void save(const Tool& tool, const Options& options) {
  if (is_text(tool.model)) {
    throw Error(Errc::unsupported, tool.model,
                "a program's text has no tensors: --save writes models and networks");
  }
  io::Network net = describe(tool).network;
  std::optional<io::File> file;  // the tensors are its pages
  if (!is_network(tool.model)) {
    file = io::open(tool.model, {.access = io::Access::guarded});
    for (const io::TensorEntry& tensor : file->tensors()) {
      net.weights.emplace(tensor.name, tensor.data());
    }
  }
  const std::filesystem::path json = options.save;
  std::filesystem::path raw = options.raw;
  if (raw.empty()) raw = std::filesystem::path(json).replace_extension(".raw");
  io::save_network(net, json, raw, [&] {
    if (file) file->check_pages();
  });
  const std::size_t constants = net.weights.size() + net.program.folded.size();
  const std::uintmax_t bytes = std::filesystem::file_size(raw);
  if (tool.json) {
    tool.print({{"form", "network"},
                {"json", json.string()},
                {"raw", raw.string()},
                {"constants", constants},
                {"raw_bytes", bytes}});
    return;
  }
  fmt::print("{}, and {} constants in {}, {} bytes\n", json.string(), constants, raw.string(),
             bytes);
}

void run(const Tool& tool, const Options& options) {
  if (!options.save.empty()) return save(tool, options);
  const auto [network, plan] = describe(tool);
  const Program& program = network.program;
  const std::string drawing = options.dot   ? to_dot(program)
                              : options.svg ? to_svg(program)
                                            : print(program);
  if (!tool.json) {
    fmt::print("{}", drawing);
    return;
  }
  Json json{{"form", options.dot ? "dot" : options.svg ? "svg" : "text"}, {"graph", drawing}};
  if (plan) {
    Json& parts = json["parts"] = Json::array();
    for (const auto& part : plan->parts)
      parts.push_back({{"backend", part.backend}, {"values", part.values}});
    json["planned_bytes"] = plan->slab_bytes;
    json["activation_bytes"] = plan->activation_bytes;
    json["copies"] = plan->copies;
  }
  tool.print(json);
}

}  // namespace

void add_graph(CLI::App& app, Tool& tool) {
  Command command(app, tool, "graph",
                  "The program that one step of a model, a network that --save wrote, or a "
                  "program's text, runs");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option dot = command.flag("--dot", options->dot, "As a Graphviz digraph");
  Option svg = command.flag("--svg", options->svg, "As a picture");
  Option text = command.flag("--text", options->text, "As program text (the default)");
  dot.excludes(svg);
  dot.excludes(text);
  svg.excludes(text);
  Option save = command.option("--save", options->save,
                               "Write program and tensors as a network: this file of JSON, and");
  save.excludes(dot).excludes(svg).excludes(text);
  command.option("--raw", options->raw, "this one of bytes (default: the same name, .raw)")
      .needs(save);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
