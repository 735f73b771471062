#pragma once

#include "tool.hpp"

#include <tenon/buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/program.hpp>

#include <map>
#include <optional>
#include <string>

namespace tenon::tool {

/// A program and the values of its constants.
struct LoadedProgram {
  Program program;
  std::string text{};  ///< of the program, where it was read from one
  std::map<std::string, Buffer> weights{};
  std::optional<io::File> file{};  ///< the weights are its pages
};

/// The program of a network's JSON, or of a text with its constants from `weights`, a GGUF or safetensors file;
/// where that is empty, from the one that the text names, beside it. Errc::bad_argument where there is none and
/// the program has constants, and for `weights` beside a network.
LoadedProgram load_program(const std::string& path, const std::string& weights,
                           const DevicePtr& device);

/// --weights of a command that runs programs.
void add_weights(Command& command, std::string& weights);

}  // namespace tenon::tool
