#pragma once

#include "intervals.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A part of a grammar's rule.
struct GrammarPart {
  enum class Kind : std::uint8_t {
    text,        ///< these bytes
    characters,  ///< one of these characters
    rule,        ///< a text of rules[rule]
    sequence,    ///< all parts, one behind the other; of none, the empty text
    choice,      ///< one of the parts
    repeat,      ///< parts[0], `least` to `most` times
  };
  static constexpr std::uint32_t unlimited = ~std::uint32_t{0};

  Kind kind = Kind::sequence;
  std::string text{};
  std::vector<Interval> characters{};  ///< ascending, disjoint, without surrogates
  std::size_t rule = 0;
  std::uint32_t least = 0;
  std::uint32_t most = unlimited;
  int repeats = 0;  ///< one within the other, at most: those that the part is made of
  std::vector<GrammarPart> parts{};
};

struct GrammarRule {
  std::string name;
  GrammarPart body{};
};

/// A grammar as it was written.
struct GrammarSyntax {
  std::vector<GrammarRule> rules;
  std::size_t root = 0;
};

inline constexpr char32_t last_character = 0x10FFFF;

/// The characters of intervals in any order: ascending, disjoint, without surrogates.
std::vector<Interval> in_order(std::vector<Interval> intervals);
/// All characters but those of intervals that are in order.
std::vector<Interval> all_but(const std::vector<Interval>& intervals);

/// Reads GBNF. Errors: those of Grammar::parse() but cycle.
GrammarSyntax parse_grammar(std::string_view gbnf, std::string_view root);

}  // namespace tenon::text
