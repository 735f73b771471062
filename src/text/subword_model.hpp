#pragma once

#include "merging.hpp"
#include "recipe.hpp"
#include "tables.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text {

/// The best way to spell a text up to (or from) one place.
struct BestPath {
  double score = 0;
  std::int32_t other_end = -1;  ///< of the last (or first) token; -1: the place was not reached
  std::int32_t id = -1;         ///< -1: a character without a token
};

/// Buffers of one encode() call, reused from word to word.
struct Scratch {
  std::vector<std::uint32_t> ends;
  SplitScratch split;
  CutScratch cut;
  std::vector<BestPath> paths;
  std::vector<std::pair<std::uint32_t, std::int32_t>> matches;
  std::vector<char32_t> characters;
  std::string word;
  Merger merger;
};

/// Turns text without special tokens into ids. One per TokenizerModel; immutable.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  /// Normalises a text, before tokens with AddedToken::normalized are matched.
  virtual std::string normalize(std::string_view text) const = 0;

  /// Appends the ids of a normalised text; `is_first` says that the whole text begins here.
  virtual void encode(std::string_view text, bool is_first, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const = 0;

  /// Appends the bytes of an ordinary token; `is_first` says that it begins a text.
  virtual void append_piece(std::string& out, std::int32_t id, bool is_first) const = 0;
};

/// Turns a word into ids, whatever steps cut it. Immutable and thread-safe.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual void encode_word(std::string_view word, Scratch& scratch,
                           std::vector<std::int32_t>& ids) const = 0;
};

/// The models keep references to `recipe` and `tables`, which must outlive them.
std::unique_ptr<SubwordModel> make_byte_bpe(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_character_bpe(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_wordpiece(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_hybrid_dna(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_pipeline(const Recipe& recipe, const Tables& tables);

std::unique_ptr<WordModel> make_character_words(const Recipe& recipe, const Tables& tables);
std::unique_ptr<WordModel> make_wordpiece_words(const Recipe& recipe, const Tables& tables);
std::unique_ptr<WordModel> make_unigram_words(const Recipe& recipe, const Tables& tables);
std::unique_ptr<WordModel> make_rwkv_words(const Recipe& recipe);
std::unique_ptr<WordModel> make_plamo2_words(const Recipe& recipe, const Tables& tables);

}  // namespace tenon::text
