#pragma once

#include "intervals.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace tenon::text {

bool is_word(char32_t c) noexcept;           ///< \w of Oniguruma
bool is_rust_word(char32_t c) noexcept;      ///< \w of Rust's expressions
bool is_decimal_digit(char32_t c) noexcept;  ///< \d

/// A set of characters: every part must accept a character, which a union of properties and
/// intervals does.
class CharacterSet {
 public:
  struct Part {
    std::vector<Interval> intervals;
    std::uint32_t categories = 0;  ///< a bit per general category of utf8proc
    bool spaces = false;
    bool non_spaces = false;
    bool han = false;
    bool non_han = false;
    bool is_negated = false;

    bool contains(char32_t c) const noexcept;
  };

  CharacterSet() = default;
  CharacterSet(std::vector<Part> parts, bool is_negated);

  bool contains(char32_t c) const noexcept {
    if (c < 0x80) return ((ascii_[c >> 6] >> (c & 63)) & 1) != 0;
    return compute(c);
  }
  /// The characters below U+0080, as bits.
  const std::array<std::uint64_t, 2>& ascii() const noexcept { return ascii_; }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool is_negated() const noexcept { return is_negated_; }

 private:
  bool compute(char32_t c) const noexcept;

  std::vector<Part> parts_;
  bool is_negated_ = false;
  std::array<std::uint64_t, 2> ascii_{};
};

}  // namespace tenon::text
