// Any bytes as a tokenizer.json, or as a vocabulary of any model, and a text: ids of the vocabulary,
// which spell something.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/text/stream_decoder.hpp>
#include <tenon/text/tokenizer.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::testing {

namespace {

/// A model, the name of a pre-tokenizer, then a line for each token: its type, its score, its text.
/// `table` replaces characters.
text::Vocabulary vocabulary_of(std::string_view bytes, std::string_view table) {
  static const std::vector<std::string_view> names = text::pretokenizer_names();
  const auto take = [&] {
    const auto byte = static_cast<unsigned char>(bytes.empty() ? '\0' : bytes.front());
    if (!bytes.empty()) bytes.remove_prefix(1);
    return std::size_t{byte};
  };
  text::Vocabulary v;
  v.model = static_cast<text::TokenizerModel>(take() % 8);
  v.pretokenizer = names[take() % names.size()];
  v.add_space_prefix = take() % 2 != 0;
  v.remove_extra_spaces = take() % 2 != 0;
  v.precompiled_charsmap = table;
  while (!bytes.empty()) {
    v.types.push_back(static_cast<text::TokenType>(1 + take() % 6));
    v.scores.push_back(static_cast<float>(take()) - 200);
    const std::string_view token = bytes.substr(0, bytes.find('\n'));
    v.tokens.push_back(token);
    bytes.remove_prefix(std::min(token.size() + 1, bytes.size()));
  }
  if (!v.tokens.empty()) v.unk = 0;
  for (std::size_t i = 0; i + 2 < v.tokens.size(); ++i) {
    if (v.tokens[i + 2].size() == v.tokens[i].size() + v.tokens[i + 1].size() &&
        v.tokens[i + 2].starts_with(v.tokens[i]) && v.tokens[i + 2].ends_with(v.tokens[i + 1])) {
      v.merges.push_back({v.tokens[i], v.tokens[i + 1]});
    }
  }
  return v;
}

}  // namespace

void fuzz_tokenizer(Bytes bytes) {
  const auto parts = split_sections(bytes, 3);
  if (parts.empty()) return;
  try {
    const std::string_view table = parts.size() > 2 ? parts[2] : std::string_view();
    const auto tokenizer = parts[0].starts_with('{')
                               ? text::Tokenizer::from_json_text(parts[0], "fuzz")
                               : text::Tokenizer(vocabulary_of(parts[0], table));
    const std::string_view text = parts.size() > 1 ? parts[1] : parts[0].substr(0, 256);
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      text::StreamDecoder decoder(tokenizer);
      for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size()) fail("no token's id");
        static_cast<void>(decoder.push(id));
        const std::string_view token = tokenizer.token(id);
        if (!token.empty() && tokenizer.find(token) != id)
          fail("a token that does not find itself");
      }
      static_cast<void>(decoder.finish());
      static_cast<void>(tokenizer.decode(ids));
    }
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
