#include "base/utf8.hpp"

#include <tenon/printable.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

/// Escaped characters beyond ASCII (Unicode 15): C1, the characters of the bidirectional algorithm
/// (UAX 9, section 2), and the separators, which end a line on some terminals.
constexpr Range hidden[] = {
    {0x80, 0x9F}, {0x061C, 0x061C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069},
};

bool is_hidden(char32_t c) noexcept {
  return std::ranges::any_of(
      hidden, [&](const Range& range) { return range.first <= c && c <= range.last; });
}

bool is_plain_ascii(char byte) noexcept { return byte >= ' ' && byte <= '~'; }

}  // namespace

std::string printable(std::string_view text, LineBreaks breaks) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (is_plain_ascii(text[i])) {
      result += text[i++];
      continue;
    }
    const CodePoint c = code_point_at(text, i);
    const std::string_view bytes = text.substr(i, c.length);
    i += c.length;
    const bool is_kept_break = breaks == LineBreaks::keep && (c.value == U'\n' || c.value == U'\t');
    if (!c.is_valid || (c.length == 1 && !is_kept_break)) {
      for (const char byte : bytes) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else if (is_hidden(c.value)) {
      result += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(c.value));
    } else {
      result += bytes;
    }
  }
  return result;
}

}  // namespace tenon
