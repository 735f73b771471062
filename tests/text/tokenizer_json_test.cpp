#include "support/expect_error.hpp"

#include <tenon/text/tokenizer.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace tenon;
using namespace tenon::text;
using nlohmann::json;
using testing::expect_error;
using Ids = std::vector<std::int32_t>;

namespace {

std::string base64_encoded(const std::string& bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : digits[three >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

/// A WordPiece file as small as they get.
json wordpiece() {
  return json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[UNK]", "special": true},
                     {"id": 1, "content": "[CLS]", "special": true},
                     {"id": 2, "content": "[SEP]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4}}
  })");
}

/// A byte-level BPE file as small as they get.
json bpe() {
  return json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<|end|>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4},
              "merges": ["a b", ["Ġ", "ab"]]}
  })");
}

Tokenizer read(const json& document) { return Tokenizer::from_json_text(document.dump()); }

void expect_bad(const json& document, Errc code = Errc::bad_tokenizer) {
  INFO(document.dump(1));
  expect_error(code, [&] { read(document); });
}

}  // namespace

TEST_CASE("tokenizer.json: two texts, as Hugging Face's tokenizers join them") {
  json document = wordpiece();
  const auto pair = [&] { return read(document).encode_pair("Ab a", "a"); };
  CHECK(pair() == Ids{1, 3, 4, 3, 2, 3, 2});
  CHECK(read(document).encode_pair("Ab a", "a", {.add_special = false}) == Ids{3, 4, 3, 3});
  CHECK(read(document).encode_pair("", "[SEP]", {.parse_special = false}) ==
        Ids{1, 2, 0, 0, 0, 2});  // "[", "sep" and "]" are unknown
  document["post_processor"]["type"] = "RobertaProcessing";
  CHECK(pair() == Ids{1, 3, 4, 3, 2, 2, 3, 2});
  document.erase("post_processor");
  CHECK(pair() == Ids{3, 4, 3, 3});
  document["post_processor"] = json::parse(R"({
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
             {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                       "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}})");
  CHECK(pair() == Ids{1, 3, 4, 3, 2, 1, 3, 2});
  document["post_processor"]["pair"].erase(0);  // is framed otherwise than one text
  CHECK(read(document).encode("a") == Ids{1, 3, 2});
  expect_error(Errc::unsupported, pair);
  document["post_processor"]["pair"] = json::array();
  expect_error(Errc::unsupported, pair);
  const json bert = wordpiece()["post_processor"], frame = document["post_processor"];
  const auto sequence = [&](const json& processors) {
    document["post_processor"] = {{"type", "Sequence"}, {"processors", processors}};
    return document;
  };
  CHECK(read(sequence({{{"type", "ByteLevel"}}, bert})).encode_pair("a", "a") ==
        Ids{1, 3, 2, 3, 2});
  for (const json& processors : {json{frame, bert}, json{bert, frame, bert}, json{bert, bert}}) {
    expect_bad(sequence(processors), Errc::unsupported);
  }
}

TEST_CASE("tokenizer.json: WordPiece with its template") {
  const Tokenizer t = read(wordpiece());
  CHECK(t.encode("Ab a") == Ids{1, 3, 4, 3, 2});
  CHECK(t.encode("[SEP]", {.add_special = false}) == Ids{2});
  CHECK(t.cls() == 1);
  CHECK(t.sep() == 2);
  CHECK(t.unk() == 0);
}

TEST_CASE("tokenizer.json: byte-level BPE, merges in both spellings") {
  const Tokenizer t = read(bpe());
  CHECK(t.encode("ab ab<|end|>") == Ids{3, 4, 5});
  CHECK(t.is_eog(5));
  auto spaced = bpe();
  spaced["pre_tokenizer"]["add_prefix_space"] = true;
  CHECK(read(spaced).encode("ab") == Ids{4});
}

// Ids are those of Hugging Face's with encode_special_tokens.
TEST_CASE("tokenizer.json: bytes whose tokens are control tokens, too, stay in text") {
  json document = bpe();
  document["added_tokens"].push_back({{"id", 1}, {"content", "b"}, {"special", true}});
  CHECK(read(document).encode("bab<|end|>") == Ids{1, 0, 1, 5});
  CHECK(read(document).encode("bab", {.parse_special = false}) == Ids{1, 3});
  document["normalizer"] = {{"type", "NFKC"}};  // goes step by step
  CHECK(read(document).encode("bab", {.parse_special = false}) == Ids{1, 3});
}

// Ids are Hugging Face's.
TEST_CASE("tokenizer.json: of tokens that become equal the first counts, of special ones first") {
  json document = bpe();
  document["normalizer"] = {{"type", "Lowercase"}};
  const auto add = [&](int id, const char* content, bool is_special, bool is_word) {
    document["added_tokens"].push_back({{"id", id},
                                        {"content", content},
                                        {"special", is_special},
                                        {"normalized", true},
                                        {"single_word", is_word}});
  };
  add(6, "ABA", false, true);
  add(7, "aba", false, false);
  CHECK(read(document).encode("babA Aba") == Ids{1, 3, 0, 2, 6});
  add(8, "Aba", true, false);
  CHECK(read(document).encode("babA Aba") == Ids{1, 8, 2, 8});
}

// Ids are Hugging Face's.
TEST_CASE("tokenizer.json: tokens strip white space before Metaspace replaces it") {
  json document = bpe();
  document["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"▁", 2}, {"▁a", 3}};
  document["model"]["merges"] = {"▁ a"};
  document["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
  document["added_tokens"][0] = {{"id", 4},          {"content", "<mask>"},
                                 {"special", false}, {"normalized", true},
                                 {"lstrip", true},   {"rstrip", true}};
  CHECK(read(document).encode("b  <mask> a a") == Ids{1, 4, 0, 3});
  // What one strips may be where another begins.
  document["added_tokens"].push_back({{"id", 5}, {"content", " <x>"}, {"special", true}});
  document["added_tokens"][0]["normalized"] = false;
  CHECK(read(document).encode("<mask>   <x>a") == Ids{4, 5, 0});
}

TEST_CASE("tokenizer.json: BPE without merges, with each kind of step before it") {
  auto document = bpe();
  document["model"]["merges"] = json::array();
  for (const char* const normalizer : {"NFC", "NFKC", "Lowercase"}) {
    document["normalizer"] = {{"type", normalizer}};
    CHECK(read(document).encode("ab ab") == Ids{0, 1, 2, 0, 1});
  }
}

/// The message of a document that is refused as not implemented.
std::string refused(const json& document) {
  INFO(document.dump(1));
  return expect_error(Errc::unsupported, [&] { read(document); });
}

bool says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST_CASE("tokenizer.json: what is not implemented is refused by name") {
  const auto with = [](const char* component, const char* value) {
    auto document = bpe();
    document[component] = json::parse(value);
    return document;
  };
  CHECK(says(refused(with("normalizer", R"({"type": "Mystery"})")), "normalizer Mystery"));
  CHECK(says(refused(with("pre_tokenizer", R"({"type": "UnicodeScripts"})")),
             "pre-tokenizer UnicodeScripts"));
  CHECK(says(refused(with("post_processor", R"({"type": "Mystery"})")), "post-processor Mystery"));
  CHECK(says(refused(with("decoder", R"({"type": "CTC"})")), "decoder CTC"));
  CHECK(says(refused(with("model", R"({"type": "Mystery", "vocab": {}})")), "Mystery"));
  const auto split = [&](const char* regex) {
    auto document = bpe();
    document["pre_tokenizer"] = {{"type", "Split"},
                                 {"pattern", {{"Regex", regex}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
    return document;
  };
  CHECK(says(refused(split(R"((?<=a)b)")), "the group (?<="));
  CHECK(says(refused(split(R"(\p{Greek}+)")), R"(\p{greek})"));
  CHECK(says(refused(split(R"((a)\1)")), R"(\1)"));
  auto document = bpe();
  document["model"]["dropout"] = 0.1;
  CHECK(says(refused(document), "dropout"));
  document = split("a");
  document["pre_tokenizer"]["behavior"] = "Shuffled";
  CHECK(says(refused(document), "Shuffled"));
  // In files of the most common forms, too.
  document = wordpiece();
  document["decoder"] = {{"type", "CTC"}};
  CHECK(says(refused(document), "decoder CTC"));
}

TEST_CASE(
    "tokenizer.json: Unigram takes the most probable pieces, and one token for what has none") {
  auto document = json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -3], ["a", -2],
              ["b", -2], ["▁a", -4.5], ["ab", -3.5], ["▁ab", -7]]}
  })");
  const Tokenizer t = read(document);
  CHECK(t.model() == TokenizerModel::unigram);
  CHECK(t.encode("ab b") == Ids{1, 5, 1, 3});  // -6.5, as "▁a" "b", whose last piece is shorter
  CHECK(t.encode("axyb") == Ids{4, 0, 3});
  CHECK(t.decode(Ids{1, 5, 1, 3}) == "ab b");
  document["model"]["vocab"][1] = "no pair";
  expect_bad(document);
  document["model"]["vocab"] = json::object();
  expect_bad(document);
}

TEST_CASE("tokenizer.json: words, and BPE whose last character carries a mark") {
  auto document = json::parse(R"({
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "ab": 1, ",": 2}}
  })");
  CHECK(read(document).encode("ab,  ab x") == Ids{1, 2, 1, 0});
  CHECK(read(document).decode(Ids{1, 2, 1}) == "ab , ab");
  document["model"] = json::parse(R"({
    "type": "BPE", "unk_token": null, "end_of_word_suffix": "</w>",
    "vocab": {"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3, ",</w>": 4}, "merges": ["a b</w>"]
  })");
  CHECK(read(document).encode("ab, bab") == Ids{3, 4, 1, 3});
}

