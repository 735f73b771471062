#pragma once

#include "character_set.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A regular expression by which a tokenizer splits text: the part of Oniguruma's syntax that
/// published tokenizers use, with its semantics (the first alternative that matches wins).
///
/// A set, a group, (?i:...) over ASCII letters, greedy, lazy and (of a set) possessive repetition,
/// (?=X) and (?!X) of one character, ^ $ \b \B, \p{...} of general categories and of Han. Each
/// other construct is refused by name.
class Expression {
 public:
  /// Errors: unsupported (a construct that is not implemented), bad_tokenizer (a malformed one),
  /// limit_exceeded (more than 32 nested groups or 20000 instructions).
  explicit Expression(std::string_view pattern);

  enum class Op : std::uint8_t {
    set,     ///< consumes a character of sets[a]
    repeat,  ///< consumes min to max characters of sets[a], as many as it can
    split,   ///< goes on at a; should that fail, at b
    jump,    ///< goes on at a
    look,    ///< whether a character of sets[a] follows
    line_start,
    line_end,
    word_edge,
    match,
  };

  struct Instruction {
    Op op = Op::match;
    bool is_possessive = false;
    bool is_negated = false;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint32_t min = 0;
    std::uint32_t max = 0;
    std::uint32_t choice = 0;  ///< its number among those that may go on in several ways
  };

  static constexpr std::uint32_t unlimited = ~std::uint32_t{0};

  const std::vector<Instruction>& program() const noexcept { return program_; }
  const CharacterSet& set(std::uint32_t at) const noexcept { return sets_[at]; }
  std::uint32_t choices() const noexcept { return choices_; }

  /// Whether a match may begin with this byte.
  bool may_start_with(unsigned char byte) const noexcept {
    return byte >= 0x80 || ((first_[byte >> 6] >> (byte & 63)) & 1) != 0;
  }

 private:
  class Parser;

  std::vector<CharacterSet> sets_;
  std::vector<Instruction> program_;
  std::uint32_t choices_ = 0;
  std::array<std::uint64_t, 2> first_{};
};

}  // namespace tenon::text
