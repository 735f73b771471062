#include "support/expect_error.hpp"
#include "text/small_vocabulary.hpp"

#include <tenon/text/tokenizer.hpp>

#include <limits>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;

namespace {

void expect_bad(const Vocabulary& v, Errc code = Errc::bad_tokenizer) {
  testing::expect_error(code, [&] { Tokenizer{v}; });
}

}  // namespace

TEST_CASE("vocabulary: tables must be there and of one length") {
  auto v = testing::small_bpe();
  v.tokens.pop_back();
  expect_bad(v);
  expect_bad(Vocabulary{});
  v = testing::small_bpe();
  v.types.pop_back();
  expect_bad(v);
  v = testing::small_bpe();
  v.scores.assign(v.tokens.size() + 1, 0.0f);
  expect_bad(v);
  v = testing::small_spm();
  v.scores.clear();
  expect_bad(v);
}

TEST_CASE("vocabulary: no text twice, though ids may leave gaps") {
  auto v = testing::small_bpe();
  v.tokens[13] = "he";
  expect_bad(v);
  v = testing::small_bpe();
  v.tokens.insert(v.tokens.end(), {"", ""});
  v.types.resize(v.tokens.size(), TokenType::unused);
  CHECK(Tokenizer(v).vocab_size() == 17);
  CHECK_FALSE(Tokenizer(v).find("").has_value());
}

TEST_CASE("vocabulary: ids lie inside it") {
  for (const std::uint32_t id : {15u, 0xFFFFFFFFu}) {
    for (auto field : {&Vocabulary::bos, &Vocabulary::eos, &Vocabulary::eot, &Vocabulary::unk,
                       &Vocabulary::sep, &Vocabulary::pad, &Vocabulary::cls, &Vocabulary::mask}) {
      auto v = testing::small_bpe();
      v.*field = id;
      expect_bad(v);
    }
    auto v = testing::small_bpe();
    v.eog = {id};
    expect_bad(v);
    v = testing::small_bpe();
    v.added = {{.id = id}};
    expect_bad(v);
  }
}

TEST_CASE("vocabulary: add_bos and add_eos need their tokens") {
  auto v = testing::small_bpe();
  v.bos.reset();
  v.add_bos = true;
  expect_bad(v);
  v = testing::small_bpe();
  v.eos.reset();
  v.add_eos = true;
  expect_bad(v);
}

TEST_CASE("vocabulary: merges are made of tokens") {
  auto v = testing::small_bpe();
  v.merges.push_back({"x", "h"});
  expect_bad(v);
  v = testing::small_bpe();
  v.merges.push_back({"o", "h"});
  expect_bad(v);
  CHECK(parse_merge("a b").left == "a");
  CHECK(parse_merge("  b").left == " ");
  for (const char* const line : {"", " ", "a", "a ", " a"}) {
    testing::expect_error(Errc::bad_tokenizer, [&] { parse_merge(line); });
  }
}

TEST_CASE("vocabulary: scores are numbers and types are known") {
  auto v = testing::small_spm();
  v.scores[5] = std::numeric_limits<float>::quiet_NaN();
  expect_bad(v);
  v = testing::small_spm();
  v.types[5] = static_cast<TokenType>(7);
  expect_bad(v);
  v.types[5] = static_cast<TokenType>(0);
  expect_bad(v);
}

TEST_CASE("vocabulary: an unknown pre-tokenizer is unsupported, by name") {
  auto v = testing::small_bpe();
  v.pretokenizer = "gpt-17";
  const auto what = testing::expect_error(Errc::unsupported, [&] { Tokenizer{v}; });
  CHECK(what.find("gpt-17") != std::string::npos);
  for (const std::string_view name : pretokenizer_names()) {
    v.pretokenizer = name;
    CHECK_NOTHROW(Tokenizer{v});
  }
}

TEST_CASE("vocabulary: wordpiece needs an unknown token") {
  auto v = testing::small_bpe();
  v.model = TokenizerModel::wordpiece;
  v.unk.reset();
  expect_bad(v);
}
