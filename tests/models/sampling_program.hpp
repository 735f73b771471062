// Sampling in a program, and what it is compared with.
#pragma once

#include <tenon/backend.hpp>
#include <tenon/graph.hpp>
#include <tenon/nn/token_sampling.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::testing {

struct KeptToken {
  double weight;
  float logit;
  std::int32_t id;
};

/// The tokens that SamplerOptions keep, word by word: all sorted, then bounded.
inline std::vector<KeptToken> sorted_kept(const nn::SamplerOptions& options,
                                          std::span<const float> logits) {
  std::vector<KeptToken> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) tokens.push_back({1, logits[i], static_cast<std::int32_t>(i)});
  }
  const auto by_logit = [](const KeptToken& a, const KeptToken& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const float peak = std::min_element(tokens.begin(), tokens.end(), by_logit)->logit;
  std::sort(tokens.begin(), tokens.end(), by_logit);
  if (options.temperature == 0 || std::isinf(peak)) return {tokens.front()};
  if (options.top_k > 0) {
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.top_k)));
  }
  double total = 0;
  for (KeptToken& token : tokens) {
    const double distance = static_cast<double>(token.logit) - static_cast<double>(peak);
    total += token.weight = std::exp(distance / options.temperature);
  }
  std::size_t count = 0;
  double kept = 0;
  const auto is_kept = [&](const KeptToken& token) {
    // All of them have a part of 1, also those too small for the sum to show it.
    const bool is_inside = options.top_p >= 1 ? token.weight > 0 : kept < options.top_p * total;
    return is_inside && token.weight >= options.min_p;
  };
  while (count < tokens.size() && (count == 0 || is_kept(tokens[count]))) {
    kept += tokens[count++].weight;
  }
  tokens.resize(count);
  return tokens;
}

/// The same as a probability for each token.
inline std::vector<double> probabilities(const nn::SamplerOptions& options,
                                         std::span<const float> logits) {
  std::vector<double> result(logits.size(), 0);
  double total = 0;
  const std::vector<KeptToken> kept = sorted_kept(options, logits);
  for (const KeptToken& token : kept) total += token.weight;
  for (const KeptToken& token : kept) {
    result[static_cast<std::size_t>(token.id)] = token.weight / total;
  }
  return result;
}

/// How many deviations Pearson's statistic of these counts is above what it is on average, by the
/// approximation of Wilson and Hilferty (1931). Those that are expected less than five times count as
/// one.
inline double excess(std::span<const double> probabilities, std::span<const std::int64_t> counts) {
  double total = 0, statistic = 0, rare = 0, rare_count = 0;
  int classes = -1;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const auto add = [&](double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++classes;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0 && counts[i] > 0) return INFINITY;
    if (expected >= 5) {
      add(expected, static_cast<double>(counts[i]));
    } else {
      rare += expected;
      rare_count += static_cast<double>(counts[i]);
    }
  }
  if (rare > 1) add(rare, rare_count);
  if (classes < 1) return 0;
  const double spread = 2.0 / (9 * classes);
  return (std::cbrt(statistic / classes) - (1 - spread)) / std::sqrt(spread);
}

/// nn::kept_tokens() and nn::sample_token() of logits of these sizes, compiled once per form of the
/// options.
class SamplingProgram {
 public:
  struct Result {
    HostBuffer tokens, sums, count, all, is_all, is_known, token;

    /// Weights of the tokens that may be drawn; of one row.
    std::vector<float> kept(std::int64_t row = 0) const {
      const auto of_row = [&](const auto& values, const HostBuffer& buffer) {
        const auto width = static_cast<std::size_t>(buffer.shape()[1]);
        return values.subspan(static_cast<std::size_t>(row) * width, width);
      };
      const auto every = of_row(all.values<float>(), all);
      if (is_all.values<bool>()[static_cast<std::size_t>(row)]) return {every.begin(), every.end()};
      std::vector<float> result(every.size(), 0.0f);
      const auto ids = of_row(tokens.values<std::int32_t>(), tokens);
      const auto number = static_cast<std::size_t>(of_row(count.values<std::int32_t>(), count)[0]);
      for (std::size_t i = 0; i < number; ++i) {
        const auto id = static_cast<std::size_t>(ids[i]);
        result[id] = i == 0 ? 1 : every[id];
      }
      return result;
    }
  };

  SamplingProgram(Shape logits, const nn::SamplingInputs<HostBuffer>& like, std::int64_t candidates,
                  std::vector<BackendPtr> backends)
      : session_(program(logits, like, candidates), {.backends = std::move(backends)}) {}

  Result run(const HostBuffer& logits, const nn::SamplingInputs<HostBuffer>& options,
             std::int32_t counter = 0) {
    std::vector<Buffer> inputs{
        logits.to_device(cpu_device()),
        HostBuffer::of<std::int32_t>(Shape({1}, i32), {counter}).to_device(cpu_device())};
    visit_fields(options, [&](const std::string&, const HostBuffer& values) {
      inputs.push_back(values.to_device(cpu_device()));
    });
    const std::vector<Buffer> results = session_.forward(std::move(inputs));
    return {results[0].to_host(), results[1].to_host(), results[2].to_host(), results[3].to_host(),
            results[4].to_host(), results[5].to_host(), results[6].to_host()};
  }
  /// Of one row.
  Result run(std::span<const float> logits, const nn::SamplerOptions& options,
             std::span<const std::int32_t> history = {}, std::int32_t counter = 0) {
    const auto size = static_cast<std::int64_t>(logits.size());
    return run(HostBuffer::of(Shape({1, size}, f32), logits),
               nn::sampling_inputs(options, history, size), counter);
  }

 private:
  static Program program(const Shape& shape, const nn::SamplingInputs<HostBuffer>& like,
                         std::int64_t candidates) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor logits = graph.input("logits", shape);
    const Tensor counter = graph.input("counter", Shape({1}, i32));
    const auto options =
        map_fields<Tensor>(like, [&](const std::string& name, const HostBuffer& values) {
          return graph.input(name, values.shape());
        });
    const nn::KeptTokens kept = nn::kept_tokens(logits, options, candidates);
    const auto sampled = nn::sample_token(logits, counter, options, candidates);
    const Tensor outputs[] = {kept.tokens, kept.sums,     kept.count,   kept.all,
                              kept.is_all, kept.is_known, sampled.token};
    return graph.program(outputs);
  }

  Session session_;
};

}  // namespace tenon::testing
