#include "text/pretokenizer.hpp"

#include <tenon/text/vocabulary.hpp>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon::text;
using Pieces = std::vector<std::string>;

namespace {

Pieces pieces(std::string_view name, std::string_view text) {
  std::vector<std::uint32_t> ends;
  SplitScratch scratch;
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

TEST_CASE("gpt-4o: words are cut where a capital follows, and take a contraction along") {
  CHECK(pieces("gpt-4o", "HTTPServer's éÉ 1234/\n/") ==
        Pieces{"HTTPServer's", " é", "É", " ", "123", "4", "/\n/"});
}

TEST_CASE("tiny_aya: digits by three from the right, unless a letter follows") {
  CHECK(pieces("tiny_aya", "1234567 x1234 12345a ٣٤٥٦") ==
        Pieces{"1", "234", "567", " x", "1", "234", " ", "123", "45", "a", " ", "٣", "٤٥٦"});
}

TEST_CASE("superbpe, afmoe: digits by three from the right") {
  CHECK(pieces("superbpe", "a1234 56½1234567") ==
        Pieces{"a", "1", "234", " ", "56½1", "234", "567"});
  CHECK(pieces("afmoe", "a1234½") == Pieces{"a", "12", "34½"});
}

TEST_CASE("kimi-k2: Han apart from other letters") {
  CHECK(pieces("kimi-k2", "abc你好がdefGh") == Pieces{"abc", "你好", "がdef", "Gh"});
}

TEST_CASE("every name is known, and none other") {
  for (const std::string_view name : pretokenizer_names()) CHECK(find_pretokenizer(name));
  CHECK_FALSE(find_pretokenizer("martian"));
  CHECK_FALSE(find_pretokenizer(""));
}

TEST_CASE("docs/tokenizers.md lists every name once") {
  std::ifstream file("docs/tokenizers.md");
  std::string line;
  std::vector<std::string> listed;
  while (std::getline(file, line) && line.find("<!-- names") == std::string::npos) continue;
  while (std::getline(file, line) && line.find("<!-- end of names") == std::string::npos) {
    for (std::size_t begin = line.find('`'); begin != std::string::npos;
         begin = line.find('`', begin + 1)) {
      const std::size_t end = line.find('`', begin + 1);
      REQUIRE(end != std::string::npos);
      listed.push_back(line.substr(begin + 1, end - begin - 1));
      begin = end;
    }
  }
  std::ranges::sort(listed);
  const auto names = pretokenizer_names();
  CHECK(listed == std::vector<std::string>(names.begin(), names.end()));
}

TEST_CASE("the expressions of published files have scanners, others are run as they are") {
  CHECK(split_stages(R"(\p{N})").front().scanner != nullptr);
  CHECK(split_stages("[一-龥ࠀ-一가-퟿]+").front().scanner != nullptr);
  CHECK(split_stages(R"(\s?[A-Z]+)").front().expression != nullptr);
}
