#pragma once

#include "base/utf8.hpp"
#include "expression_matcher.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Returns the end of the match that starts at `position`; `position` where there is none.
///
/// A scanner implements one regular expression. It looks ahead over at most a run of one kind of
/// character, so that splitting a text takes linear time.
using Scanner = std::size_t (*)(std::string_view text, std::size_t position);

/// A way to find matches: a scanner, or an expression.
struct Stage {
  Scanner scanner = nullptr;
  std::shared_ptr<const Expression> expression;

  friend bool operator==(const Stage&, const Stage&) = default;
};

/// Splits in order, each inside the pieces of the one before. Matches become pieces, and so does
/// what lies between them.
using SplitStages = std::span<const Stage>;

/// How a family's words are spelled before they are merged.
enum class Spelling {
  bytes,       ///< in the byte alphabet
  characters,  ///< as they are, with "▁" for a space; merges cross words
  words,       ///< as they are, white space left out
};

/// The pre-tokenizer of a name in GGUF files.
struct Pretokenizer {
  std::vector<Stage> stages;
  bool composes = false;        ///< the family's tokenizer brings text to NFC first
  bool ignores_merges = false;  ///< a word that is a token is never taken apart
  bool adds_bos = false;        ///< unless the file says otherwise
  Spelling spelling = Spelling::bytes;
};

std::optional<Pretokenizer> find_pretokenizer(std::string_view name);

/// The stages of a regular expression: a scanner for those that published files use most, the
/// expression itself for others. Errors: those of Expression.
std::vector<Stage> split_stages(std::string_view regex);

/// Buffers that split() keeps between texts.
struct SplitScratch {
  std::vector<std::uint32_t> ends;
  ExpressionMatcher::Scratch matcher;
};

/// Appends the ends of the pieces of `text` to `ends`.
void split(std::string_view text, SplitStages stages, std::vector<std::uint32_t>& ends,
           SplitScratch& scratch);

/// Calls `found(begin, end)` for every match of a stage in `text`, from left to right.
template <typename Found>
void for_each_match(std::string_view text, const Stage& stage, ExpressionMatcher::Scratch& scratch,
                    Found&& found) {
  if (stage.scanner != nullptr) {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = stage.scanner(text, i);
      if (end != i) found(i, end);
      i = end != i ? end : i + code_point_at(text, i).length;
    }
    return;
  }
  ExpressionMatcher matcher(*stage.expression, text, scratch);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = matcher.may_start_at(i) ? matcher.end_from(i) : i;
    if (end != i) found(i, end);
    i = end != i ? end : i + code_point_at(text, i).length;
  }
}

}  // namespace tenon::text
