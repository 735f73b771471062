// Parts of tokenizer.json, each alone: what Hugging Face's `tokenizers` 0.23 makes of a text.
#include "support/expect_error.hpp"

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace tenon;
using namespace tenon::text;
using nlohmann::json;
using testing::expect_error;
using Ids = std::vector<std::int32_t>;

namespace {

struct Case {
  const char* part;  ///< its JSON
  const char* text;
  std::vector<std::string> words;
};

const std::vector<Case> normalizers = {
    {R"({"type":"NFC"})", "e\314\201a", {"éa"}},
    {R"({"type":"NFD"})", "éa", {"e\314\201a"}},
    {R"({"type":"NFKC"})", "ﬁ½é", {"fi1⁄2é"}},
    {R"({"type":"NFKD"})", "ﬁ½é", {"fi1⁄2e\314\201"}},
    {R"({"type":"Lowercase"})", "ÀBc", {"àbc"}},
    {R"({"type":"StripAccents"})", "e\314\201a", {"ea"}},
    {R"({"type":"Nmt"})", "a\001b\342\200\213c\011d", {"ab c d"}},
    {R"({"type":"ByteLevel"})", "é a", {"Ã©Ġa"}},
    {R"({"type":"Strip","strip_left":true,"strip_right":true})", "  a b ", {"a b"}},
    {R"({"type":"Strip","strip_left":false,"strip_right":true})", "  a b ", {"  a b"}},
    {R"({"type":"Prepend","prepend":"_"})", "ab", {"_ab"}},
    {R"({"type":"Replace","pattern":{"String":"ab"},"content":"-"})", "abcab", {"-c-"}},
    {R"({"type":"Replace","pattern":{"Regex":"[0-9]+"},"content":"N"})", "a12b3", {"aNbN"}},
    {R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true})",
     "Hé\001\011漢x",
     {"he  漢 x"}},
    {R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,"strip_accents":true,"lowercase":false})",
     "Hé漢x",
     {"He漢x"}},
    {R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":false,"lowercase":true})",
     "HÉ漢",
     {"hé 漢 "}},
    {R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},{"type":"Lowercase"}]})",
     "Éa",
     {"ea"}},
};
const std::vector<Case> pretokenizers = {
    {R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
     "a é's  b",
     {"Ġa", "ĠÃ©", "'s", "Ġ", "Ġb"}},
    {R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})",
     "a é",
     {"aĠÃ©"}},
    {R"({"type":"Whitespace"})", "ab, c_1!? d", {"ab", ",", "c_1", "!?", "d"}},
    {R"({"type":"WhitespaceSplit"})", "ab, c  d", {"ab,", "c", "d"}},
    {R"({"type":"BertPreTokenizer"})", "ab,c! d", {"ab", ",", "c", "!", "d"}},
    {R"({"type":"Punctuation","behavior":"Isolated"})", "ab,!c", {"ab", ",", "!", "c"}},
    {R"({"type":"Punctuation","behavior":"Removed"})", "ab,!c", {"ab", "c"}},
    {R"({"type":"Punctuation","behavior":"MergedWithPrevious"})", "ab,!c", {"ab,", "!", "c"}},
    {R"({"type":"Punctuation","behavior":"MergedWithNext"})", "ab,!c", {"ab", ",", "!c"}},
    {R"({"type":"Punctuation","behavior":"Contiguous"})", "ab,!c", {"ab", ",!", "c"}},
    {R"({"type":"Digits","individual_digits":true})", "a12b", {"a", "1", "2", "b"}},
    {R"({"type":"Digits","individual_digits":false})", "a12b", {"a", "12", "b"}},
    {R"({"type":"CharDelimiterSplit","delimiter":"-"})", "a-b--c", {"a", "b", "c"}},
    {R"({"type":"FixedLength","length":3})", "abcdefg", {"abc", "def", "g"}},
    {R"({"type":"Split","pattern":{"String":"--"},"behavior":"Removed","invert":false})",
     "a--b---c",
     {"a", "b", "-c"}},
    {R"({"type":"Split","pattern":{"Regex":"[0-9]{2}"},"behavior":"Isolated","invert":false})",
     "a123b",
     {"a", "12", "3b"}},
    {R"({"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true})",
     "ab1cd",
     {"ab", "cd"}},
    {R"({"type":"Split","pattern":{"Regex":"\\d"},"behavior":"MergedWithPrevious","invert":false})",
     "a1b23c",
     {"a1", "b2", "3", "c"}},
    {R"({"type":"Split","pattern":{"Regex":"\\d"},"behavior":"MergedWithNext","invert":false})",
     "a1b23c",
     {"a", "1b", "2", "3c"}},
    {R"({"type":"Split","pattern":{"Regex":"\\d"},"behavior":"Contiguous","invert":false})",
     "a1b23c",
     {"a", "1", "b", "23", "c"}},
    {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true})",
     "ab c  d",
     {"_ab", "_c", "_", "_d"}},
    {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never","split":true})",
     "ab c",
     {"ab", "_c"}},
    {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":false})",
     "ab c",
     {"_ab_c"}},
    {R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Digits","individual_digits":false},{"type":"Punctuation","behavior":"Isolated"}]})",
     "ab12, c",
     {"ab", "12", ",", "c"}},
};
const std::vector<Case> decoders = {
    {R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
     "a é",
     {"a", "ĠÃ©"}},
    {R"({"type":"ByteFallback"})", "aéb", {"a", "<0xC3>", "<0xA9>", "b"}},
    {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true})",
     "ab c",
     {"_ab", "_c"}},
    {R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never","split":true})",
     " ab c",
     {"_ab", "_c"}},
    {R"({"type":"WordPiece","prefix":"##","cleanup":true})", "abc d!", {"ab", "##c", "d", "!"}},
    {R"({"type":"WordPiece","prefix":"##","cleanup":false})", "abc d !", {"ab", "##c", "d", "!"}},
    {R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})",
     "aé b",
     {"_a", "<0xC3>", "<0xA9>", "_b"}},
    {R"(null)", "a b", {"a", "b"}},
};

