#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

enum class LineBreaks : std::uint8_t {
  escape,  ///< the result is one line
  keep,    ///< '\n' and '\t' stay as they are: running text
};

/// Text of a file, a model or another process, made safe to show: a terminal takes nothing in it
/// for a command, and it reads in the order in which it is written. Bytes that are not UTF-8,
/// control characters (C0, C1, DEL), line and paragraph separators and the characters that change
/// the direction of text are spelled out: "\x1b", "\u{9b}", "\u{202e}". All else, backslashes too,
/// stays: the result is for people, not to be read back. What it returns it leaves alone.
std::string printable(std::string_view text, LineBreaks breaks = LineBreaks::escape);

}  // namespace tenon
