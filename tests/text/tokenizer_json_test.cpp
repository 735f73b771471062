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

TEST_CASE("tokenizer.json: every component that changes ids is carried over or refused") {
  auto document = bpe();
  document["normalizer"] = {{"type", "NFKC"}};
  expect_bad(document, Errc::unsupported);
  document = bpe();
  document["pre_tokenizer"] = json::parse(
      R"({"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Isolated", "invert": false})");
  expect_bad(document, Errc::unsupported);
  document = bpe();
  document["pre_tokenizer"] = {{"type", "Whitespace"}};
  expect_bad(document, Errc::unsupported);
  document = bpe();
  document["model"]["end_of_word_suffix"] = "</w>";
  expect_bad(document, Errc::unsupported);
  document = bpe();
  document["model"]["dropout"] = 0.1;
  expect_bad(document, Errc::unsupported);
  document = bpe();
  document["post_processor"] = {{"type", "Mystery"}};
  expect_bad(document, Errc::unsupported);
  document = json::parse(R"({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}})");
  expect_bad(document, Errc::unsupported);
  document = wordpiece();
  document["pre_tokenizer"] = nullptr;
  expect_bad(document, Errc::unsupported);
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
