#include "base/utf8.hpp"
#include "subword_model.hpp"
#include "unicode.hpp"
#include "unicode_ages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tenon::text {
namespace {

/// The blocks whose characters BERT splits. The gap before 0x2B920 is a mistake in Hugging Face's
/// code, reproduced for equal results.
constexpr std::array chinese{
    Interval{0x3400, 0x4DBF},   Interval{0x4E00, 0x9FFF},   Interval{0xF900, 0xFAFF},
    Interval{0x20000, 0x2A6DF}, Interval{0x2A700, 0x2B81F}, Interval{0x2B920, 0x2CEAF},
    Interval{0x2F800, 0x2FA1F},
};

bool is_removed(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || (has(c, trait_other) && !lies_in(newer_format, c));
}

bool is_accent(char32_t c) {
  // U+1734 became a spacing mark after Unicode 8.
  return c == 0x1734 || (has(c, trait_nonspacing) && !lies_in(newer_nonspacing, c));
}

/// BERT's WordPiece: words are cleaned, then cut into the longest pieces that the vocabulary has,
/// from the left.
class WordPiece final : public SubwordModel {
 public:
  WordPiece(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe),
        options_(recipe.vocabulary.bert),
        index_(tables.index),
        unknown_(static_cast<std::int32_t>(recipe.vocabulary.unk.value_or(0))) {}

  std::string normalize(std::string_view text) const override {
    std::vector<char32_t> characters = cleaned(text);
    if (options_.strip_accents.value_or(options_.lowercase)) {
      decompose(characters);
      std::erase_if(characters, is_accent);
    }
    std::string out;
    out.reserve(text.size());
    std::vector<char32_t> lower;
    for (const char32_t c : characters) {
      if (!options_.lowercase) {
        append_utf8(out, c);
        continue;
      }
      lower.clear();
      append_lowercase(lower, c);
      for (const char32_t l : lower) append_utf8(out, l);
    }
    return out;
  }

  void encode(std::string_view text, bool /*is_first*/, Scratch& scratch,
              std::vector<std::int32_t>& ids) const override {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = code_point_at(text, i);
      const bool is_space = has(c.value, trait_space);
      if (is_space || is_punctuation(c.value)) {
        encode_word(text.substr(begin, i - begin), scratch, ids);
        begin = i + c.length;
        if (!is_space) encode_word(text.substr(i, c.length), scratch, ids);
      }
      i += c.length;
    }
    encode_word(text.substr(begin), scratch, ids);
  }

  void append_piece(std::string& out, std::int32_t id) const override {
    std::string_view token = recipe_.token(id);
    if (!options_.word_prefix.empty()) {
      const bool starts_word = token.starts_with(options_.word_prefix);
      if (starts_word) token.remove_prefix(options_.word_prefix.size());
      if (starts_word) out.push_back(' ');
    } else if (token.starts_with(options_.continuing_prefix)) {
      token.remove_prefix(options_.continuing_prefix.size());
    } else {
      out.push_back(' ');
    }
    out.append(token);
  }

 private:
  /// The text's characters without control characters and with spaces around Chinese ones.
  std::vector<char32_t> cleaned(std::string_view text) const {
    std::vector<char32_t> out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = code_point_at(text, i);
      i += c.length;
      char32_t value = c.value;
      if (options_.clean_text) {
        if (is_removed(value)) continue;
        if (has(value, trait_space)) value = ' ';
      }
      if (options_.split_chinese && lies_in(chinese, value)) {
        out.insert(out.end(), {U' ', value, U' '});
      } else {
        out.push_back(value);
      }
    }
    return out;
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
    if (word.empty()) return;
    const auto characters = std::count_if(word.begin(), word.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    });
    if (static_cast<std::size_t>(characters) > options_.max_word_chars) {
      ids.push_back(unknown_);
      return;
    }
    const std::size_t old_size = ids.size();
    for (std::size_t begin = 0; begin < word.size();) {
      // Prefix and rest stand in one buffer, so that every shorter piece is a view of it.
      const std::string_view prefix =
          begin == 0 ? std::string_view(options_.word_prefix) : continuing_prefix();
      scratch.word.assign(prefix).append(word.substr(begin));
      std::size_t end = std::min(scratch.word.size(), index_.max_length());
      while (end > prefix.size() && !is_character_end(scratch.word, end)) --end;
      std::int32_t id = -1;
      for (; end > prefix.size(); --end) {
        if (!is_character_end(scratch.word, end)) continue;
        id = index_.find(std::string_view(scratch.word).substr(0, end));
        if (id >= 0) break;
      }
      if (id < 0) {
        ids.resize(old_size);
        ids.push_back(unknown_);
        return;
      }
      ids.push_back(id);
      begin += end - prefix.size();
    }
  }

  std::string_view continuing_prefix() const {
    // GGUF marks the pieces that start a word instead.
    return options_.word_prefix.empty() ? std::string_view(options_.continuing_prefix)
                                        : std::string_view();
  }

  static bool is_character_end(std::string_view text, std::size_t at) {
    return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
  }

  const Recipe& recipe_;
  const BertOptions& options_;
  const TokenIndex& index_;
  std::int32_t unknown_;
};

}  // namespace

std::unique_ptr<SubwordModel> make_wordpiece(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<WordPiece>(recipe, tables);
}

}  // namespace tenon::text
