#include "loaded_program.hpp"

#include <tenon/error.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/network.hpp>
#include <tenon/session.hpp>

#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

void require_no_weights(const Program& program, const std::string& path) {
  for (const std::string& name : constant_names(program)) {
    if (program.folded.contains(name)) continue;
    throw Error(
        Errc::bad_argument, path,
        fmt::format("the program has weights ('{}'): give a file of them, --weights", name));
  }
}

}  // namespace

LoadedProgram load_program(const std::string& path, const std::string& weights,
                           const DevicePtr& device) {
  if (is_network(path)) {
    if (!weights.empty())
      throw Error(Errc::bad_argument, "--weights", "is for texts: a network has its own");
    io::Network network = io::load_network(path);
    LoadedProgram loaded{.program = std::move(network.program)};
    for (const auto& [name, weight] : network.weights) {
      loaded.weights.emplace(name, weight.to_device(device));
    }
    return loaded;
  }
  std::string text = read_text(path);
  LoadedProgram loaded{.program = parse(text, path), .text = std::move(text)};
  std::filesystem::path file = weights;
  if (file.empty() && !loaded.program.weights_file.empty()) {
    file = std::filesystem::path(path).parent_path() / loaded.program.weights_file;
  }
  if (file.empty()) {
    require_no_weights(loaded.program, path);
    return loaded;
  }
  loaded.file = io::open(file, {.access = io::Access::guarded});
  loaded.weights = io::load_buffers(*loaded.file, device);
  return loaded;
}

void add_weights(Command& command, std::string& weights) {
  command.option(
      "--weights", weights,
      "The program's constants: a GGUF or safetensors file (default: the one that the text "
      "names, beside it)");
}

}  // namespace tenon::tool
