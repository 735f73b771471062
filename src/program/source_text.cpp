#include "program/source_text.hpp"

#include "program/limits.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tenon {
namespace {

bool continues_character(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

std::size_t characters(std::string_view text) noexcept {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues_character));
}

}  // namespace

SourceText::SourceText(std::string_view text, std::string_view file) : text_(text), file_(file) {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  for (std::size_t begin = 0; begin < text_.size();) {
    begins_.push_back(begin);
    const std::size_t end = text_.find('\n', begin);
    begin = end == std::string_view::npos ? text_.size() : end + 1;
  }
}

std::string_view SourceText::line(int number) const noexcept {
  if (number < 1 || number > line_count()) return {};
  const auto index = static_cast<std::size_t>(number - 1);
  const std::size_t end = index + 1 < begins_.size() ? begins_[index + 1] : text_.size();
  std::string_view line = text_.substr(begins_[index], end - begins_[index]);
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int SourceText::column(int number, std::size_t offset) const noexcept {
  return static_cast<int>(characters(line(number).substr(0, offset))) + 1;
}

std::string SourceText::excerpt(int number, std::size_t offset) const {
  std::string_view shown = line(number);
  offset = std::min(offset, shown.size());
  std::size_t begin =
      offset > program_limits::excerpt_bytes / 2 && shown.size() > program_limits::excerpt_bytes
          ? offset - program_limits::excerpt_bytes / 2
          : 0;
  while (begin > 0 && continues_character(shown[begin])) --begin;
  std::size_t end = std::min(shown.size(), begin + program_limits::excerpt_bytes);
  while (end < shown.size() && continues_character(shown[end])) ++end;
  const bool cut_before = begin > 0;
  const bool cut_after = end < shown.size();
  const std::size_t indent = characters(shown.substr(begin, offset - begin)) + (cut_before ? 3 : 0);
  std::string text(shown.substr(begin, end - begin));
  // Messages are for people: terminal control characters are shown as '?'.
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return fmt::format("\n{}{}{}\n{}^", cut_before ? "..." : "", text, cut_after ? "..." : "",
                     std::string(indent, ' '));
}

}  // namespace tenon
