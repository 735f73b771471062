#include "text/pretokenizer.hpp"

#include <string>

#include <catch2/catch.hpp>

using namespace tenon::text;
using Pieces = std::vector<std::string>;

namespace {

Pieces pieces(std::string_view name, std::string_view text) {
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> scratch;
  split(text, find_pretokenizer(name).value().stages, ends, scratch);
  Pieces out;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  CHECK(begin == text.size());
  return out;
}

}  // namespace

TEST_CASE("gpt-2: contractions, words with their space, numbers, the rest") {
  CHECK(pieces("gpt-2", "I've 12x  =>") == Pieces{"I", "'ve", " 12", "x", " ", " =>"});
  CHECK(pieces("gpt-2", "IT'S") == Pieces{"IT", "'", "S"});
  CHECK(pieces("gpt-2", "a \n b") == Pieces{"a", " \n", " b"});
}

TEST_CASE(
    "llama-bpe: contractions in any case, digits by three, line ends with what precedes them") {
  CHECK(pieces("llama-bpe", "IT'S 12345") == Pieces{"IT", "'S", " ", "123", "45"});
  CHECK(pieces("llama-bpe", "(a)\n\n b") == Pieces{"(a", ")\n\n", " b"});
  CHECK(pieces("llama-bpe", " \n  x") == Pieces{" \n", " ", " x"});
  CHECK(pieces("llama-bpe", "'ſt") == Pieces{"'ſ", "t"});
}

TEST_CASE("qwen2: digits one by one") {
  CHECK(pieces("qwen2", "a 12\tb") == Pieces{"a", " ", "1", "2", "\tb"});
}

TEST_CASE("smollm, starcoder, refact, command-r: digits first, then gpt-2") {
  for (const char* const name : {"smollm", "starcoder", "refact", "command-r"}) {
    CHECK(pieces(name, "x 12 y") == Pieces{"x", " ", "1", "2", " y"});
  }
}

TEST_CASE("falcon: punctuation in runs, digits by three, byte by byte") {
  CHECK(pieces("falcon", "a!! 1234") == Pieces{"a", "!!", " ", "123", "4"});
  CHECK(pieces("falcon", "mü") == Pieces{"m\xC3", "\xBC"});
}

TEST_CASE("default: punctuation and numbers apart") {
  CHECK(pieces("default", "a+b 1234 it's") ==
        Pieces{"a", "+", "b", " ", "123", "4", " it", "'", "s"});
}

TEST_CASE("deepseek-llm: cased letters with one space, CJK in runs, lines alone") {
  CHECK(pieces("deepseek-llm", "ab é你好!?\n12  ") ==
        Pieces{"ab", " é", "你好", "!?", "\n", "1", "2", "  "});
}

TEST_CASE("deepseek-coder: any letters with one space, punctuation with one space") {
  CHECK(pieces("deepseek-coder", "a b 你 (x)") == Pieces{"a", " b", " ", "你", " (", "x", ")"});
}

TEST_CASE("bytes that are no UTF-8 are symbols: they split from letters and stay whole") {
  CHECK(pieces("gpt-2",
               "ab\xE2\x82"
               "c\xFF") == Pieces{"ab", "\xE2\x82", "c", "\xFF"});
}

TEST_CASE("the expressions of published files are known, others are not") {
  CHECK(find_split_pattern(R"(\p{N})") != nullptr);
  CHECK(find_split_pattern("[一-龥ࠀ-一가-퟿]+") != nullptr);
  CHECK(find_split_pattern(R"(\s?[A-Z]+)") == nullptr);
  CHECK(find_split_pattern("(a+)+$") == nullptr);
}
