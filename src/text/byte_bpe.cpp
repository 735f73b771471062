#include "base/utf8.hpp"
#include "byte_alphabet.hpp"
#include "subword_model.hpp"
#include "unicode.hpp"

#include <array>
#include <cstddef>

namespace tenon::text {
namespace {

/// Byte-level BPE: text is split into words, and each word's bytes are merged by rank.
class ByteBpe final : public SubwordModel {
 public:
  ByteBpe(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe), index_(tables.index), merges_(tables.merges) {
    std::string character;
    for (unsigned byte = 0; byte < 256; ++byte) {
      character.clear();
      append_utf8(character, byte_alphabet.characters[byte]);
      const std::int32_t id = index_.find(character);
      // A control token, too: a byte has no other spelling, and text must not lose bytes.
      byte_ids_[byte] = id >= 0 && recipe.may_spell(id) ? id : -1;
    }
    unknown_ = recipe.vocabulary.unk && !recipe.drops_unknown
                   ? static_cast<std::int32_t>(*recipe.vocabulary.unk)
                   : -1;
  }

  std::string normalize(std::string_view text) const override {
    return recipe_.composes ? compose(text) : std::string(text);
  }

  void encode(std::string_view text, bool is_first, Scratch& scratch,
              std::vector<std::int32_t>& ids) const override {
    std::string prefixed;
    const bool adds_space = recipe_.prefix != SpacePrefix::never &&
                            (is_first || recipe_.prefix != SpacePrefix::first_unless_space);
    if (adds_space && !text.starts_with(' ')) {
      prefixed.assign(1, ' ').append(text);
      text = prefixed;
    }
    scratch.ends.clear();
    split(text, recipe_.stages, scratch.ends, scratch.split);
    std::size_t begin = 0;
    for (const std::uint32_t end : scratch.ends) {
      encode_word(text.substr(begin, end - begin), scratch, ids);
      begin = end;
    }
  }

  void append_piece(std::string& out, std::int32_t id, bool /*is_first*/) const override {
    append_from_alphabet(out, recipe_.token(id));
  }

 private:
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
    if (recipe_.ignores_merges) {
      scratch.word.clear();
      append_in_alphabet(scratch.word, word);
      const std::int32_t id = index_.find(scratch.word);
      if (id >= 0 && recipe_.is_ordinary(id)) {
        ids.push_back(id);
        return;
      }
    }
    Merger& merger = scratch.merger;
    merger.clear();
    for (std::uint32_t i = 0; i < word.size(); ++i) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
      // After a byte without a token is dropped, the bytes around it are adjacent, as in Hugging
      // Face's merging.
      if (id >= 0 || unknown_ >= 0) merger.add(id >= 0 ? id : unknown_, i, i + 1);
    }
    merger.merge([this](const Symbol& left, const Symbol& right) {
      return merges_.find(left.id, right.id);
    });
    for (const Symbol& symbol : merger.symbols()) {
      if (symbol.end != 0) ids.push_back(symbol.id);
    }
  }

  const Recipe& recipe_;
  const TokenIndex& index_;
  const MergeTable& merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<SubwordModel> make_byte_bpe(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<ByteBpe>(recipe, tables);
}

}  // namespace tenon::text
