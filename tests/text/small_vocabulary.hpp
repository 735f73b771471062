#pragma once

#include <tenon/text/vocabulary.hpp>

#include <string_view>
#include <vector>

namespace tenon::testing {

/// A byte-level vocabulary of a few words: ids 0-1 control, 2 user-defined, then letters and
/// merges.
inline text::Vocabulary small_bpe() {
  text::Vocabulary v;
  v.model = text::TokenizerModel::bpe;
  v.pretokenizer = "gpt-2";
  v.tokens = {"<bos>", "<|im_end|>", "[tool]", "h",  "e",    "l",     "o",  "Ġ",
              "Ã",     "©",          "he",     "ll", "hell", "hello", "Ġhe"};
  v.types.assign(v.tokens.size(), text::TokenType::normal);
  v.types[0] = v.types[1] = text::TokenType::control;
  v.types[2] = text::TokenType::user_defined;
  v.merges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "he"}};
  v.bos = 0;
  v.eos = 1;
  return v;
}

/// A SentencePiece-style vocabulary with all 256 bytes from id 3 on.
inline text::Vocabulary small_spm() {
  static const std::vector<std::string> bytes = [] {
    std::vector<std::string> spelled;
    for (int byte = 0; byte < 256; ++byte) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      spelled.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
    }
    return spelled;
  }();
  text::Vocabulary v;
  v.model = text::TokenizerModel::spm;
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {text::TokenType::unknown, text::TokenType::control, text::TokenType::control};
  v.tokens.insert(v.tokens.end(), bytes.begin(), bytes.end());
  v.types.resize(v.tokens.size(), text::TokenType::byte);
  v.scores.assign(v.tokens.size(), 0.0f);
  float score = -1;
  for (const std::string_view piece :
       {"ab", "▁a", "abc", "▁", "a", "b", "c", "▁ab", "<", "/", "s", ">", "</", "s>"}) {
    v.tokens.push_back(piece);
    v.types.push_back(text::TokenType::normal);
    v.scores.push_back(score--);
  }
  v.unk = 0;
  v.bos = 1;
  v.eos = 2;
  return v;
}

}  // namespace tenon::testing
