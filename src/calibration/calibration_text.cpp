#include <tenon/calibration.hpp>
#include <tenon/error.hpp>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::quant {
namespace {

constexpr std::string_view first_line = "tenon-calibration 1";

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  CalibrationTable read() {
    std::string_view line;
    if (!next(line) || line != first_line) {
      fail(Errc::bad_magic, fmt::format("expected '{}'", first_line));
    }
    CalibrationTable table;
    ValueRange* value = nullptr;
    while (next(line)) {
      const std::vector<std::string_view> words = split(line);
      if (words.size() != 4) fail(Errc::syntax, "expected a name and three numbers");
      const Range range{number(words[1]), number(words[2]), number(words[3])};
      constexpr double infinity = std::numeric_limits<double>::infinity();
      if (!(range.min <= range.max) || range.min == infinity || range.max == -infinity ||
          !std::isfinite(range.threshold) || range.threshold < 0) {
        fail(Errc::out_of_range, fmt::format("'{}' is no range", line));
      }
      if (words[0] == "-") {
        if (value == nullptr) fail(Errc::syntax, "a channel without a value above it");
        value->channels.push_back(range);
        continue;
      }
      const auto [entry, fresh] = table.values.try_emplace(std::string(words[0]));
      if (!fresh) fail(Errc::duplicate_name, fmt::format("'{}' stands here twice", words[0]));
      value = &entry->second;
      value->tensor = range;
    }
    return table;
  }

 private:
  bool next(std::string_view& line) {
    ++number_;
    if (text_.empty()) return false;
    const std::size_t end = text_.find('\n');
    line = text_.substr(0, end);
    text_ = end == std::string_view::npos ? std::string_view() : text_.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }

  static std::vector<std::string_view> split(std::string_view line) {
    std::vector<std::string_view> words;
    while (!line.empty() && words.size() <= 4) {
      const std::size_t end = line.find(' ');
      words.push_back(line.substr(0, end));
      if (end == std::string_view::npos) return words;
      line = line.substr(end + 1);
    }
    words.emplace_back();  // two spaces in a row
    return words;
  }

  double number(std::string_view word) const {
    double result = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), result);
    if (error == std::errc::result_out_of_range) {
      fail(Errc::out_of_range, fmt::format("no number is as large as '{}'", word));
    }
    if (error != std::errc() || end != word.data() + word.size()) {
      fail(Errc::syntax, fmt::format("'{}' is not a number", word));
    }
    return result;
  }

  [[noreturn]] void fail(Errc code, std::string message) const {
    throw Error(code, fmt::format("{}:{}", file_, number_), std::move(message));
  }

  std::string_view text_;
  std::string_view file_;
  int number_ = 0;
};

}  // namespace

std::string CalibrationTable::to_text() const {
  std::string text(first_line);
  text += '\n';
  for (const auto& [name, value] : values) {
    const Range& r = value.tensor;
    text += fmt::format("{} {} {} {}\n", name, r.min, r.max, r.threshold);
    for (const Range& c : value.channels) {
      text += fmt::format("- {} {} {}\n", c.min, c.max, c.threshold);
    }
  }
  return text;
}

CalibrationTable CalibrationTable::from_text(std::string_view text, std::string_view file) {
  return Reader(text, file).read();
}

}  // namespace tenon::quant
