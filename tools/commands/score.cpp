#include "interrupts.hpp"
#include "token_list.hpp"
#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/npy.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string tokens;
  std::string file;
  std::string out;
  std::int64_t last = 0;
};

double log_probability(std::span<const float> logits, std::int32_t token) {
  double peak = -INFINITY;
  for (const float logit : logits) peak = std::max(peak, static_cast<double>(logit));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - peak);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - peak - std::log(sum);
}

void run(Tool& tool, const Options& options, bool from_file) {
  Interrupts interrupts;
  const auto tokens = from_file ? parse_tokens(read_text(options.file), options.file)
                                : parse_tokens(options.tokens, "--tokens");
  if (tokens.empty()) throw Error(Errc::bad_argument, "score", "no tokens");
  const auto count = static_cast<std::int64_t>(tokens.size());
  tool.require_context("score", count);
  if (tool.context == 0) tool.context = count;
  const std::stop_token stop = interrupts.begin();
  const auto model = models::LanguageModel::load(tool.model, tool.language_model(stop));
  auto conversation = model.conversation();
  const std::int64_t vocabulary = model.config().vocabulary;
  const std::int64_t kept = options.last > 0 ? std::min(options.last, count) : count;
  HostBuffer saved;
  if (!options.out.empty()) saved = HostBuffer::uninitialized(Shape({kept, vocabulary}, f32));

  std::int64_t row = 0;
  std::int64_t best = 0;
  double sum = 0;
  const auto take = [&](std::span<const float> logits, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i, ++row) {
      const auto values = logits.subspan(static_cast<std::size_t>(i * vocabulary),
                                         static_cast<std::size_t>(vocabulary));
      if (row + 1 < count) {
        const std::int32_t next = tokens[static_cast<std::size_t>(row + 1)];
        sum += log_probability(values, next);
        best += std::ranges::max_element(values) - values.begin() == next ? 1 : 0;
      }
      if (!saved.is_empty() && row >= count - kept) {
        std::ranges::copy(
            values, saved.mutable_values<float>().begin() + (row - (count - kept)) * vocabulary);
      }
    }
  };
  conversation.read_all(tokens, take, {.cancel = stop});
  if (!saved.is_empty()) io::write_npy(options.out, saved);
  const double scored = static_cast<double>(std::max<std::int64_t>(count - 1, 1));
  const double perplexity = std::exp(-sum / scored);
  if (tool.json) {
    Json result{{"tokens", count}, {"vocabulary", vocabulary}};
    result["perplexity"] = count > 1 ? Json(perplexity) : Json(nullptr);
    result["mean_log_probability"] = count > 1 ? Json(sum / scored) : Json(nullptr);
    result["top1_accuracy"] = count > 1 ? Json(static_cast<double>(best) / scored) : Json(nullptr);
    if (!options.out.empty())
      result["out"] = {{"path", options.out}, {"shape", {kept, vocabulary}}};
    tool.print(result);
    return;
  }
  if (count > 1) {
    fmt::print(
        "{} tokens, perplexity {:.4f}, mean log-probability {:.5f}, next token most likely {:.1f} "
        "%\n",
        count, perplexity, sum / scored, 100 * static_cast<double>(best) / scored);
  } else {
    fmt::print("1 token: nothing to predict\n");
  }
  if (!options.out.empty()) fmt::print("logits [{}, {}] in {}\n", kept, vocabulary, options.out);
}

}  // namespace

void add_score(CLI::App& app, Tool& tool) {
  Command command(app, tool, "score", "Logits and perplexity of given tokens");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option tokens =
      command.option("--tokens", options->tokens, "Token ids, e.g. 1,2,3; none are added");
  Option file =
      command.option("--file", options->file,
                     "A file of token ids, apart by commas or white space; - for standard input");
  command.either(tokens, file);
  command.option("--last", options->last, "Keep the logits of the last K positions; 0: all")
      .not_negative();
  command.option("--out", options->out,
                 "Write the kept logits, f32 [K, vocabulary], to this .npy file");
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
