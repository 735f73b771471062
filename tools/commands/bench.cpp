#include "interrupts.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>

#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t prefill = 512;
  std::int64_t decode = 128;
  std::int64_t depth = 0;
  std::int64_t conversations = 1;
  int repetitions = 5;
};

/// A conversation that is timed on random tokens, again and again from the same depth.
class Timed {
 public:
  Timed(const models::LanguageModel& model, const Options& options, const std::stop_token& stop)
      : model_(model),
        options_(options),
        interrupt_{.cancel = stop},
        conversation_(model.conversation()),
        tokens_(random_tokens(
            std::max({options.prefill, options.decode, options.depth, std::int64_t{1}}),
            model.config().vocabulary)) {}

  void read_first_token() { conversation_.read(first(1), interrupt_); }

  /// Tokens of a prompt per second.
  double prefill() {
    go_to_depth();
    const auto start = Clock::now();
    conversation_.read(first(options_.prefill), interrupt_);
    return static_cast<double>(options_.prefill) / seconds(Clock::now() - start);
  }

  /// Tokens read one by one per second, in all conversations.
  double decode() {
    go_to_depth();
    std::vector<models::Conversation> each{conversation_};
    while (static_cast<std::int64_t>(each.size()) < options_.conversations) {
      each.push_back(conversation_.fork());
    }
    std::vector<std::int32_t> read(each.size());
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < options_.decode; ++i) {
      for (std::size_t j = 0; j < each.size(); ++j) {
        read[j] = tokens_[(static_cast<std::size_t>(i) + j) % tokens_.size()];
      }
      model_.read_each(each, read, interrupt_);
    }
    return static_cast<double>(options_.decode * options_.conversations) /
           seconds(Clock::now() - start);
  }

 private:
  std::span<const std::int32_t> first(std::int64_t count) const {
    return std::span(tokens_).first(static_cast<std::size_t>(count));
  }

  void go_to_depth() {
    if (conversation_.rewindable(options_.depth) < options_.depth) {
      conversation_.rewind(0);
      conversation_.read(first(options_.depth), interrupt_);
    }
    conversation_.rewind(options_.depth);
  }

  const models::LanguageModel& model_;
  const Options& options_;
  models::Interrupt interrupt_;
  models::Conversation conversation_;
  std::vector<std::int32_t> tokens_;
};

struct Times {
  double first_token = 0;               ///< seconds from the program's start on
  std::vector<double> prefill, decode;  ///< tokens per second of each run
};

/// One run of each to warm up, then interleaved runs, so that noise affects both alike.
Times measure(const Tool& tool, const models::LanguageModel& model, const Options& options,
              const std::stop_token& stop) {
  Timed timed(model, options, stop);
  Times times;
  timed.read_first_token();
  times.first_token = seconds(Clock::now() - tool.started);
  if (options.prefill > 0) timed.prefill();
  if (options.decode > 0) timed.decode();
  for (int i = 0; i < options.repetitions; ++i) {
    if (options.prefill > 0) times.prefill.push_back(timed.prefill());
    if (options.decode > 0) times.decode.push_back(timed.decode());
  }
  return times;
}

Json described(const Options& options, const models::LanguageModel& model, const Times& times) {
  return {{"prefill_tokens", options.prefill},
          {"decode_tokens", options.decode},
          {"depth", options.depth},
          {"conversations", options.conversations},
          {"prefill_tok_s", median(times.prefill)},
          {"decode_tok_s", median(times.decode)},
          {"load_s", seconds(model.load_times().total())},
          {"load", load_times(model.load_times())},
          {"first_token_s", times.first_token},
          {"peak_bytes", peak_bytes()},
          {"runs", {{"prefill_tok_s", times.prefill}, {"decode_tok_s", times.decode}}}};
}

void print(const Options& options, const models::LanguageModel& model, const Times& times) {
  if (options.prefill > 0) {
    fmt::print("prefill {:5} tokens  {:9.1f} tokens/s\n", options.prefill, median(times.prefill));
  }
  if (options.decode > 0) {
    const std::string each =
        options.conversations == 1
            ? std::string()
            : fmt::format(" in all, {} conversations at once", options.conversations);
    fmt::print("decode  {:5} tokens  {:9.1f} tokens/s{}\n", options.decode, median(times.decode),
               each);
  }
  fmt::print(
      "load {:.3f} s, first token {:.3f} s after the start, peak memory {:.1f} MiB, medians of {} "
      "runs\n",
      seconds(model.load_times().total()), times.first_token,
      static_cast<double>(peak_bytes()) / 1048576, options.repetitions);
}

void run(Tool& tool, const Options& options) {
  const std::int64_t longest = std::max({options.prefill, options.decode, std::int64_t{1}});
  tool.require_context("bench", options.depth + longest);
  if (tool.context == 0) tool.context = options.depth + longest;
  Interrupts interrupts;
  const std::stop_token stop = interrupts.begin();
  const auto model = models::LanguageModel::load(tool.model, tool.language_model(stop));
  const Times times = measure(tool, model, options, stop);
  if (tool.json) {
    tool.print(described(options, model, times));
  } else {
    print(options, model, times);
  }
}

}  // namespace

void add_bench(CLI::App& app, Tool& tool) {
  Command command(app, tool, "bench", "Time a language model on random tokens");
  auto options = std::make_shared<Options>();
  add_model(command);
  command.option("-p,--prefill", options->prefill, "Tokens read at once; 0: none")
      .range(0, 1 << 20);
  command.option("-n,--decode", options->decode, "Tokens read one by one; 0: none")
      .range(0, 1 << 20);
  command.option("-d,--depth", options->depth, "Tokens in the context before both")
      .range(0, 1 << 20);
  command
      .option("--conversations", options->conversations,
              "Conversations that read a token each in a step of decoding")
      .range(1, 4096);
  command.option("-r,--repetitions", options->repetitions, "Runs of each, after one to warm up")
      .range(1, 1000);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
