#include "support/expect_error.hpp"
#include "text/small_vocabulary.hpp"

#include <tenon/text/stream_decoder.hpp>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;

namespace {
std::int32_t byte(int value) { return 3 + value; }  // small_spm's "<0x..>" tokens
}  // namespace

TEST_CASE("stream decoder: a character comes out when its last byte came in") {
  StreamDecoder decoder{Tokenizer(testing::small_spm())};
  CHECK(decoder.push(byte(0xF0)).empty());
  CHECK(decoder.push(byte(0x9F)).empty());
  CHECK(decoder.push(byte(0x98)).empty());
  CHECK(decoder.push(byte(0x80)) == "😀");
  CHECK(decoder.finish().empty());
}

TEST_CASE("stream decoder: what cannot become a character leaves as U+FFFD") {
  StreamDecoder decoder{Tokenizer(testing::small_spm())};
  CHECK(decoder.push(byte(0xE2)).empty());
  CHECK(decoder.push(byte(0x41)) ==
        "\xEF\xBF\xBD"
        "A");
  CHECK(decoder.push(byte(0xFF)) == "\xEF\xBF\xBD");
  CHECK(decoder.push(byte(0xC3)).empty());
  CHECK(decoder.finish() == "\xEF\xBF\xBD");
  CHECK(decoder.push(byte(0x42)) == "B");
}

TEST_CASE("stream decoder: drops the one space that encoding put in front, and special tokens") {
  const Tokenizer t(testing::small_spm());
  StreamDecoder decoder(t);
  std::string out;
  for (const auto id : t.encode("a ab")) out += decoder.push(id);
  CHECK(out == "a ab");
  StreamDecoder verbose(t, {.skip_special = false});
  CHECK(verbose.push(1) == "<s>");
}

TEST_CASE("stream decoder: unknown ids are errors") {
  StreamDecoder decoder{Tokenizer(testing::small_spm())};
  testing::expect_error(Errc::out_of_range, [&] { decoder.push(-5); });
}
