#pragma once

#include "merging.hpp"
#include "recipe.hpp"
#include "tables.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Buffers of one encode() call, reused from word to word.
struct Scratch {
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> stage_ends;
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

  /// Appends the bytes of an ordinary token.
  virtual void append_piece(std::string& out, std::int32_t id) const = 0;
};

/// The models keep references to `recipe` and `tables`, which must outlive them.
std::unique_ptr<SubwordModel> make_byte_bpe(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_character_bpe(const Recipe& recipe, const Tables& tables);
std::unique_ptr<SubwordModel> make_wordpiece(const Recipe& recipe, const Tables& tables);

}  // namespace tenon::text
