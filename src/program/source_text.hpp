#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// A text by lines, for reading and for pointing into it. Does not own the text.
class SourceText {
 public:
  /// Lines end in LF or CRLF; a byte order mark at the beginning is skipped.
  SourceText(std::string_view text, std::string_view file);

  std::string_view file() const noexcept { return file_; }
  int line_count() const noexcept { return static_cast<int>(begins_.size()); }
  /// Line `number`, counted from 1, without its end; empty when there is none.
  std::string_view line(int number) const noexcept;

  /// The column, counted from 1 in characters, of a byte of a line.
  int column(int number, std::size_t offset) const noexcept;
  /// The line with a caret under that byte, as the end of a message. Long lines are cut around it.
  std::string excerpt(int number, std::size_t offset) const;

 private:
  std::string_view text_;
  std::string_view file_;
  std::vector<std::size_t> begins_;
};

}  // namespace tenon
