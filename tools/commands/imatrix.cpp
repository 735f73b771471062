#include "interrupts.hpp"
#include "terminal.hpp"
#include "tool.hpp"

#include <tenon/io/file.hpp>
#include <tenon/io/importance.hpp>
#include <tenon/models/importance.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string text, out = "imatrix.gguf";
  std::vector<std::string> more;
  std::int64_t chunk = 512, chunks = 0;
};

/// A line on stderr, on a terminal only.
std::function<void(std::int64_t, std::int64_t)> progress_line() {
  if (!is_terminal(STDERR_FILENO)) return {};
  return [](std::int64_t done, std::int64_t pieces) {
    fmt::print(stderr, "\r\033[Kpiece {} of {}", done + 1, pieces);
    std::fflush(stderr);
  };
}

void run(const Tool& tool, const Options& options) {
  Interrupts interrupts;
  models::ImportanceOptions collect{.chunk = options.chunk,
                                    .max_chunks = options.chunks,
                                    .device = tool.open_device(),
                                    .cpu_fallback = tool.cpu_fallback,
                                    .backend = tool.backend(),
                                    .dataset = options.text,
                                    .progress = progress_line(),
                                    .interrupt = {.cancel = interrupts.begin()}};
  const io::File file = io::open(tool.model, {.access = io::Access::guarded});
  std::vector<std::filesystem::path> read{options.text};
  for (const auto& shard : file.shards()) read.push_back(shard->path());
  require_other_file(options.out, read);
  require_writable(options.out);
  io::ImportanceMatrix matrix;
  for (const std::string& path : options.more) matrix.add(io::load_importance(path));
  const auto start = std::chrono::steady_clock::now();
  const auto clear = [&] {
    if (collect.progress) fmt::print(stderr, "\r\033[K");
  };
  try {
    matrix.add(models::collect_importance(file, read_text(options.text), collect));
  } catch (...) {
    clear();
    throw;
  }
  clear();
  const double time = seconds(std::chrono::steady_clock::now() - start);
  io::save_importance(options.out, matrix);
  if (tool.json) {
    tool.print({{"out", options.out},
                {"tensors", matrix.tensors.size()},
                {"chunks", matrix.chunk_count},
                {"seconds", time}});
    return;
  }
  fmt::print("{}: {} tensors, {} pieces of {} tokens, {:.1f} s\n", options.out,
             matrix.tensors.size(), matrix.chunk_count, matrix.chunk_size, time);
}

}  // namespace

void add_imatrix(CLI::App& app, Tool& tool) {
  Command command(app, tool, "imatrix",
                  "How much each column of a model's weights matters, for quantize --imatrix");
  auto options = std::make_shared<Options>();
  add_model(command);
  command.option("-f,--file", options->text, "A text that the model reads; - for standard input")
      .required();
  command.option("-o,--out", options->out, "The file to write");
  command.option("--chunk", options->chunk, "Tokens that are read at once").range(2, 1 << 20);
  command
      .option("--chunks", options->chunks, "Pieces of so many tokens at most; 0: all of the text")
      .not_negative();
  command
      .option("--in-file", options->more,
              "A file of a former run, to which this one is added; may be repeated")
      .one_value_each();
  add_compute(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
