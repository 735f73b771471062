#include "draw_program.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/network.hpp>
#include <tenon/models/encoder.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

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
  Program program;
  PlanReport plan;
};

Described describe(const Tool& tool) {
  if (io::open(tool.model).format() == io::Format::gguf) {
    const auto model = models::LanguageModel::load(tool.model, tool.language_model());
    return {model.program(), model.plan()};
  }
  const auto encoder = models::SentenceEncoder::load(tool.model, {.backend = tool.backend()});
  return {encoder.program(), encoder.plan()};
}

/// The program with the model's tensors as two files.
void save(const Tool& tool, const Options& options) {
  io::Network net{describe(tool).program, {}};
  const io::File file = io::open(tool.model);
  for (const io::TensorEntry& tensor : file.tensors()) {
    net.weights.emplace(tensor.name, tensor.data());
  }
  const std::filesystem::path json = options.save;
  std::filesystem::path raw = options.raw;
  if (raw.empty()) raw = std::filesystem::path(json).replace_extension(".raw");
  io::save_network(net, json, raw);
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
  const auto [program, plan] = describe(tool);
  const std::string drawing = options.dot   ? dot(program)
                              : options.svg ? svg(program)
                                            : print(program);
  if (!tool.json) {
    fmt::print("{}", drawing);
    return;
  }
  Json parts = Json::array();
  for (const auto& part : plan.parts)
    parts.push_back({{"backend", part.backend}, {"values", part.values}});
  tool.print({{"form", options.dot   ? "dot"
                       : options.svg ? "svg"
                                     : "text"},
              {"graph", drawing},
              {"planned_bytes", plan.slab_bytes},
              {"activation_bytes", plan.activation_bytes},
              {"parts", parts},
              {"copies", plan.copies}});
}

}  // namespace

void add_graph(CLI::App& app, Tool& tool) {
  Command command(app, tool, "graph", "The program that one step of a model runs");
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
