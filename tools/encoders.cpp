#include "encoders.hpp"

#include <tenon/error.hpp>

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
