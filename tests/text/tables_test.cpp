// Tables that were kept, against tokenizers that make their own.
#include "support/rounds.hpp"
#include "text/cases.hpp"
#include "text/small_vocabulary.hpp"

#include <tenon/text/tokenizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t tied_bytes = 16;  // layout and digest
constexpr std::size_t header_bytes = 16 + 256;

Vocabulary small_wordpiece() {
  Vocabulary v;
  v.model = TokenizerModel::wordpiece;
  v.tokens = {"[CLS]", "[SEP]", "[UNK]", "un", "##able", "able", "##a"};
  v.types.assign(v.tokens.size(), TokenType::normal);
  v.types[0] = v.types[1] = v.types[2] = TokenType::control;
  v.cls = 0;
  v.sep = 1;
  v.unk = 2;
  return v;
}

Vocabulary spm_with_merges() {
  Vocabulary v = testing::small_spm();
  v.scores.clear();
  v.merges = {{"▁", "a"}, {"▁a", "b"}, {"a", "b"}, {"ab", "c"}};
  return v;
}

Vocabulary gemma4() {
  Vocabulary v = spm_with_merges();
  v.model = TokenizerModel::bpe;
  v.pretokenizer = "gemma4";
  return v;
}

Vocabulary unigram() {
  Vocabulary v = testing::small_spm();
  v.model = TokenizerModel::unigram;
  return v;
}

std::vector<Vocabulary> small_vocabularies() {
  return {testing::small_bpe(),
          testing::small_spm(),
          spm_with_merges(),
          small_wordpiece(),
          gemma4(),
          unigram()};
}

const std::vector<std::string> texts = {"",        "hello hell",     "he<|im_end|>x[tool]", "é",
                                        "abcab c", "a b </s><s> ab", "unable ableable",     "xyz"};

/// A copy that ends where its bytes do, so that a sanitizer sees who reads on.
Tokenizer with_tables(const Vocabulary& v, std::span<const std::byte> bytes) {
  const auto copy = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  return Tokenizer(v, {*copy, copy});
}

void check_same(const Tokenizer& got, const Tokenizer& want) {
  for (const std::string& text : texts) {
    CHECK(got.encode(text) == want.encode(text));
    CHECK(got.find(text) == want.find(text));
  }
  for (std::size_t i = 0; i < want.vocab_size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    CHECK(got.find(want.token(id)) == want.find(want.token(id)));
    CHECK(got.is_eog(id) == want.is_eog(id));
  }
}

/// Tables that do not belong to `v` are ignored.
void check_refused(const Vocabulary& v, std::span<const std::byte> bytes) {
  const Tokenizer tokenizer = with_tables(v, bytes);
  CHECK_FALSE(tokenizer.uses_kept_tables());
  check_same(tokenizer, Tokenizer(v));
}

/// Whatever tables say, ids stay inside of the vocabulary.
void check_safe(const Tokenizer& tokenizer) {
  const auto is_outside = [&](std::int32_t id) {
    return id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size();
  };
  for (const std::string& text : texts) {
    CHECK(std::ranges::none_of(tokenizer.encode(text), is_outside));
  }
}

}  // namespace

TEST_CASE("kept tables: the ids are those of a tokenizer that makes its own") {
  for (const Vocabulary& v : small_vocabularies()) {
    const Tokenizer made(v);
    CHECK_FALSE(made.uses_kept_tables());
    const Tokenizer kept = with_tables(v, made.tables());
    CHECK(kept.uses_kept_tables());
    check_same(kept, made);
    CHECK(kept.tables() == made.tables());
  }
}

TEST_CASE("kept tables: the ids of the oracle's texts are the same") {
  const auto [file, name] = GENERATE(std::pair("bpe.vocabulary.json", "bpe_llama-bpe"),
                                     std::pair("spm.vocabulary.json", "spm"),
                                     std::pair("spm_prefix.vocabulary.json", "spm_prefix"));
  const auto cases = testing::read_text_cases("tests/text/data", name);
  const Tokenizer made(testing::read_vocabulary(std::string("tests/text/data/") + file));
  // Read again: the same texts in other places.
  const Tokenizer kept =
      with_tables(testing::read_vocabulary(std::string("tests/text/data/") + file), made.tables());
  REQUIRE(kept.uses_kept_tables());
  for (const std::string& string : cases.strings) CHECK(kept.encode(string) == made.encode(string));
}

