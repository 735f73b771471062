// Comparing logits with a reference.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/models/language_model.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::testing {

inline std::vector<double> log_softmax(std::span<const float> logits) {
  double peak = -INFINITY;
  for (const float x : logits) peak = std::max(peak, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - peak);
  std::vector<double> result;
  result.reserve(logits.size());
  for (const float x : logits) result.push_back(static_cast<double>(x) - peak - std::log(sum));
  return result;
}

/// Kullback-Leibler divergence of two distributions given as log-probabilities.
inline double divergence(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

/// Logits of every token, row after row.
inline std::vector<float> all_logits(const models::LanguageModel& model,
                                     std::span<const std::int32_t> tokens) {
  std::vector<float> rows;
  auto conversation = model.conversation();
  conversation.read_all(tokens, [&](std::span<const float> logits, std::int64_t) {
    rows.insert(rows.end(), logits.begin(), logits.end());
  });
  return rows;
}

}  // namespace tenon::testing
