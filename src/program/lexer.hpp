#pragma once

#include <tenon/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// One word of a line of program text.
struct Token {
  enum class Kind : std::uint8_t {
    name,
    integer,
    real,
    string,  ///< `text` is what stands between the quotes, escapes and all
    mark,    ///< one of ( ) [ ] , : =
    end,     ///< of the line
  };

  Kind kind = Kind::end;
  std::string_view text;
  std::size_t offset = 0;  ///< in the line, in bytes
  std::int64_t integer = 0;
  double real = 0;

  bool is(char mark) const noexcept { return kind == Kind::mark && text[0] == mark; }
  bool is_word(std::string_view word) const noexcept { return kind == Kind::name && text == word; }
  bool is_truth() const noexcept { return is_word("True") || is_word("False"); }
};

struct LexError {
  Errc code;
  std::size_t offset;
  std::string message;
};

/// Cuts one line, without its end, into tokens; the last is Kind::end. A comment ends the line.
std::optional<LexError> tokenize(std::string_view line, std::vector<Token>& tokens);

}  // namespace tenon
