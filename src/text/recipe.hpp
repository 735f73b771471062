#pragma once

#include "pipeline.hpp"
#include "pretokenizer.hpp"

#include <tenon/text/vocabulary.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

inline constexpr std::string_view space_mark = "\xE2\x96\x81";  ///< U+2581, SentencePiece's space

/// A vocabulary with all rules of its tokenizer: implied by names and flags of GGUF metadata, or
/// explicit in a tokenizer.json.
struct Recipe {
  Vocabulary vocabulary;

  std::vector<Stage> stages;    ///< bpe: how text is split into words
  bool composes = false;        ///< bpe: NFC first
  bool ignores_merges = false;  ///< bpe: a word that is a token is never taken apart
  bool drops_unknown = true;    ///< bpe: a byte without a token vanishes rather than become unk
  SpacePrefix prefix = SpacePrefix::never;

  bool escapes_spaces = true;    ///< spm: a space is written "▁"
  bool splits_at_space = false;  ///< spm: no token crosses into the next word
  bool byte_fallback = true;     ///< spm: unknown characters become their bytes' tokens
  bool fuses_unknown = true;     ///< spm: adjacent unknown characters become one token

  std::vector<bool> only_added;   ///< by id: tokens that the model does not know; or empty
  std::string continuing_prefix;  ///< of a character inside a word, in merges
  std::string word_suffix;        ///< of a word's last character, in merges
  std::vector<double> scores;     ///< unigram: more exact than the vocabulary's; or empty
  double lowest_score = 0;        ///< unigram: of a known token

  std::optional<Pipeline> pipeline;  ///< steps that the fields above do not describe

  bool drops_first_spaces = false;    ///< spm: decode() drops all spaces of the first token
  bool strips_decoded_space = false;  ///< decode() drops one leading space
  bool cleans_up_decoded = false;     ///< no space before "." and the like

  std::vector<std::int32_t> before;  ///< ids that add_special puts in front
  std::vector<std::int32_t> after;   ///< and behind
  /// What stands between two texts; none where they cannot be one input.
  std::optional<std::vector<std::int32_t>> between = std::vector<std::int32_t>();

  TokenType type(std::int32_t id) const {
    const auto& types = vocabulary.types;
    return types.empty() ? TokenType::normal : types[static_cast<std::size_t>(id)];
  }
  std::string_view token(std::int32_t id) const {
    return vocabulary.tokens[static_cast<std::size_t>(id)];
  }
  /// Whether ordinary text may become this token. Never a control token: a user's input must not be
  /// able to spell the model's structure.
  bool is_ordinary(std::int32_t id) const {
    if (!only_added.empty() && only_added[static_cast<std::size_t>(id)]) return false;
    const TokenType t = type(id);
    return t == TokenType::normal || t == TokenType::user_defined;
  }
  /// Whether what has no other spelling may become this token: control tokens that the model knows,
  /// too.
  bool may_spell(std::int32_t id) const {
    if (!only_added.empty() && only_added[static_cast<std::size_t>(id)]) return false;
    return is_ordinary(id) || type(id) == TokenType::control;
  }
};

/// Completes a vocabulary by its model's and its pre-tokenizer's rules.
///
/// Errors: unsupported (an unknown pre-tokenizer), bad_tokenizer (add_bos or add_eos without the
/// token). Expects a vocabulary that check_vocabulary() accepts.
Recipe complete(Vocabulary vocabulary);

/// Errors: bad_tokenizer, as the constructor of Tokenizer documents; texts are compared later.
void check_vocabulary(const Vocabulary& vocabulary);

}  // namespace tenon::text
