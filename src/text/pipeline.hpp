#pragma once

#include "growth_limit.hpp"
#include "normalizer.hpp"
#include "pretokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Where a text gets a space prefix, so that its first word is tokenized like others.
enum class SpacePrefix {
  never,
  always,              ///< before every part between special tokens
  unless_space,        ///< the same, but not before a part that has one
  first_unless_space,  ///< only where the text begins
};

/// What becomes of matches, as Hugging Face's `tokenizers` name it.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// A step that cuts a text into words, or rewrites the words.
struct WordStep {
  enum class Kind {
    split,         ///< at the matches of `pattern`
    spaces,        ///< " " becomes `mark`, which is also the prefix
    prefix_space,  ///< a space before a word without one
    alphabet,      ///< the bytes become characters of the byte alphabet
  };
  Kind kind = Kind::split;
  Stage pattern = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool is_inverted = false;  ///< what lies between the matches counts as the matches
  std::string mark;
  SpacePrefix prefix = SpacePrefix::never;
};

/// What a token spells.
struct DecodeStep {
  enum class Kind {
    replace,        ///< `from` becomes `to`
    byte_fallback,  ///< "<0x0A>" is a byte
    alphabet,
    wordpiece,        ///< a space before a token without the prefix `from`
    joined_by_space,  ///< a space before a token
    escapes,          ///< RWKV's: \n, \t, \r, \xHH and a backslash before others
  };
  Kind kind = Kind::replace;
  std::string from = {};
  std::string to = {};
  bool drops_when_first = false;  ///< of replace: the first token's are left out instead
};

/// The steps around a model, in order, of tokenizers without a model of their own.
struct Pipeline {
  /// The models that take words.
  enum class Model { characters, wordpiece, wordlevel, unigram, rwkv, plamo2 };
  Model model = Model::unigram;
  std::vector<NormalizerStep> normalizers;
  std::vector<WordStep> steps;
  std::vector<DecodeStep> decoders;
};

/// The words of a text: ranges of one that steps may rewrite.
struct Words {
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };
  std::string text;
  std::vector<Range> ranges;
  GrowthLimit limit{text.size()};

  std::string_view operator[](std::size_t at) const {
    return std::string_view(text).substr(ranges[at].begin, ranges[at].end - ranges[at].begin);
  }
};

/// Buffers that cut() keeps between texts.
struct CutScratch {
  struct Part {
    std::uint32_t begin;
    std::uint32_t end;
    bool is_match;
  };
  std::vector<Part> parts;
  std::vector<Words::Range> ranges;
  ExpressionMatcher::Scratch matcher;
};

/// Takes one step. `is_first` says that the first word begins the text.
/// Errors: limit_exceeded (GrowthLimit).
void cut(Words& words, const WordStep& step, bool is_first, CutScratch& scratch);

}  // namespace tenon::text
