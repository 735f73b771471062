#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

enum class LineBreaks : std::uint8_t {
  escape,  ///< the result is one line
  keep,    ///< '\n' and '\t' stay as they are: running text
};

/// Escapes text of a file, a model or another process for display: the result contains no terminal
/// commands and no changes of text direction. Escapes bytes that are not UTF-8, control characters
/// (C0, C1, DEL), line and paragraph separators, and bidirectional controls: "\x1b", "\u{9b}",
/// "\u{202e}". Everything else stays, backslashes too: the result is for people and cannot be
/// parsed back. Idempotent.
std::string printable(std::string_view text, LineBreaks breaks = LineBreaks::escape);

}  // namespace tenon