TEST_CASE("tokenizer.json: tables of character replacements that are cut or lead nowhere") {
  auto document = json::parse(R"({
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1], ["b", -1]]}
  })");
  const auto with = [&](const char* table) {
    document["normalizer"]["precompiled_charsmap"] = table;
    return document;
  };
  expect_bad(with(""));              // no length
  expect_bad(with("CAAAAAEAAAA="));  // 8 bytes of trie, of which 4 are there
  expect_bad(with("BAAAAAEA*AA="));  // no base64
  // A unit whose children lie outside, and no trie at all.
  CHECK(read(with("BAAAAAD8/38=")).encode("ab") == Ids{1, 2});
  CHECK(read(with("AAAAAA==")).encode("ab") == Ids{1, 2});
  // As bytes: the trie's length, the root whose children begin at 256, "a", and the rest.
  const auto table = [&](std::uint32_t a, std::uint32_t value, const std::string& replacements) {
    std::vector<std::uint32_t> units(513);
    units[0] = 2048;
    units[1] = 256u << 10;
    units[1 + (256 ^ 'a')] = a;
    units[1 + (256 ^ 'a' ^ 1)] = value;
    std::string bytes(reinterpret_cast<const char*>(units.data()), 4 * units.size());
    return with(base64_encoded(bytes + replacements).c_str());
  };
  const std::uint32_t leaf = 'a' | (1u << 8) | (1u << 10), first = 1u << 31;
  CHECK(read(table(leaf, first, std::string("b\0", 2))).encode("ab") == Ids{2, 2});
  expect_bad(table(leaf, first, "b"));             // a replacement without an end
  const std::uint32_t circle = 'a' | ('a' << 10);  // whose child is itself
  CHECK(read(table(circle, 0, std::string("b\0", 2))).encode(std::string(50'000, 'a')).size() ==
        50'000);
}

TEST_CASE("tokenizer.json: tokens that are too long where each place looks for all of them") {
  const auto unigram = [](std::size_t length) {
    auto document = json::parse(R"({"model": {"type": "Unigram", "unk_id": 0,
        "vocab": [["<unk>", 0], ["a", -1]]}})");
    document["model"]["vocab"].push_back(json::array({std::string(length, 'a'), -2}));
    return document;
  };
  CHECK(read(unigram(2048)).encode(std::string(2050, 'a')).size() == 3);
  expect_bad(unigram(2049), Errc::limit_exceeded);
  const auto added = [](std::size_t length) {
    json changed = bpe();
    changed["added_tokens"].push_back({{"id", 6}, {"content", std::string(length, 'a') + "b"}});
    return changed;
  };
  CHECK(read(added(2047)).encode(std::string(2048, 'a') + "b").size() == 2);
  expect_bad(added(2048), Errc::limit_exceeded);
  json document = wordpiece();
  document["model"]["max_input_chars_per_word"] = 1'000'000'000;
  const auto with_token = [&](std::size_t length) {
    json changed = document;
    changed["model"]["vocab"]["##" + std::string(length - 2, 'b')] = 5;
    return changed;
  };
  const auto ids = read(with_token(512)).encode("a" + std::string(510, 'b') + "bb");
  CHECK(ids == Ids{1, 3, 5, 4, 4, 2});
  expect_bad(with_token(513), Errc::limit_exceeded);
  CHECK(read(document).encode("a" + std::string(200'000, 'b')).size() == 200'003);
}

TEST_CASE("tokenizer.json: wrong types and missing parts") {
  for (const char* const pointer :
       {"/model", "/model/vocab", "/model/unk_token", "/model/continuing_subword_prefix",
        "/model/max_input_chars_per_word", "/added_tokens/0/content", "/added_tokens/0/id",
        "/normalizer/type", "/post_processor/cls", "/post_processor/cls/1", "/decoder/type"}) {
    for (const json& wrong : {json(json::array({true})), json(true)}) {
      auto document = wordpiece();
      document[json::json_pointer(pointer)] = wrong;
      expect_bad(document);
    }
  }
  for (const char* const text : {"[]", "null", "7", "{}"}) {
    expect_error(Errc::bad_tokenizer, [&] { Tokenizer::from_json_text(text); });
  }
}

TEST_CASE("tokenizer.json: ids in proportion, unique, and of tokens that exist") {
  auto document = bpe();
  document["model"]["vocab"]["z"] = 4000000000u;
  expect_bad(document);
  document["model"]["vocab"]["z"] = 2000000000;
  expect_bad(document);
  document["model"]["vocab"]["z"] = -1;
  expect_bad(document);
  document["model"]["vocab"]["z"] = 0;
  expect_bad(document);
  document = wordpiece();
  document["post_processor"]["cls"][1] = 77;
  expect_bad(document);
  document = wordpiece();
  document["model"]["unk_token"] = "[NONE]";
  expect_bad(document);
  document = bpe();
  document["model"]["merges"].push_back("a z");
  expect_bad(document);
  document["model"]["merges"].back() = json::array({"a", "b", "a"});
  expect_bad(document);
}

TEST_CASE("tokenizer.json: malformed JSON") {
  expect_error(Errc::syntax, [] { Tokenizer::from_json_text("{\"model\": "); });
  expect_error(Errc::duplicate_name,
               [] { Tokenizer::from_json_text(R"({"model": 1, "model": 2})"); });
  expect_error(Errc::depth_limit, [] { Tokenizer::from_json_text(std::string(100000, '[')); });
}

TEST_CASE("tokenizer.json: files that are not there, or are no files") {
  const auto what =
      expect_error(Errc::not_found, [] { Tokenizer::from_json("tests/text/data/none.json"); });
  CHECK(what.find("none.json") != std::string::npos);
  expect_error(Errc::not_regular_file, [] { Tokenizer::from_json("tests/text/data"); });
}

TEST_CASE("tokenizer.json: a file cut anywhere is an error, never a tokenizer") {
  std::ifstream stream("tests/text/data/json_bpe.tokenizer.json", std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  REQUIRE(whole.size() > 1000);
  for (std::size_t length = 0; length + 1 < whole.size(); length += 97) {
    expect_error(Errc::syntax, [&] { Tokenizer::from_json_text(whole.substr(0, length)); });
  }
}
