// What the commands share: options that several take, and how results and errors are printed.
#pragma once

#include "command.hpp"

#include <tenon/backend.hpp>
#include <tenon/compare.hpp>
#include <tenon/device.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/sampling.hpp>
#include <tenon/program.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tenon::tool {

using Json = nlohmann::ordered_json;

/// Exit status of commands that compare, for things that differ; none of exit_status().
constexpr int differs_status = 7;

/// One run of the program. A command's subcommand callback sets `run`; main calls it.
struct Tool {
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool json = false;
  std::function<void()> run;
  int status = 0;  ///< exit status of the program when `run` returns

  // Options of commands that compute.
  std::string model;
  std::string device = "cpu:";
  bool cpu_fallback = false;
  int threads = 0;
  std::string precision = "fast";
  std::int64_t context = 0;
  std::string cache = "auto";
  std::string packed;
  std::vector<std::string> lora;  ///< PATH or PATH:SCALE

  /// Prints the one JSON object of a `--json` run.
  void print(const Json& object) const;
  BackendOptions backend() const;
  DevicePtr open_device() const;
  /// `stop` ends loading.
  models::LanguageModelOptions language_model(std::stop_token stop = {}) const;
  /// The options above for the backend.
  Json options(const models::LanguageModel& loaded) const;
  /// Throws Errc::bad_argument, naming the --ctx that is needed, where `--ctx` is smaller than this
  /// number of tokens. To be called before a model is loaded.
  void require_context(std::string_view command, std::int64_t tokens) const;
};

/// Sampling options given on the command line.
struct SamplingOptions {
  // One for each row of the tables of tool.cpp.
  std::vector<std::optional<double>> numbers;
  std::vector<std::optional<std::int64_t>> counts;
  std::optional<std::int64_t> mirostat;
  bool temperature_last = false;
  std::vector<std::string> dry_breakers;  ///< texts with escapes; "none": no one
  std::vector<std::string> logit_bias;    ///< each TOKEN=BIAS
  std::int64_t seed = 0;                  ///< -1: another one in each run

  /// Options that were not given are as the model recommends. Errc::bad_argument for an invalid
  /// bias.
  models::SamplingDefaults over(models::SamplingDefaults defaults) const;
  /// What DRY's breakers are with this vocabulary.
  std::vector<std::vector<std::int32_t>> breakers(const text::Tokenizer& tokenizer) const;
};

/// Sets the options of a sampler that are numbers where `number` or `count` gives one for their names in JSON
/// ("temperature", "top_k", ...).
void read_sampler(nn::SamplerOptions& sampler,
                  const std::function<std::optional<double>(std::string_view)>& number,
                  const std::function<std::optional<std::int64_t>(std::string_view)>& count);

/// Where the grammar of an answer is given; at most one of them.
struct GrammarOptions {
  std::string grammar, grammar_file, json_schema, json_schema_file;

  /// Nothing without any. Errors: those of read_text() and of making a text::Grammar.
  std::optional<text::Grammar> read() const;
};

/// What generate and chat share: options, and the output of results.
struct GenerationOptions {
  models::GenerateOptions generate{};
  SamplingOptions sampling{};
  GrammarOptions grammar{};

  /// `generate` with the sampling options of the command line and the model; the source of the
  /// recommendation goes to `source`.
  models::GenerateOptions for_model(const models::LanguageModel& model, std::string& source) const;
};
Json described(const models::GenerateOptions& options, const std::string& source);
Json load_times(const models::LoadTimes& times);
/// Numbers of tokens, times, and why it ended.
Json described(const models::Generated& result, const text::Tokenizer& tokenizer);
/// Token ids that are the same in every run.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary);
std::string_view stopped_by(models::Generated::End end);

/// Adds the option or argument of this name to a command.
void add_model(Command& command);
void add_json(Command& command);
void add_compute(Command& command);  ///< --device, --cpu-fallback, -t, --precision
void add_context(Command& command);  ///< --ctx, --cache, --packed
void add_generation(Command& command, GenerationOptions& options);

/// The bytes of a file, or of standard input for "-". Errc::not_found, Errc::io_error, and
/// Errc::limit_exceeded above 1 GiB.
std::string read_text(const std::string& path);
/// Writes or replaces a file, which is never half written; a link stays a link. Errc::not_regular_file for
/// what is none (a pipe, a device), Errc::io_error.
void write_text(const std::filesystem::path& path, const std::string& text);
/// The errors that writing the file would begin with: for files that are written after a long time.
void require_writable(const std::filesystem::path& path);
/// Errc::bad_argument where the file to write is one of those that are read.
void require_other_file(const std::filesystem::path& out,
                        std::span<const std::filesystem::path> read);

/// The inputs of a program from a file that has them under the names of its parameters, with its
/// element types; what else the file has goes to `rest`. Errc::bad_reference for a missing one.
std::vector<Buffer> program_inputs(const Program& program, const io::File& file,
                                   const DevicePtr& device, RecordedValues& rest);

/// Whether a file is a network's JSON (io::load_network).
bool is_network(const std::string& path);
/// Whether a file begins as the text of a program.
bool is_text(const std::string& path);
/// The program of a text, "-" for standard input, or of a network's JSON.
Program read_program(const std::string& path);

double seconds(std::chrono::nanoseconds time);
std::int64_t peak_bytes();  ///< of this process's memory
double median(std::vector<double> values);

// One per command, in commands/.
#define TENON_COMMAND(name) void add_##name(CLI::App& app, Tool& tool);
#include "commands.def"
#undef TENON_COMMAND

}  // namespace tenon::tool