TEST_CASE("kept tables: those of another vocabulary are ignored") {
  const auto refused = [](const Vocabulary& of, const Vocabulary& by) {
    check_refused(by, Tokenizer(of).tables());
  };
  const Vocabulary bpe = testing::small_bpe(), spm = testing::small_spm();
  refused(bpe, spm);
  refused(spm, bpe);
  refused(bpe, small_wordpiece());

  auto other = bpe;
  std::swap(other.tokens[3], other.tokens[4]);
  refused(bpe, other);
  other = bpe;
  other.tokens[2] = "[tool}";
  refused(bpe, other);
  other = bpe;
  std::swap(other.merges[0], other.merges[1]);
  refused(bpe, other);
  other = bpe;
  other.merges[3] = {"he", "ll"};
  refused(bpe, other);
  other = bpe;
  other.types[10] = TokenType::unused;
  refused(bpe, other);
  other = bpe;
  other.types[0] = TokenType::unknown;
  refused(bpe, other);
  other = spm;
  std::swap(other.tokens[0], other.tokens[260]);
  refused(spm, other);
}

TEST_CASE("kept tables: truncated, extended or misaligned ones are ignored") {
  for (const Vocabulary& v : small_vocabularies()) {
    Bytes bytes = Tokenizer(v).tables();
    for (std::size_t size = 0; size < bytes.size(); size += size < 64 ? 1 : 61) {
      check_refused(v, std::span(bytes).first(size));
    }
    Bytes shifted(bytes.size() + 4);
    std::ranges::copy(bytes, shifted.begin() + 4);
    const Tokenizer tokenizer(v, {std::span(shifted).subspan(4), nullptr});
    CHECK_FALSE(tokenizer.uses_kept_tables());
    check_same(tokenizer, Tokenizer(v));
    bytes.resize(bytes.size() + 8);
    check_refused(v, bytes);
  }
}

TEST_CASE("kept tables: a byte that has changed leads nowhere outside") {
  for (const Vocabulary& v : small_vocabularies()) {
    const Bytes bytes = Tokenizer(v).tables();
    int used = 0;
    for (std::size_t i = 0; i < bytes.size(); i += testing::round_stride) {
      for (const std::byte bit : {std::byte{0x01}, std::byte{0x80}}) {
        Bytes changed = bytes;
        changed[i] ^= bit;
        if (i < tied_bytes) {
          check_refused(v, changed);
          continue;
        }
        const Tokenizer tokenizer = with_tables(v, changed);
        check_safe(tokenizer);
        if (tokenizer.uses_kept_tables()) ++used;
      }
    }
    CHECK(used > 0);  // what is looked for here was possible
  }
}

TEST_CASE(
    "kept tables: slots full of anything lead nowhere outside, and no search goes on for ever") {
  const char* given = std::getenv("TENON_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  INFO("TENON_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const Vocabulary& v : small_vocabularies()) {
    const Bytes bytes = Tokenizer(v).tables();
    const auto ids = static_cast<std::int32_t>(v.tokens.size());
    // Ids are every second number of 4 bytes in the index, every fourth in the merges: so all are
    // small enough to be ids, with and without empty slots, and beyond the vocabulary by one.
    for (const auto& [lowest, highest] :
         {std::pair(-1, ids - 1), std::pair(0, ids - 1), std::pair(-1, ids), std::pair(-2, 0)}) {
      std::uniform_int_distribution<std::int32_t> any(lowest, highest);
      for (int round = 0; round < 20; ++round) {
        Bytes changed = bytes;
        for (std::size_t at = header_bytes; at < bytes.size(); at += 4) {
          const std::int32_t number = any(random);
          std::memcpy(changed.data() + at, &number, 4);
        }
        const Tokenizer tokenizer = with_tables(v, changed);
        check_safe(tokenizer);
        if (lowest == 0) CHECK_FALSE(tokenizer.uses_kept_tables());
      }
    }
  }
}

TEST_CASE("kept tables: they live as long as the tokenizer needs them") {
  const Vocabulary v = testing::small_bpe();
  auto bytes = std::make_shared<const Bytes>(Tokenizer(v).tables());
  const std::weak_ptr<const Bytes> watched = bytes;
  {
    const Tokenizer tokenizer(v, {*bytes, bytes});
    const Tokenizer passed_over(testing::small_spm(), {*bytes, bytes});
    bytes.reset();
    CHECK(watched.use_count() == 1);
    check_same(tokenizer, Tokenizer(v));
  }
  CHECK(watched.expired());
}
