// Any bytes as a tokenizer.json and a text: ids of the vocabulary, which spell something.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/text/stream_decoder.hpp>
#include <tenon/text/tokenizer.hpp>

#include <string>

namespace tenon::testing {

void fuzz_tokenizer(Bytes bytes) {
  const auto parts = split_sections(bytes, 2);
  if (parts.empty()) return;
  try {
    const auto tokenizer = text::Tokenizer::from_json_text(parts[0], "fuzz");
    const std::string_view text = parts.size() > 1 ? parts[1] : parts[0].substr(0, 256);
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      text::StreamDecoder decoder(tokenizer);
      for (const std::int32_t id : ids) {
        if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size()) fail("no token's id");
        static_cast<void>(decoder.push(id));
        if (tokenizer.find(tokenizer.token(id)) != id) fail("a token that does not find itself");
      }
      static_cast<void>(decoder.finish());
      static_cast<void>(tokenizer.decode(ids));
    }
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