/// A tokenizer whose vocabulary is these words, with one part of a case.
Tokenizer with_part(const char* name, const Case& one, Ids* ids) {
  json vocabulary{{"[UNK]", 0}};
  for (const std::string& word : one.words) {
    const auto found = vocabulary.find(word);
    const auto id = found != vocabulary.end() ? found->get<std::int32_t>()
                                              : static_cast<std::int32_t>(vocabulary.size());
    vocabulary[word] = id;
    ids->push_back(id);
  }
  const json document{
      {name, json::parse(one.part)},
      {"model", {{"type", "WordLevel"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
  return Tokenizer::from_json_text(document.dump());
}

}  // namespace

TEST_CASE("tokenizer.json: normalizers and pre-tokenizers, each alone") {
  for (const auto& [name, cases] :
       {std::pair("normalizer", &normalizers), std::pair("pre_tokenizer", &pretokenizers)}) {
    for (const Case& one : *cases) {
      INFO(one.part << " of " << one.text);
      Ids ids;
      const Tokenizer tokenizer = with_part(name, one, &ids);
      CHECK(tokenizer.encode(one.text) == ids);
    }
  }
}

TEST_CASE("tokenizer.json: decoders, each alone") {
  for (const Case& one : decoders) {
    INFO(one.part);
    Ids ids;
    const Tokenizer tokenizer = with_part("decoder", one, &ids);
    CHECK(tokenizer.decode(ids) == one.text);
  }
}

TEST_CASE("tokenizer.json: steps that make long texts of short ones are refused when they do") {
  const auto several = [](const char* type, const char* list, const char* step, int count) {
    json part{{"type", type}, {list, json::array()}};
    for (int i = 0; i < count; ++i) part[list].push_back(json::parse(step));
    return part.dump();
  };
  const auto part_of = [](const char* name, const std::string& part) {
    Ids ids;
    return with_part(name, {part.c_str(), "", {"a"}}, &ids);
  };
  const char* const twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const auto normalizers = [&](int count) {
    return part_of("normalizer", several("Sequence", "normalizers", twice, count));
  };
  CHECK(normalizers(10).encode("a") == Ids{0});  // 1024 bytes, a word without a token
  expect_error(Errc::limit_exceeded, [&] { normalizers(11).encode("a"); });
  expect_error(Errc::limit_exceeded, [&] { normalizers(60).encode("a"); });
  const auto decoders = [&](int count) {
    return part_of("decoder", several("Sequence", "decoders", twice, count));
  };
  CHECK(decoders(10).decode(Ids{1}) == std::string(1024, 'a'));
  expect_error(Errc::limit_exceeded, [&] { decoders(60).decode(Ids{1}); });
  const std::string bytes =
      several("Sequence", "pretokenizers",
              R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})", 60);
  expect_error(Errc::limit_exceeded, [&] { part_of("pre_tokenizer", bytes).encode("\x01"); });
}

TEST_CASE("tokenizer.json: parts that are wrong, or not implemented") {
  const auto refused = [](const char* name, const char* part, Errc code) {
    INFO(name << " " << part);
    Ids ids;
    expect_error(code, [&] { with_part(name, {part, "", {"a"}}, &ids); });
  };
  const char* const decoder = "decoder";
  const char* const splitter = "pre_tokenizer";
  const char* const normalizer = "normalizer";
  refused(normalizer, R"({"type":"Odd"})", Errc::unsupported);
  refused(normalizer, R"({"type":"Precompiled","precompiled_charsmap":"?"})", Errc::bad_tokenizer);
  refused(normalizer, R"({"type":"Replace","pattern":{"String":""},"content":"a"})",
          Errc::unsupported);
  refused(normalizer, R"({"type":"Replace","content":"a"})", Errc::bad_tokenizer);
  refused(splitter, R"({"type":"Odd"})", Errc::unsupported);
  refused(splitter, R"({"type":"FixedLength","length":0})", Errc::bad_tokenizer);
  refused(splitter, R"({"type":"Metaspace","replacement":"__"})", Errc::bad_tokenizer);
  refused(splitter, R"({"type":"Metaspace","replacement":"_","prepend_scheme":"sometimes"})",
          Errc::bad_tokenizer);
  refused(splitter, R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})",
          Errc::unsupported);
  refused(decoder, R"({"type":"Odd"})", Errc::unsupported);
  refused(decoder, R"({"type":"Replace","pattern":{"Regex":"a"},"content":"b"})",
          Errc::unsupported);
  refused(decoder, R"({"type":"Strip","content":" ","start":1,"stop":0})", Errc::unsupported);
  refused(decoder,
          R"({"type":"Sequence","decoders":[{"type":"Fuse"},
              {"type":"Replace","pattern":{"String":"a"},"content":"b"}]})",
          Errc::unsupported);
}
