#include "digit_ranges.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon::text {
namespace {

std::string digit(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

std::string any_digits(std::size_t count) {
  return count == 0 ? "" : count == 1 ? " [0-9]" : fmt::format(" [0-9]{{{}}}", count);
}

bool is_all(std::string_view digits, char value) {
  return std::ranges::all_of(digits, [&](char c) { return c == value; });
}

/// Numbers of as many digits as both bounds have, behind the digits `before`.
void add(const std::string& before, std::string_view low, std::string_view high,
         std::vector<std::string>& choices) {
  if (low.empty()) {
    choices.push_back(before);
    return;
  }
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  const auto with = [&](char first, char last) {
    return before.empty() ? digit(first, last) : before + " " + digit(first, last);
  };
  if (low[0] == high[0] && !(is_all(low_rest, '0') && is_all(high_rest, '9'))) {
    return add(with(low[0], low[0]), low_rest, high_rest, choices);
  }
  char first = low[0], last = high[0];
  if (!is_all(low_rest, '0')) {
    add(with(first, first), low_rest, std::string(low_rest.size(), '9'), choices);
    ++first;
  }
  const bool has_part = !is_all(high_rest, '9');
  if (has_part) --last;
  if (first <= last) choices.push_back(with(first, last) + any_digits(low_rest.size()));
  if (has_part) add(with(high[0], high[0]), std::string(high_rest.size(), '0'), high_rest, choices);
}

void add_magnitudes(const std::string& sign, std::int64_t low, std::int64_t high,
                    std::vector<std::string>& choices) {
  std::int64_t first = low;
  while (first <= high) {
    const std::string digits = std::to_string(first);
    std::int64_t last = high;
    if (std::to_string(high).size() > digits.size())
      last = std::stoll(std::string(digits.size(), '9'));
    add(sign, digits, std::to_string(last), choices);
    first = last + 1;
  }
}

}  // namespace

std::string integers_between(std::int64_t low, std::int64_t high) {
  std::vector<std::string> choices;
  if (low < 0) add_magnitudes("\"-\"", std::max<std::int64_t>(-high, 1), -low, choices);
  if (high >= 0) add_magnitudes("", std::max<std::int64_t>(low, 0), high, choices);
  return fmt::format("{}", fmt::join(choices, " | "));
}

}  // namespace tenon::text
