#include "tool.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tenon::tool {

void Tool::print(const Json& object) const {
  // Texts may end inside a character or hold any bytes: those become U+FFFD.
  fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
}

BackendOptions Tool::backend() const { return {.threads = threads, .exact = precision == "exact"}; }

models::LanguageModelOptions Tool::language_model() const {
  models::LanguageModelOptions options;
  options.context = context;
  if (cache != "auto") options.cache = find_dtype(cache);
  options.backend = backend();
  options.load = progress_bar();
  options.packed_folder = packed;
  return options;
}

io::LoadOptions Tool::progress_bar() const {
  io::LoadOptions options;
  if (isatty(STDERR_FILENO) == 0) return options;
  options.progress = [last = -1](const io::LoadProgress& progress) mutable {
    const auto percent = static_cast<int>(100 * progress.done_bytes /
                                          std::max<std::uint64_t>(progress.total_bytes, 1));
    if (percent == last) return;
    last = percent;
    fmt::print(stderr, "\rloading {:3}% [{:<25}]{}", percent,
               std::string(static_cast<std::size_t>(percent / 4), '='),
               percent == 100 ? "\r\033[K" : "");
    std::fflush(stderr);
  };
  return options;
}

void add_model(Command& command) {
  command
      .option("MODEL", command.tool().model,
              "A model file (.gguf, .safetensors) or a model's folder")
      .required()
      .not_empty();
}

void add_json(Command& command) {
  command.flag("--json", command.tool().json,
               "Print one JSON object on standard output and nothing else");
}

void add_compute(Command& command) {
  command.option("-t,--threads", command.tool().threads, "Threads; 0: one per CPU").range(0, 256);
  command
      .option("--precision", command.tool().precision,
              "fast, or exact: activations and cache in f32")
      .one_of({"fast", "exact"});
}

void add_context(Command& command) {
  command
      .option("--ctx", command.tool().context,
              "Positions the context holds; 0: the model's own, at most 4096")
      .range(0, 1 << 24);
  command
      .option("--cache", command.tool().cache,
              "Type of the keys and values it holds; auto: f16, with --precision exact f32")
      .one_of({"auto", "f32", "f16", "q8_0"});
  command.option("--packed", command.tool().packed,
                 "A folder to keep packed weights in: the next start maps them");
}

void add_sampling(Command& command, nn::SamplerOptions& sampler) {
  command.option("--temp", sampler.temperature, "Temperature; 0: always the most likely token");
  command.option("--top-k", sampler.top_k, "Draw from the K most likely tokens; 0: all");
  command.option("--top-p", sampler.top_p, "Draw from the tokens that make up this probability");
  command.option("--min-p", sampler.min_p, "Drop tokens less likely than this times the likeliest");
  command.option("--repeat-penalty", sampler.repetition_penalty,
                 "Above 1: recent tokens become less likely");
  command.option("--seed", sampler.seed, "Seed of the draws").not_negative();
}

std::string read_text(const std::string& path) {
  constexpr std::size_t limit = std::size_t{1} << 30;
  if (path.empty())
    throw Error(Errc::bad_argument, "command line", "the path of a file to read is empty");
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  } else {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error(Errc::not_found, path, std::strerror(errno));
    text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (in.bad()) throw Error(Errc::io_error, path, "cannot be read");
  }
  if (text.size() > limit) throw Error(Errc::limit_exceeded, path, "more than 1 GiB of text");
  return text;
}

double seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; }

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace tenon::tool
