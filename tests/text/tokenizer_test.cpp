#include "support/expect_error.hpp"
#include "text/small_vocabulary.hpp"

#include <tenon/text/stream_decoder.hpp>
#include <tenon/text/tokenizer.hpp>

#include <utility>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;
using Ids = std::vector<std::int32_t>;

namespace {
std::int32_t id(const Tokenizer& t, std::string_view token) { return t.find(token).value(); }
}  // namespace

TEST_CASE("bpe: merges by rank inside words") {
  const Tokenizer t(testing::small_bpe());
  CHECK(t.encode("hello hell") == Ids{13, 7, 12});
  CHECK(t.decode(Ids{13, 7, 12}) == "hello hell");
  CHECK(t.piece(14) == " he");
  CHECK(t.encode("").empty());
}

TEST_CASE("bpe: whole words first where the family ignores merges") {
  auto v = testing::small_bpe();
  v.merges.pop_back();
  v.pretokenizer = "llama-bpe";
  v.add_bos = false;
  CHECK(Tokenizer(v).encode(" he") == Ids{14});
  v.ignore_merges = false;
  CHECK(Tokenizer(v).encode(" he") == Ids{7, 10});
}

TEST_CASE("bpe: a byte without a token is dropped, or becomes unk where a tokenizer.json says so") {
  const Tokenizer t(testing::small_bpe());
  CHECK(t.encode("hxe") == Ids{10});
  CHECK(t.encode("\xC3\xA9") == Ids{8, 9});
}

TEST_CASE("special tokens are matched, or spelled out where a caller wants so") {
  const Tokenizer t(testing::small_bpe());
  CHECK(t.encode("he<|im_end|>he") == Ids{10, 1, 10});
  const Ids spelled = t.encode("he<|im_end|>he", {.parse_special = false});
  CHECK(std::count(spelled.begin(), spelled.end(), 1) == 0);
  CHECK(t.encode("he[tool]", {.parse_special = false}) == Ids{10, 2});
  CHECK(t.decode(Ids{10, 1, 10}) == "hehe");
  CHECK(t.decode(Ids{10, 1, 10}, {.skip_special = false}) == "he<|im_end|>he");
}

TEST_CASE("special tokens are not matched where a range is plain") {
  const Tokenizer t(testing::small_bpe());
  const std::string text = "<bos>he<bos>he<bos>";
  const TextRange plain[] = {{5, 14}};
  const Ids ids = t.encode(text, {.plain = plain});
  CHECK(ids.front() == 0);
  CHECK(ids.back() == 0);
  CHECK(std::count(ids.begin(), ids.end(), 0) == 2);
  const TextRange touching[] = {{0, 1}, {18, 19}};
  const Ids inner = t.encode(text, {.plain = touching});
  CHECK(std::count(inner.begin(), inner.end(), 0) == 1);
}

TEST_CASE("the longest of several special tokens wins") {
  auto v = testing::small_bpe();
  v.tokens.insert(v.tokens.end(), {"[to", "[tool][tool]"});
  v.types.resize(v.tokens.size(), TokenType::user_defined);
  const Tokenizer t(v);
  CHECK(t.encode("[tool][tool][tool][to") == Ids{16, 2, 15});
}

TEST_CASE("add_bos and add_eos put their tokens around a text") {
  auto v = testing::small_bpe();
  CHECK(Tokenizer(v).encode("he") == Ids{10});
  CHECK_FALSE(Tokenizer(v).adds_bos());
  v.add_bos = v.add_eos = true;
  CHECK(Tokenizer(v).encode("he") == Ids{0, 10, 1});
  CHECK(Tokenizer(v).encode("he", {.add_special = false}) == Ids{10});
  CHECK(Tokenizer(v).adds_bos());
  v.add_bos.reset();
  v.add_eos.reset();
  v.pretokenizer = "llama-bpe";
  CHECK(Tokenizer(v).encode("he") == Ids{0, 10});
}

TEST_CASE("spm: merges by score, spaces as U+2581, a space before the first word") {
  const Tokenizer t(testing::small_spm());
  CHECK(t.encode("abc", {.add_special = false}) == Ids{id(t, "▁"), id(t, "abc")});
  CHECK(t.encode("a") == Ids{1, id(t, "▁a")});
  CHECK(t.decode(t.encode("abc a ab")) == "abc a ab");
  auto v = testing::small_spm();
  v.add_space_prefix = false;
  CHECK(Tokenizer(v).encode("abc", {.add_special = false}) == Ids{id(t, "abc")});
}

TEST_CASE("spm: a character without a token becomes bytes, and bytes that are no character stay") {
  const Tokenizer t(testing::small_spm());
  const Ids euro = t.encode("a€", {.add_special = false});
  CHECK(euro == Ids{id(t, "▁a"), id(t, "<0xE2>"), id(t, "<0x82>"), id(t, "<0xAC>")});
  CHECK(t.decode(euro) == "a€");
  CHECK(t.decode(t.encode("a\xFF\xE2\x82"
                          "b")) ==
        "a\xFF\xE2\x82"
        "b");
  const Ids replaced =
      t.encode("\xFF", {.add_special = false, .invalid_utf8 = InvalidUtf8::replace});
  CHECK(t.decode(replaced) == "\xEF\xBF\xBD");
}

