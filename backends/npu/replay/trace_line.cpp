#include "trace_line.hpp"

#include <tenon/error.hpp>

#include <array>
#include <charconv>
#include <string>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

/// The words of a line, one by one.
class Words {
 public:
  Words(std::string_view text, std::size_t number) : rest_(text), number_(number) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Errc::syntax, fmt::format("trace:{}", number_), what);
  }

  std::string_view next() {
    const std::size_t begin = std::min(rest_.find_first_not_of(' '), rest_.size());
    const std::size_t end = std::min(rest_.find(' ', begin), rest_.size());
    const std::string_view word = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return word;
  }

  std::uint64_t hex(std::string_view word, std::uint64_t most) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (error != std::errc() || end != word.data() + word.size() || value > most) {
      fail(fmt::format("'{}' is no hexadecimal number up to {:X}", word.substr(0, 20), most));
    }
    return value;
  }

 private:
  std::string_view rest_;
  std::size_t number_;
};

std::vector<std::byte> bytes_of(std::string_view word, const Words& words) {
  if (word.empty() || word.size() % 2 != 0) words.fail("bytes are two digits each");
  std::vector<std::byte> bytes;
  bytes.reserve(word.size() / 2);
  for (std::size_t i = 0; i < word.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(words.hex(word.substr(i, 2), 0xFF)));
  }
  return bytes;
}

}  // namespace

TraceLine parse_trace_line(std::string_view text, std::size_t number) {
  constexpr std::uint64_t any_word = 0xFFFFFFFF;
  constexpr std::uint64_t any_address = 0x00FFFFFFFFFFFFFF;
  constexpr std::string_view kinds = "WRCIFSG";
  Words words(text, number);
  const std::string_view kind = words.next();
  if (kind.size() != 1 || kinds.find(kind[0]) == std::string_view::npos) {
    words.fail(fmt::format("'{}' is no kind of line; those are {}", kind.substr(0, 20), kinds));
  }
  TraceLine line;
  line.kind = static_cast<TraceLine::Kind>(kind[0]);
  if (line.kind == TraceLine::Kind::memory_write || line.kind == TraceLine::Kind::memory_read) {
    line.address = words.hex(words.next(), any_address);
    line.bytes = bytes_of(words.next(), words);
  } else {
    line.address = words.hex(words.next(), any_word);
    line.value = static_cast<std::uint32_t>(words.hex(words.next(), any_word));
    const std::string_view cycle = words.next();
    const bool is_cycle = cycle.size() > 1 && cycle[0] == '@' &&
                          cycle.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (!is_cycle) words.fail("a line ends with @ and a cycle");
  }
  if (!words.next().empty()) words.fail("more words than such a line has");
  return line;
}

}  // namespace tenon::npu
