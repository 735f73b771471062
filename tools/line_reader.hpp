#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tenon::tool {

/// Lines from standard input. On a terminal they can be edited, and earlier ones be brought back,
/// where the program was built with libedit; the prompt and what is typed go to standard error.
class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool is_terminal() const noexcept { return is_terminal_; }
  /// The next line without its end. Nothing at the end of input, and after Ctrl-C. `prompt` is
  /// shown on a terminal only.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Editor;
  bool is_terminal_;
  std::unique_ptr<Editor> editor_;  // null: none
};

}  // namespace tenon::tool
