#include "support/memory_watch.hpp"
#include "text/cases.hpp"
#include "text/small_vocabulary.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace tenon;
using namespace tenon::text;

namespace {

/// Of the processor, so that what else the machine does counts little.
double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  const std::clock_t start = std::clock();
  const auto ids = tokenizer.encode(text);
  // Unigram vocabularies may leave out spaces.
  CHECK((!ids.empty() || tokenizer.model() == TokenizerModel::unigram));
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

/// Whether a text that is eight times as long takes less than 32 times as long: 8 where time is
/// linear, 64 where it is quadratic. Of several measurements one has to say so, since others on the
/// machine may slow down either part of one.
bool is_near_linear(const Tokenizer& tokenizer, std::string_view part, std::size_t bytes) {
  double growth = 0;
  for (int tries = 0; tries < 4; ++tries) {
    const double one = seconds_to_encode(tokenizer, repeated(part, bytes));
    growth = seconds_to_encode(tokenizer, repeated(part, 8 * bytes)) / std::max(one, 1e-3);
    if (growth < 32) return true;
  }
  UNSCOPED_INFO("it takes " << growth << " times as long");
  return false;
}

}  // namespace

TEST_CASE("encoding stays near linear on texts of one letter, space, mark or bracket", "[growth]") {
  const std::string name =
      GENERATE("bpe_gpt-2", "bpe_llama-bpe", "bpe_qwen2", "bpe_falcon", "bpe_default",
               "bpe_deepseek-llm", "bpe_deepseek-coder", "spm", "spm_prefix", "wordpiece_uncased",
               "json_metaspace_first", "json_unigram", "unigram");
  const auto tokenizer = testing::read_text_cases("tests/text/data", name).tokenizer;
  for (const char* const part :
       {"a", " ", "\n", "'", "<", "\xCC\x95\xCC\x80", "字", " \n", "\xE3\x80\x80", "[to"}) {
    INFO(name << " on '" << part << "'");
    CHECK(is_near_linear(tokenizer, part, 125'000));
  }
}

TEST_CASE("splitting by expressions stays near linear, too", "[growth]") {
  const std::string name =
      GENERATE("gpt-4o", "deepseek-v3", "spark2_5", "youtu", "kimi-k2", "granite-embed-multi-97m",
               "jais-2", "bloom", "chameleon", "bailingmoe", "exaone-moe", "minicpm5", "tiny_aya",
               "superbpe", "afmoe", "whitespace");
  auto v = testing::small_bpe();
  v.pretokenizer = name;
  v.unk = 0;
  const Tokenizer tokenizer(v);
  for (const char* const part :
       {"h", "1", " ", "\n", "'", "hE", " h", "1h", "\xCC\x95", "字", "\xE3\x80\x80", "٣"}) {
    INFO(name << " on '" << part << "'");
    // Ends in what the expression looks ahead for, so that it looks for it from everywhere.
    const auto seconds = [&](std::size_t bytes) {
      const std::clock_t start = std::clock();
      static_cast<void>(tokenizer.encode(repeated(part, bytes) + "e!"));
      return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    };
    double growth = 100;
    for (int tries = 0; tries < 4 && growth >= 32; ++tries) {
      const double one = seconds(50'000);
      growth = seconds(400'000) / std::max(one, 1e-3);
    }
    CHECK(growth < 32);
  }
}

TEST_CASE("131,072 equal letters are one word and still quick") {
  const auto tokenizer = testing::read_text_cases("tests/text/data", "spm").tokenizer;
  const std::string text(131'072, 'a');
  CHECK(is_near_linear(tokenizer, "a", text.size() / 8));
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("encoding takes at most 100 times the memory of the text, also where all is one word",
          "[growth]") {
  const std::string name =
      GENERATE("bpe_gpt-2", "bpe_llama-bpe", "bpe_default", "bpe_deepseek-llm", "spm", "spm_prefix",
               "wordpiece_uncased", "json_bpe", "json_metaspace_first", "json_unigram", "unigram");
  const auto tokenizer = testing::read_text_cases("tests/text/data", name).tokenizer;
  std::string letters = repeated("a", 1'000'000);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    letters[i] = static_cast<char>('a' + (i * 2654435761u >> 12) % 26);
  }
  for (const std::string& text :
       {letters, repeated("a", letters.size()), repeated("th", letters.size()),
        repeated(" ", letters.size()), repeated("字", letters.size()),
        repeated("\xff", letters.size()), repeated("a ", letters.size())}) {
    const testing::MemoryWatch watch;
    const auto ids = tokenizer.encode(text);
    const std::ptrdiff_t peak = watch.peak_bytes();
    INFO(name << " on '" << text.substr(0, 3) << "...'");
    CHECK(peak <= 100 * static_cast<std::ptrdiff_t>(text.size()));
  }
}

TEST_CASE("a vocabulary of 262,144 tokens is ready soon") {
  std::string storage;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  auto v = testing::small_spm();
  const std::size_t own = v.tokens.size();
  for (std::size_t i = own; i < 262'144; ++i) {
    const std::string token = fmt::format("▁{:x}", i * 2654435761u);
    places.emplace_back(storage.size(), token.size());
    storage += token;
    v.types.push_back(TokenType::normal);
    v.scores.push_back(-static_cast<float>(i));
  }
  for (const auto& [at, size] : places)
    v.tokens.push_back(std::string_view(storage).substr(at, size));
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto copy = v;
    const auto start = std::chrono::steady_clock::now();
    const Tokenizer tokenizer(std::move(copy));
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    REQUIRE(tokenizer.vocab_size() == 262'144);
  }
  CHECK(best < 20.0);  // 0.02 s on an idle machine; minutes where a search is linear
}
