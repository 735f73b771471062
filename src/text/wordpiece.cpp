#include "base/utf8.hpp"
#include "normalizer.hpp"
#include "subword_model.hpp"
#include "unicode.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// BERT's WordPiece: words are cleaned, then cut into the longest pieces that the vocabulary has,
/// from the left.
class WordPiece final : public SubwordModel, public WordModel {
 public:
  WordPiece(const Recipe& recipe, const Tables& tables)
      : recipe_(recipe),
        options_(recipe.vocabulary.bert),
        index_(tables.index),
        unknown_(static_cast<std::int32_t>(recipe.vocabulary.unk.value_or(0))) {
    // Each piece is looked for from the longest on.
    constexpr std::size_t longest_token = 512;
    if (index_.max_length() <= longest_token) return;
    throw Error(Errc::limit_exceeded, "tokenizer",
                fmt::format("a token has {} bytes; those of WordPiece have at most {}",
                            index_.max_length(), longest_token));
  }

  std::string normalize(std::string_view text) const override {
    return normalize_bert(options_, text);
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

  void append_piece(std::string& out, std::int32_t id, bool /*is_first*/) const override {
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

  void encode_word(std::string_view word, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const override {
    if (word.empty()) return;
    const auto characters =
        std::count_if(word.begin(), word.end(), [](char c) { return !continues_character(c); });
    if (static_cast<std::size_t>(characters) > options_.max_word_chars) {
      ids.push_back(unknown_);
      return;
    }
    const std::size_t old_size = ids.size();
    for (std::size_t begin = 0; begin < word.size();) {
      // Prefix and rest, as far as a token may go, stand in one buffer: every shorter piece is a view of it.
      const std::string_view prefix =
          begin == 0 ? std::string_view(options_.word_prefix) : continuing_prefix();
      scratch.word.assign(prefix).append(word.substr(begin, index_.max_length() + 1));
      std::size_t end = std::min(scratch.word.size(), index_.max_length());
      while (end > prefix.size() && !is_character_end(scratch.word, end)) --end;
      std::int32_t id = -1;
      for (; end > prefix.size(); --end) {
        if (!is_character_end(scratch.word, end)) continue;
        id = index_.find(std::string_view(scratch.word).substr(0, end));
        if (id >= 0 && recipe_.is_ordinary(id)) break;
        id = -1;
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

 private:
  std::string_view continuing_prefix() const {
    // GGUF marks the pieces that start a word instead.
    return options_.word_prefix.empty() ? std::string_view(options_.continuing_prefix)
                                        : std::string_view();
  }

  static bool is_character_end(std::string_view text, std::size_t at) {
    return at == text.size() || !continues_character(text[at]);
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

std::unique_ptr<WordModel> make_wordpiece_words(const Recipe& recipe, const Tables& tables) {
  return std::make_unique<WordPiece>(recipe, tables);
}

}  // namespace tenon::text
