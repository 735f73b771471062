#pragma once

#include "character_map.hpp"
#include "pretokenizer.hpp"

#include <tenon/text/vocabulary.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A step that rewrites a text before it is split; the names are those of tokenizer.json files.
struct NormalizerStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    strip_accents,
    strip,          ///< white space at the ends
    prepend,        ///< `to`, unless the text is empty
    replace,        ///< every match of `pattern` by `to`
    nmt,            ///< control characters vanish, other spaces become spaces
    precompiled,    ///< `map`, as Hugging Face's `tokenizers` apply it
    sentencepiece,  ///< `map`, as SentencePiece applies it
    join_spaces,    ///< spaces: one of a run, none at the ends
    bert,           ///< `bert`
    alphabet,
  };
  Kind kind = Kind::nfc;
  bool left = false;   ///< of strip
  bool right = false;  ///< of strip
  std::string to = {};
  Stage pattern = {};
  std::shared_ptr<const CharacterMap> map = {};
  BertOptions bert = {};
};

/// Ill-formed bytes stay, except through bert. Errors: limit_exceeded (GrowthLimit).
std::string normalize(std::span<const NormalizerStep> steps, std::string text);

/// BertNormalizer.
std::string normalize_bert(const BertOptions& options, std::string_view text);

}  // namespace tenon::text
