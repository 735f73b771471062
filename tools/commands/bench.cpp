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

void run(Tool& tool, const Options& options) {
  const std::int64_t longest = std::max({options.prefill, options.decode, std::int64_t{1}});
  tool.require_context("bench", options.depth + longest);
  if (tool.context == 0) tool.context = options.depth + longest;
  const auto model = models::LanguageModel::load(tool.model, tool.language_model());
  auto conversation = model.conversation();
  const auto tokens = random_tokens(std::max(longest, options.depth), model.config().vocabulary);
  const auto all = std::span(tokens);

  // Time to the first token after a start, with a prompt of one token: the minimum for a user.
  conversation.read(all.first(1));
  const double first_token = seconds(Clock::now() - tool.started);

  const auto go_to_depth = [&] {
    if (conversation.rewindable(options.depth) < options.depth) {
      conversation.rewind(0);
      conversation.read(all.first(static_cast<std::size_t>(options.depth)));
    }
    conversation.rewind(options.depth);
  };
  const auto prefill_once = [&] {
    go_to_depth();
    const auto start = Clock::now();
    conversation.read(all.first(static_cast<std::size_t>(options.prefill)));
    return static_cast<double>(options.prefill) / seconds(Clock::now() - start);
  };
  const auto decode_once = [&] {
    go_to_depth();
    std::vector<models::Conversation> each{conversation};
    while (static_cast<std::int64_t>(each.size()) < options.conversations) {
      each.push_back(conversation.fork());
    }
    std::vector<std::int32_t> read(each.size());
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < options.decode; ++i) {
      for (std::size_t j = 0; j < each.size(); ++j) {
        read[j] = tokens[(static_cast<std::size_t>(i) + j) % tokens.size()];
      }
      model.read_each(each, read);
    }
    return static_cast<double>(options.decode * options.conversations) /
           seconds(Clock::now() - start);
  };
  std::vector<double> prefill;
  std::vector<double> decode;
  // One warm-up run of each, then interleaved runs, so that noise affects both alike.
  if (options.prefill > 0) prefill_once();
  if (options.decode > 0) decode_once();
  for (int i = 0; i < options.repetitions; ++i) {
    if (options.prefill > 0) prefill.push_back(prefill_once());
    if (options.decode > 0) decode.push_back(decode_once());
  }
  if (tool.json) {
    tool.print({{"prefill_tokens", options.prefill},
                {"decode_tokens", options.decode},
                {"depth", options.depth},
                {"conversations", options.conversations},
                {"prefill_tok_s", median(prefill)},
                {"decode_tok_s", median(decode)},
                {"load_s", seconds(model.load_times().total())},
                {"load", load_times(model.load_times())},
                {"first_token_s", first_token},
                {"peak_bytes", peak_bytes()},
                {"runs", {{"prefill_tok_s", prefill}, {"decode_tok_s", decode}}}});
    return;
  }
  if (options.prefill > 0)
    fmt::print("prefill {:5} tokens  {:9.1f} tokens/s\n", options.prefill, median(prefill));
  if (options.decode > 0) {
    const std::string each =
        options.conversations == 1
            ? std::string()
            : fmt::format(" in all, {} conversations at once", options.conversations);
    fmt::print("decode  {:5} tokens  {:9.1f} tokens/s{}\n", options.decode, median(decode), each);
  }
  fmt::print(
      "load {:.3f} s, first token {:.3f} s after the start, peak memory {:.1f} MiB, medians of {} "
      "runs\n",
      seconds(model.load_times().total()), first_token, static_cast<double>(peak_bytes()) / 1048576,
      options.repetitions);
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
