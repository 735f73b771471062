#include "encoders.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tenon::tool {

models::EncoderOptions encoder_options(const Tool& tool, const char* command,
                                       std::string_view weights) {
  models::EncoderOptions options{
      .device = tool.open_device(), .cpu_fallback = tool.cpu_fallback, .backend = tool.backend()};
  if (weights.empty()) return options;
  options.weights = find_dtype(weights);
  if (!options.weights) {
    throw Error(Errc::bad_argument, command, "no type " + std::string(weights));
  }
  return options;
}

bool is_encoder(const std::string& path) {
  const io::File file = io::open(path, {.access = io::Access::guarded});
  return file.format() != io::Format::gguf || models::is_encoder(file);
}

std::vector<std::size_t> best_first(std::span<const float> scores, std::int64_t most) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t at) {
    return std::isnan(scores[at]) ? -std::numeric_limits<float>::infinity() : scores[at];
  };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return key(a) != key(b) ? key(a) > key(b) : a < b;
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(most)));
  return order;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace tenon::tool
