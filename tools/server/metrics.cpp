#include "server/metrics.hpp"

#include <chrono>
#include <string_view>

#include <fmt/format.h>

namespace tenon::tool {

std::string metrics_text(const ServiceCounts& counts) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       auto value) {
    text += fmt::format("# HELP tenon_{0} {2}\n# TYPE tenon_{0} {1}\ntenon_{0} {3}\n", name, type,
                        help, value);
  };
  add("answers_under_way", "gauge", "Answers that have not ended, those that wait included.",
      counts.under_way);
  add("answers_ended_total", "counter",
      "Answers that have ended, those of clients that left included.", counts.ended);
  add("answers_failed_total", "counter", "Answers that failed.", counts.failed);
  add("prompt_tokens_total", "counter",
      "Tokens of the prompts of answers that have ended or failed.", counts.prompt_tokens);
  add("prompt_tokens_reused_total", "counter", "Those of them that were not read again.",
      counts.reused_tokens);
  add("generated_tokens_total", "counter", "Tokens of answers that have ended or failed.",
      counts.generated_tokens);
  add("steps_total", "counter", "Steps of the model, which answers share.", counts.steps);
  add("step_seconds_total", "counter", "Time that steps took.",
      std::chrono::duration<double>(counts.step_time).count());
  return text;
}

}  // namespace tenon::tool
