#include "interrupts.hpp"
#include "terminal.hpp"
#include "tool.hpp"

#include <tenon/io/importance.hpp>
#include <tenon/io/quantize.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string in, out, type, importance;
  int threads = 0;
  bool requantize = false, pure = false;
};

/// A line on stderr, on a terminal only.
std::function<void(const io::QuantizeProgress&)> progress_line() {
  if (!is_terminal(STDERR_FILENO)) return {};
  return [](const io::QuantizeProgress& at) {
    const auto percent = 100 * at.done_bytes / std::max<std::uint64_t>(at.total_bytes, 1);
    fmt::print(stderr, "\r\033[Kquantising {:3}% {} {} -> {}", percent, at.tensor, name(at.from),
               name(at.to));
    std::fflush(stderr);
  };
}

void run(const Tool& tool, const Options& options) {
  Interrupts interrupts;
  io::QuantizeOptions quantize{.threads = options.threads,
                               .allow_requantize = options.requantize,
                               .pure = options.pure,
                               .progress = progress_line(),
                               .interrupt = {.cancel = interrupts.begin()}};
  std::optional<io::ImportanceMatrix> importance;
  if (!options.importance.empty()) {
    importance = io::load_importance(options.importance);
    quantize.importance = &*importance;
    quantize.importance_file = options.importance;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto clear = [&] {
    if (quantize.progress) fmt::print(stderr, "\r\033[K");
  };
  io::QuantizeResult result;
  try {
    result = io::quantize_gguf(options.in, options.out, options.type, quantize);
  } catch (...) {
    clear();
    throw;
  }
  clear();
  const double time = seconds(std::chrono::steady_clock::now() - start);
  const double bits = result.elements == 0 ? 0
                                           : 8.0 * static_cast<double>(result.bytes_after) /
                                                 static_cast<double>(result.elements);
  if (tool.json) {
    tool.print({{"out", options.out},
                {"type", options.type},
                {"tensors", result.tensors},
                {"converted", result.converted},
                {"fallbacks", result.fallbacks},
                {"wide_fallbacks", result.wide_fallbacks},
                {"weighed", result.weighed},
                {"bytes_before", result.bytes_before},
                {"bytes_after", result.bytes_after},
                {"bits_per_weight", bits},
                {"seconds", time}});
    return;
  }
  fmt::print(
      "{}: {} of {} tensors converted, {:.1f} MB -> {:.1f} MB, {:.2f} bits per weight, {:.1f} s\n",
      options.out, result.converted, result.tensors, static_cast<double>(result.bytes_before) / 1e6,
      static_cast<double>(result.bytes_after) / 1e6, bits, time);
  if (importance) {
    fmt::print("{} tensors weighed by the importance of their columns, {} without any\n",
               result.weighed, result.converted - result.weighed);
  }
  if (result.fallbacks > 0) {
    fmt::print("{} tensors have rows that do not suit the type and got another\n",
               result.fallbacks);
  }
  if (result.wide_fallbacks > 0) {
    fmt::print("{} of these are bf16, since f16 does not hold their numbers\n",
               result.wide_fallbacks);
  }
}

}  // namespace

void add_quantize(CLI::App& app, Tool& tool) {
  Command command(app, tool, "quantize", "Write a GGUF file again with weights in other types");
  auto options = std::make_shared<Options>();
  command.option("IN", options->in, "The GGUF file to read").required();
  command.option("OUT", options->out, "The GGUF file to write; appears when it is complete")
      .required();
  command
      .option("--type", options->type,
              fmt::format("One of {}", fmt::join(io::quantize_types(), ", ")))
      .required();
  command.option(
      "--imatrix", options->importance,
      "A file of `tenon imatrix` or llama-imatrix: how much the columns of weights matter");
  command.flag("--pure", options->pure, "The type's main element type for all that is quantised");
  command.flag("--requantize", options->requantize,
               "Also convert weights that are quantised already");
  command.option("-t,--threads", options->threads, "Threads; 0: one per processor").not_negative();
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
