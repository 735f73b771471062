#include "interrupts.hpp"
#include "tool.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/error.hpp>
#include <tenon/printable.hpp>
#include <tenon/profile.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::int64_t prefill = 512;
  std::int64_t decode = 32;
  std::int64_t rows = 30;
  std::string trace;
};

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json described(const Profile& profile, const Limits& limits) {
  Json lines = Json::array();
  for (const Profile::Line& line : profile.lines()) {
    const auto share = line.share_of(limits);
    lines.push_back({{"value", line.value},
                     {"op", line.op},
                     {"backend", line.backend},
                     {"shape", to_string(line.shape)},
                     {"count", line.count},
                     {"seconds", line.seconds()},
                     {"bytes", number_or_null(line.bytes)},
                     {"flops", number_or_null(line.flops)},
                     {"share_of_limit", share ? Json(*share) : Json(nullptr)}});
  }
  return {{"runs", profile.runs()}, {"seconds", seconds(profile.wall())}, {"lines", lines}};
}

void require_written(std::ofstream& out, const std::string& path) {
  if (!out.flush()) throw Error(Errc::io_error, path, std::strerror(errno));
}

void run(Tool& tool, const Options& options) {
  if (options.prefill == 0 && options.decode == 0) {
    throw Error(Errc::bad_argument, "command line",
                "nothing to profile: --prefill and --decode are 0");
  }
  std::ofstream trace_file;
  if (!options.trace.empty()) {  // before the work, which takes a while
    trace_file.open(options.trace, std::ios::binary | std::ios::trunc);
    require_written(trace_file, options.trace);
  }
  if (tool.context == 0) tool.context = options.prefill + options.decode + 1;
  Interrupts interrupts;
  const models::Interrupt interrupt{.cancel = interrupts.begin()};
  const auto model = models::LanguageModel::load(tool.model, tool.language_model(interrupt.cancel));
  const auto tokens =
      random_tokens(std::max(options.prefill, std::int64_t{1}), model.config().vocabulary);
  const auto prompt = std::span(tokens);
  const auto trace = options.trace.empty() ? nullptr : std::make_shared<Trace>();

  auto conversation = model.conversation();
  conversation.enable_time_profile(true);
  if (trace) conversation.set_trace(trace);
  // The first run of each makes its plan.
  if (options.prefill > 0) conversation.read(prompt, interrupt);
  if (options.decode > 0) conversation.read(prompt.first(1), interrupt);
  conversation.rewind(0);

  Profile prefill, decode;
  if (options.prefill > 0) {
    conversation.read(prompt, interrupt);
    prefill.add(conversation.step_times());
  }
  for (std::int64_t i = 0; i < options.decode; ++i) {
    conversation.read(prompt.first(1), interrupt);
    decode.add(conversation.step_times());
  }
  const Limits limits = cpu::measure_limits(tool.threads);
  interrupt.check("profile");
  if (trace) {
    trace->write(trace_file);
    require_written(trace_file, options.trace);
  }

  if (tool.json) {
    Json result = {{"limits",
                    {{"f32_ops", limits.f32_ops},
                     {"int8_ops", limits.int8_ops},
                     {"bf16_ops", limits.bf16_ops},
                     {"read_bytes", limits.read_bytes}}}};
    if (options.prefill > 0) result["prefill"] = described(prefill, limits);
    if (options.decode > 0) result["decode"] = described(decode, limits);
    tool.print(result);
    return;
  }
  const auto rows = static_cast<std::size_t>(options.rows);
  if (options.prefill > 0) {
    fmt::print("prefill, {} tokens\n{}\n", options.prefill,
               printable(prefill.table(limits, rows), LineBreaks::keep));
  }
  if (options.decode > 0) {
    fmt::print("decode, a token behind {}\n{}\n", options.prefill,
               printable(decode.table(limits, rows), LineBreaks::keep));
  }
  fmt::print(
      "limit: the larger share of reading {:.1f} GB/s and computing, of {:.0f} GFLOP/s in f32, "
      "{:.0f} with int8\n",
      limits.read_bytes * 1e-9, limits.f32_ops * 1e-9, limits.int8_ops * 1e-9);
  if (trace) fmt::print("{} written; https://ui.perfetto.dev opens it\n", options.trace);
}

}  // namespace

void add_profile(CLI::App& app, Tool& tool) {
  Command command(app, tool, "profile", "Show where a language model's time goes, op by op");
  auto options = std::make_shared<Options>();
  add_model(command);
  command.option("-p,--prefill", options->prefill, "Tokens read at once; 0: none")
      .range(0, 1 << 20);
  command.option("-n,--decode", options->decode, "Tokens read one by one after them; 0: none")
      .range(0, 1 << 20);
  command.option("--rows", options->rows, "Rows of each table at most").range(1, 1 << 20);
  command
      .option("--trace", options->trace, "Write every step as an event to this file, for Perfetto")
      .not_empty();
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