TEST_CASE("spm: text cannot merge into a control or a byte token") {
  const Tokenizer t(testing::small_spm());
  CHECK(t.encode("</s>", {.add_special = false, .parse_special = false}) ==
        Ids{id(t, "▁"), id(t, "</"), id(t, "s>")});
}

TEST_CASE("spm: without bytes, unknown characters become one unknown token") {
  Vocabulary v;
  v.model = TokenizerModel::spm;
  v.tokens = {"<unk>", "a"};
  v.types = {TokenType::unknown, TokenType::normal};
  v.scores = {0, -1};
  v.unk = 0;
  v.add_space_prefix = false;
  CHECK(Tokenizer(v).encode("axyaz") == Ids{1, 0, 1, 0});
}

TEST_CASE("wordpiece: GGUF's spelling of pieces gives what BERT's gives") {
  Vocabulary v;
  v.model = TokenizerModel::wordpiece;
  v.tokens = {"[CLS]", "[SEP]", "[UNK]", "▁un", "able", "▁able", "▁."};
  v.types.assign(7, TokenType::normal);
  v.types[0] = v.types[1] = v.types[2] = TokenType::control;
  v.cls = 0;
  v.sep = 1;
  v.unk = 2;
  v.bert.word_prefix = "▁";
  const Tokenizer gguf(v);
  CHECK(gguf.encode("Únable able. xyz") == Ids{0, 3, 4, 5, 6, 2, 1});
  CHECK(gguf.decode(Ids{0, 3, 4, 5, 6, 1}) == "unable able.");
  v.bert.word_prefix.clear();
  v.tokens = {"[CLS]", "[SEP]", "[UNK]", "un", "##able", "able", "."};
  const Tokenizer bert(v);
  CHECK(bert.encode("Únable able. xyz") == Ids{0, 3, 4, 5, 6, 2, 1});
  CHECK(bert.decode(Ids{0, 3, 4, 5, 6, 1}) == "unable able.");
}

