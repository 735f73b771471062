#include <tenon/error.hpp>
#include <tenon/layout.hpp>

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::uint8_t max_block = 32;

constexpr bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char upper(char c) { return static_cast<char>(c - 'a' + 'A'); }
constexpr char lower(char c) { return static_cast<char>(c - 'A' + 'a'); }

/// 1, 2, 4 ... 32 in its one spelling; 0 for anything else.
std::uint8_t block_size_of(std::string_view digits) {
  unsigned value = 0;
  for (const char c : digits) {
    if (!is_digit(c) || value > max_block) return 0;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  const bool leading_zero = digits.starts_with('0');
  return !leading_zero && std::has_single_bit(value) && value <= max_block
             ? static_cast<std::uint8_t>(value)
             : std::uint8_t{0};
}

}  // namespace

Layout::Layout(std::string_view text) : star_(text.starts_with('*')) {
  const auto refuse = [&](std::size_t at, std::string_view why) {
    constexpr std::size_t shown = 40;
    throw Error(Errc::syntax, fmt::format("layout:{}", at),
                fmt::format("{} in '{}'", why, text.substr(0, shown)));
  };
  if (text.empty()) refuse(0, "no axes");
  std::size_t at = star_ ? 1 : 0;
  for (; at < text.size() && is_upper(text[at]); ++at) {
    if (letters().find(text[at]) != std::string_view::npos) refuse(at, "an axis twice");
    if (count_ == max_rank) refuse(at, "too many axes");
    letters_[count_++] = text[at];
  }
  if (at == text.size()) return;
  if (!is_lower(text[at])) refuse(at, "expected a letter");
  block_axis_ = upper(text[at]);
  if (letters().find(block_axis_) == std::string_view::npos) refuse(at, "blocks of no axis");
  if (count_ == max_rank) refuse(at, "too many axes");
  const std::string_view size = text.substr(++at);
  if (size == "*") return;
  block_size_ = block_size_of(size);
  if (block_size_ == 0) refuse(at, "expected a block of 1, 2, 4, 8, 16 or 32, or '*',");
}

std::optional<int> Layout::find_axis(char letter, int rank) const noexcept {
  const std::size_t index = letters().find(letter);
  if (index == std::string_view::npos) return std::nullopt;
  return rank - (is_blocked() ? 1 : 0) - count_ + static_cast<int>(index);
}

Layout Layout::plain() const noexcept {
  Layout result = *this;
  result.block_axis_ = '\0';
  result.block_size_ = 0;
  return result;
}

bool Layout::matches(const Layout& pattern) const noexcept {
  if (*this == pattern) return true;
  return pattern.is_pattern() && block_axis_ == pattern.block_axis_ && plain() == pattern.plain();
}

void Layout::check(const Shape& shape) const {
  if (is_pattern()) {
    throw Error(Errc::bad_argument, "Layout",
                fmt::format("{} leaves the block's size open", to_string(*this)));
  }
  const int named = count_ + (is_blocked() ? 1 : 0);
  const bool right_rank = star_ ? shape.rank() >= named : shape.rank() == named;
  if (!right_rank || (is_blocked() && shape[shape.rank() - 1] != block_size_)) {
    throw Error(
        Errc::bad_shape, "Layout",
        fmt::format("{} does not lie in memory as {}", tenon::to_string(shape), to_string(*this)));
  }
}

std::string to_string(const Layout& layout) {
  std::string text = layout.has_star() ? "*" : "";
  text += layout.letters();
  if (!layout.is_blocked()) return text;
  text += lower(layout.block_axis());
  text += layout.is_pattern() ? "*" : fmt::format("{}", layout.block_size());
  return text;
}

Layout layout_of(const Shape& shape) {
  return shape.layout().empty() ? Layout() : Layout(shape.layout().text());
}

}  // namespace tenon
