#include "stop_text.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

namespace tenon::models {
namespace {

/// How many bytes at the end of `text` begin `stop`, short of all of it.
std::size_t begun(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw Error(Errc::bad_argument, "generate", "a stop text is empty");
  }
}

std::string StopText::push(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  found_ = end != std::string::npos;
  std::size_t kept = 0;
  if (!found_) {
    for (const std::string& stop : stops_) kept = std::max(kept, begun(held_, stop));
    end = held_.size() - kept;
  }
  std::string out = held_.substr(0, end);
  held_.erase(0, found_ ? held_.size() : end);
  return out;
}

std::string StopText::finish() { return std::exchange(held_, {}); }

}  // namespace tenon::models