TEST_CASE("unigram: the most probable pieces, white space as SentencePiece has it") {
  Vocabulary v;
  v.model = TokenizerModel::unigram;
  v.tokens = {"<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "ab", "▁ab"};
  v.types.assign(v.tokens.size(), TokenType::normal);
  v.types[0] = v.types[1] = TokenType::control;
  v.types[2] = TokenType::unknown;
  v.scores = {0, 0, 0, -3, -2, -2, -4.5f, -3.5f, -7};
  v.unk = 2;
  v.eos = 1;
  v.add_space_prefix = true;
  v.remove_extra_spaces = true;
  const Tokenizer t(v);
  CHECK(t.encode("ab") == Ids{3, 7, 1});
  CHECK(t.encode("  ab   a ", {.add_special = false}) == Ids{3, 7, 6});
  CHECK(t.encode("  ", {.add_special = false}).empty());
  CHECK(t.encode("a€€b", {.add_special = false}) == Ids{6, 2, 5});
  CHECK(t.encode("a</s>b") == Ids{6, 1, 3, 5, 1});
  CHECK(t.decode(Ids{6, 5, 6, 1}) == "ab a");
  v.remove_extra_spaces = false;
  CHECK(Tokenizer(v).encode(" a ", {.add_special = false}) == Ids{3, 6, 3});
  v.scores.clear();
  testing::expect_error(Errc::bad_tokenizer, [&] { Tokenizer{v}; });
}

TEST_CASE("rwkv: the longest token over bytes, with escapes in the vocabulary") {
  Vocabulary v;
  v.model = TokenizerModel::rwkv;
  v.tokens = {"<s>", "a", "ab", "abcd", R"(\n)", R"(\xc3\xa9)", R"(\\)", R"(\xc3)"};
  v.types.assign(v.tokens.size(), TokenType::normal);
  v.types[0] = TokenType::control;
  const Tokenizer t(v);
  CHECK(t.encode("abca") == Ids{2, 1});  // nothing spells "c"
  CHECK(t.encode("abcd\nab\\é\xC3") == Ids{3, 4, 2, 6, 5, 7});
  CHECK(t.decode(Ids{3, 4, 6, 5}) == "abcd\n\\é");
  v.unk = 0;
  CHECK(Tokenizer(v).encode("abc") == Ids{2, 0});
}

TEST_CASE("plamo2: the most probable pieces, and among equals the longer one first") {
  auto v = testing::small_spm();
  v.model = TokenizerModel::plamo2;
  v.tokens.resize(259);
  v.types.resize(259);
  v.scores.resize(259);
  for (const auto& [token, score] :
       {std::pair{"a", -1.0f}, {"ab", -2.0f}, {"bc", -2.0f}, {"c", -1.0f}, {"x", -3000.0f}}) {
    v.tokens.push_back(token);
    v.types.push_back(TokenType::normal);
    v.scores.push_back(score);
  }
  const Tokenizer t(v);
  CHECK(t.encode("abc") == Ids{260, 262});
  CHECK(t.encode("é") == Ids{3 + 0xC3, 3 + 0xA9});
  CHECK(t.encode("x") == Ids{3 + 'x'});  // worse than its byte
  CHECK(t.encode("\xEF\xBB\xBF"
                 "a") == Ids{259});
  CHECK(t.decode(Ids{260, 3 + 0xC3, 3 + 0xA9}) == "abé");
  v.tokens[100] = "<0x61";
  testing::expect_error(Errc::bad_tokenizer, [&] { Tokenizer{v}; });
}

TEST_CASE("hybriddna: six bases a token between its marks, byte-level BPE elsewhere") {
  auto v = testing::small_bpe();
  v.model = TokenizerModel::hybriddna;
  for (const char* const token : {"<dna>", "</dna>", "<oov>", "ACGTAC\uE000", "GAAAAA\uE000"}) {
    v.tokens.push_back(token);
    v.types.push_back(TokenType::normal);
  }
  const Tokenizer t(v);
  CHECK(t.encode("he<dna>acgtacG</dna>l<dna>ACGTNC") == Ids{10, 15, 18, 19, 16, 5, 15, 17});
  CHECK(t.decode(Ids{10, 15, 18, 16}) == "he<dna>ACGTAC</dna>");
  v.types[15] = TokenType::control;  // which text may not spell
  CHECK(Tokenizer(v).encode("h<dna>", {.parse_special = false}).front() == 3);
}

TEST_CASE("gemma4 and whitespace: merges over characters") {
  Vocabulary v;
  v.pretokenizer = "gemma4";
  v.tokens = {"<bos>", "a", "b", "▁", "▁a", "a▁a", "\n", "\n\n"};
  v.types.assign(v.tokens.size(), TokenType::normal);
  v.types[0] = TokenType::control;
  v.merges = {{"▁", "a"}, {"a", "▁a"}, {"\n", "\n"}};
  v.bos = 0;
  const Tokenizer gemma(v);
  CHECK(gemma.encode("a a\n\nb") == Ids{0, 5, 7, 2});
  CHECK(gemma.decode(Ids{0, 5, 7, 2}) == "a a\n\nb");
  v.pretokenizer = "whitespace";
  v.tokens = {"<bos>", "a", "b", "ab"};
  v.types.resize(4);
  v.merges = {{"a", "b"}};
  v.lowercase = true;
  CHECK(Tokenizer(v).encode(" aB\n a b") == Ids{3, 1, 2});
  v.merges.clear();
  CHECK(Tokenizer(v).encode("ab") == Ids{1, 2});
}

TEST_CASE("tokens that end a generation: eos and the known closers") {
  auto v = testing::small_bpe();
  v.eos.reset();
  CHECK(Tokenizer(v).is_eog(1));
  CHECK_FALSE(Tokenizer(v).is_eog(0));
  CHECK_FALSE(Tokenizer(v).is_eog(-1));
  v.eog = {13};
  CHECK(Tokenizer(v).is_eog(13));
  v.types[1] = TokenType::normal;  // a spelling alone does not make a control token
  CHECK_FALSE(Tokenizer(v).is_eog(1));
}

TEST_CASE("ids outside the vocabulary are errors") {
  const Tokenizer t(testing::small_bpe());
  testing::expect_error(Errc::out_of_range, [&] { t.decode(Ids{-1}); });
  testing::expect_error(Errc::out_of_range, [&] { t.piece(15); });
  testing::expect_error(Errc::out_of_range, [&] { t.token(15); });
}

TEST_CASE("a tokenizer that was moved from says so") {
  Tokenizer t(testing::small_bpe());
  const Tokenizer other = std::move(t);
  CHECK(other.vocab_size() == 15);
  const auto refused = [](auto&& call) { testing::expect_error(Errc::call_order, call); };
  refused([&] { t.encode("a"); });
  refused([&] { t.decode(Ids{0}); });
  refused([&] { t.piece(0); });
  refused([&] { t.token(0); });
  refused([&] { t.type(0); });
  refused([&] { t.find("a"); });
  refused([&] { t.tables(); });
  refused([&] { t.uses_kept_tables(); });
  refused([&] { t.vocab_size(); });
  refused([&] { t.model(); });
  refused([&] { t.bos(); });
  refused([&] { t.adds_bos(); });
  refused([&] { t.is_eog(0); });
  StreamDecoder decoder(other);
  StreamDecoder moved = std::move(decoder);
  refused([&] { decoder.push(0); });
  CHECK_NOTHROW(moved.push(0));
}
