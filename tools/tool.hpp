// What the commands share: options that several take, and how results and errors are printed.
#pragma once

#include "command.hpp"

#include <tenon/backend.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/language_model.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tenon::tool {

using Json = nlohmann::ordered_json;

/// One run of the program. A command's subcommand callback sets `run`; main calls it.
struct Tool {
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool json = false;
  std::function<void()> run;

  // Options of commands that compute.
  std::string model;
  int threads = 0;
  std::string precision = "fast";
  std::int64_t context = 0;
  std::string cache = "auto";
  std::string packed;

  /// Prints the one JSON object of a `--json` run.
  void print(const Json& object) const;
  BackendOptions backend() const;
  models::LanguageModelOptions language_model() const;
  /// A bar on stderr while a model loads, on a terminal only.
  io::LoadOptions progress_bar() const;
};

/// Adds the option or argument of this name to a command.
void add_model(Command& command);
void add_json(Command& command);
void add_compute(Command& command);  ///< -t, --precision
void add_context(Command& command);  ///< --ctx, --cache, --packed
void add_sampling(Command& command, nn::SamplerOptions& sampler);

/// The bytes of a file, or of standard input for "-". Errc::not_found, Errc::io_error, and
/// Errc::limit_exceeded above 1 GiB.
std::string read_text(const std::string& path);

double seconds(std::chrono::nanoseconds time);
std::int64_t peak_bytes();  ///< of this process's memory
double median(std::vector<double> values);

// One per command, in commands/.
void add_info(CLI::App& app, Tool& tool);
void add_generate(CLI::App& app, Tool& tool);
void add_chat(CLI::App& app, Tool& tool);
void add_tokenize(CLI::App& app, Tool& tool);
void add_score(CLI::App& app, Tool& tool);
void add_embed(CLI::App& app, Tool& tool);
void add_bench(CLI::App& app, Tool& tool);
void add_devices(CLI::App& app, Tool& tool);
void add_graph(CLI::App& app, Tool& tool);

}  // namespace tenon::tool
