#include "base/utf8.hpp"
#include "subword_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// Maps floats to integers in descending order: the best score becomes the lowest rank.
std::uint32_t descending(float score) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

/// BPE over characters, as in SentencePiece: adjacent symbols merge into the token with the best
/// score (or by a list of merges), and a character without a token falls back to its bytes.
class CharacterBpe final : public SubwordModel, public WordModel {
 public:
  CharacterBpe(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe),
        index_(tables.index),
        merges_(tables.merges),
        joins_space_(tables.joins_space) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = recipe.byte_fallback ? index_.find(fmt::format("<0x{:02X}>", byte)) : -1;
    }
    if (recipe.vocabulary.unk) unknown_ = static_cast<std::int32_t>(*recipe.vocabulary.unk);
    merges_by_score_ = recipe.vocabulary.merges.empty() && !recipe.vocabulary.scores.empty();
    drops_ = unknown_ < 0 && std::ranges::all_of(byte_ids_, [](auto id) { return id < 0; });
  }

  std::string normalize(std::string_view text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 4 + space_mark.size());
    if (recipe_.prefix == SpacePrefix::always && !text.empty()) out = space_spelling();
    if (!recipe_.escapes_spaces) return out.append(text);
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t space = std::min(text.find(' ', i), text.size());
      out.append(text, i, space - i);
      if (space < text.size()) out.append(space_mark);
      i = space + 1;
    }
    return out;
  }

  void encode(std::string_view text, bool is_first, Scratch& scratch,
              std::vector<std::int32_t>& ids) const override {
    std::string prefixed;
    const bool may_prefix = recipe_.prefix == SpacePrefix::unless_space ||
                            (recipe_.prefix == SpacePrefix::first_unless_space && is_first);
    if (may_prefix && !text.empty() && !text.starts_with(space_spelling())) {
      prefixed.assign(space_spelling()).append(text);
      text = prefixed;
    }
    // Words that no token can join are merged one by one: same result, shorter queues.
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = word_end(text, begin);
      encode_word(text.substr(begin, end - begin), scratch, ids);
      begin = end;
    }
  }

  void append_piece(std::string& out, std::int32_t id, bool is_first) const override {
    std::string_view token = recipe_.token(id);
    if (token.size() == 6 && token.starts_with("<0x") && byte_ids_[byte_of(token)] == id) {
      out.push_back(static_cast<char>(byte_of(token)));
      return;
    }
    if (!recipe_.escapes_spaces) {
      out.append(token);
      return;
    }
    for (std::size_t mark = token.find(space_mark); mark != std::string_view::npos;
         mark = token.find(space_mark)) {
      out.append(token.substr(0, mark));
      if (!is_first || !recipe_.drops_first_spaces) out.push_back(' ');
      token.remove_prefix(mark + space_mark.size());
    }
    out.append(token);
  }

  void encode_word(std::string_view word, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const override {
    if (recipe_.ignores_merges) {
      const std::int32_t id = index_.find(word);
      if (id >= 0 && recipe_.is_ordinary(id)) {
        ids.push_back(id);
        return;
      }
    }
    Merger& merger = scratch.merger;
    merger.clear();
    for (std::size_t i = 0; i < word.size();) {
      const std::size_t length = code_point_at(word, i).length;
      const std::int32_t id = character_id(word, i, length, scratch.word);
      // What has no spelling at all vanishes, and its neighbours become adjacent.
      if (id >= 0 || !drops_) {
        merger.add(id, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + length));
      }
      i += length;
    }
    if (merges_by_score_) {
      merger.merge([this, word](const Symbol& left, const Symbol& right) {
        return by_score(word, left, right);
      });
    } else {
      merger.merge([this](const Symbol& left, const Symbol& right) {
        return merges_.find(left.id, right.id);
      });
    }
    bool after_unknown = false;
    for (const Symbol& symbol : merger.symbols()) {
      if (symbol.end == 0) continue;
      if (symbol.id >= 0) {
        ids.push_back(symbol.id);
        after_unknown = false;
      } else {
        append_fallback(word.substr(symbol.begin, symbol.end - symbol.begin), after_unknown, ids);
      }
    }
  }

 private:
  static unsigned byte_of(std::string_view token) {
    const auto digit = [](char c) -> unsigned {
      if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
      if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
      return 0;
    };
    return digit(token[3]) * 16 + digit(token[4]);
  }

  std::string_view space_spelling() const {
    return recipe_.escapes_spaces ? space_mark : std::string_view(" ");
  }

  std::size_t word_end(std::string_view text, std::size_t begin) const {
    for (std::size_t mark = text.find(space_mark, begin + 1); mark != std::string_view::npos;
         mark = text.find(space_mark, mark + 1)) {
      const auto before = static_cast<unsigned char>(text[mark - 1]);
      if (recipe_.splits_at_space || joins_space_[before] == 0) return mark;
    }
    return text.size();
  }

  /// The id of a character, or -1.
  std::int32_t character_id(std::string_view word, std::size_t at, std::size_t length,
                            std::string& buffer) const {
    std::string_view character = word.substr(at, length);
    if (!recipe_.continuing_prefix.empty() || !recipe_.word_suffix.empty()) {
      buffer.clear();
      if (at != 0) buffer.append(recipe_.continuing_prefix);
      buffer.append(character);
      if (at + length == word.size()) buffer.append(recipe_.word_suffix);
      character = buffer;
    }
    const std::int32_t id = index_.find(character);
    return id >= 0 && (drops_ ? recipe_.may_spell(id) : recipe_.is_ordinary(id)) ? id : -1;
  }

  Candidate by_score(std::string_view word, const Symbol& left, const Symbol& right) const {
    const std::int32_t id = index_.find(word.substr(left.begin, right.end - left.begin));
    if (id < 0 || !recipe_.is_ordinary(id)) return {};
    // Among equal scores the longer left part wins: the order in which Hugging Face's converter
    // lists the merges of a SentencePiece model.
    const std::uint32_t left_length = left.end - left.begin;
    const float score = recipe_.vocabulary.scores[static_cast<std::size_t>(id)];
    return {(std::uint64_t{descending(score)} << 32) |
                (std::numeric_limits<std::uint32_t>::max() - left_length),
            id};
  }

  void append_fallback(std::string_view character, bool& after_unknown,
                       std::vector<std::int32_t>& ids) const {
    const std::size_t old_size = ids.size();
    for (const char byte : character) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id < 0) {
        ids.resize(old_size);
        if (unknown_ >= 0 && !(after_unknown && recipe_.fuses_unknown)) ids.push_back(unknown_);
        after_unknown = true;
        return;
      }
      ids.push_back(id);
    }
    after_unknown = false;
  }

  const Recipe& recipe_;
  const TokenIndex& index_;
  const MergeTable& merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  const ByteFlags& joins_space_;
  std::int32_t unknown_ = -1;
  bool merges_by_score_ = false;  ///< or by the list of merges, which may be empty
  bool drops_ = false;            ///< whether a character without a token leaves nothing
};

}  // namespace

std::unique_ptr<SubwordModel> make_character_bpe(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<CharacterBpe>(recipe, tables);
}

std::unique_ptr<WordModel> make_character_words(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<CharacterBpe>(recipe, tables);
}

}  // namespace tenon::text
