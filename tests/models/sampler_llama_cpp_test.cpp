// Which tokens nn::Sampler leaves, and how probable they are, is what llama.cpp's samplers say (recorded by
// python/tests/record_samplers.py).
#include <tenon/models/language_model.hpp>
#include <tenon/models/sampling.hpp>
#include <tenon/nn/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace tenon;
using Json = nlohmann::json;

namespace {

/// As logits_of() of record_samplers.py.
std::vector<float> logits_of(std::uint64_t seed, const std::vector<std::int32_t>& history) {
  constexpr double spread = 16;
  std::vector<float> logits;
  for (std::int32_t token = 0; token < 272; ++token) {
    seed = (1103515245 * seed + 12345) % (std::uint64_t{1} << 31);
    const double part = static_cast<double>(seed >> 16) / 32768;
    const double value = spread * part * part - spread / 2;
    const bool is_seen = std::ranges::find(history, token) != history.end();
    logits.push_back(static_cast<float>(is_seen ? value / 4 + 8 : value));
  }
  return logits;
}

nn::SamplerOptions options_of(const Json& json, const text::Tokenizer& tokenizer) {
  using Options = nn::SamplerOptions;
  const std::map<std::string, std::int64_t Options::*> counts = {
      {"top_k", &Options::top_k},
      {"repetition_window", &Options::repetition_window},
      {"dry_allowed_length", &Options::dry_allowed_length},
      {"dry_window", &Options::dry_window}};
  const std::map<std::string, double Options::*> numbers = {
      {"temperature", &Options::temperature},
      {"repetition_penalty", &Options::repetition_penalty},
      {"frequency_penalty", &Options::frequency_penalty},
      {"presence_penalty", &Options::presence_penalty},
      {"dry_multiplier", &Options::dry_multiplier},
      {"dry_base", &Options::dry_base},
      {"top_n_sigma", &Options::top_n_sigma},
      {"dynatemp_range", &Options::dynatemp_range},
      {"dynatemp_exponent", &Options::dynatemp_exponent},
      {"typical_p", &Options::typical_p},
      {"top_p", &Options::top_p},
      {"min_p", &Options::min_p},
      {"xtc_probability", &Options::xtc_probability},
      {"xtc_threshold", &Options::xtc_threshold},
      {"adaptive_target", &Options::adaptive_target},
      {"adaptive_decay", &Options::adaptive_decay},
      {"mirostat_tau", &Options::mirostat_tau}};
  Options options;
  for (const auto& [name, value] : json.items()) {
    if (name == "temperature_last") {
      options.temperature_last = value;
    } else if (name == "mirostat") {
      options.mirostat = value;
    } else if (name == "dry_breakers") {
      const auto texts = value.get<std::vector<std::string>>();
      const std::vector<std::string_view> views(texts.begin(), texts.end());
      options.dry_breakers = models::dry_breakers(tokenizer, views);
    } else if (counts.contains(name)) {
      options.*counts.at(name) = value;
    } else {
      options.*numbers.at(name) = value;
    }
  }
  return options;
}

}  // namespace

TEST_CASE("sampler: tokens and probabilities are llama.cpp's") {
  const auto model = models::LanguageModel::load("tests/models/data/tiny_llama.gguf",
                                                 {.context = 16, .lazy = true});
  std::ifstream file("tests/models/data/samplers_llama_cpp.json");
  const Json cases = Json::parse(file)["cases"];
  CHECK(cases.size() > 100);
  for (const Json& recorded : cases) {
    CAPTURE(recorded["options"].dump());
    const auto history = recorded["history"].get<std::vector<std::int32_t>>();
    const auto logits = logits_of(recorded["seed"], history);
    nn::Sampler sampler(options_of(recorded["options"], model.tokenizer()));
    std::map<std::int32_t, double> want;
    for (const Json& kept : recorded["kept"]) want[kept[0]] = kept[1];
    const std::vector<nn::TokenProbability> got = sampler.probabilities(logits, history);
    CHECK(got.size() == want.size());
    double worst = 0;
    for (const auto& [token, probability] : got) {
      if (want.contains(token)) worst = std::max(worst, std::abs(probability / want[token] - 1));
    }
    CHECK(worst < 1e-4);
    CHECK(std::ranges::all_of(got, [&](const auto& one) { return want.contains(one.token); }));
    // What is drawn is one of them.
    CHECK(want.contains(sampler.sample(logits, history)));
  }
}
