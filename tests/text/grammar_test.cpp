#include "support/expect_error.hpp"
#include "text/small_vocabulary.hpp"

#include <tenon/text/grammar.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;
using testing::expect_error;

namespace {

/// Whether a text is one of the grammar's.
bool accepts(const Grammar& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.push(text) && matcher.may_end();
}
bool accepts(std::string_view grammar, std::string_view text) {
  return accepts(Grammar::parse(grammar), text);
}

/// The ids that a constraint allows.
std::vector<std::int32_t> allowed(TokenConstraint& constraint) {
  std::vector<std::int32_t> ids;
  const auto words = constraint.allowed();
  for (std::size_t i = 0; i < words.size() * 64; ++i) {
    if ((words[i / 64] >> (i % 64)) & 1) ids.push_back(static_cast<std::int32_t>(i));
  }
  return ids;
}

}  // namespace

TEST_CASE("grammars: literals, sets, choices, groups and rules") {
  const std::string_view list = R"(
    # a list of words and numbers
    root  ::= item ("," ws item)*
    item  ::= [a-z]+ | "0" | [1-9] [0-9]{0,2}
    ws    ::= [ \t]?
  )";
  CHECK(accepts(list, "abc"));
  CHECK(accepts(list, "abc, 12,0,\tx"));
  CHECK(accepts(list, "999"));
  CHECK_FALSE(accepts(list, "1000"));
  CHECK_FALSE(accepts(list, "01"));
  CHECK_FALSE(accepts(list, "a,"));
  CHECK_FALSE(accepts(list, ""));
  CHECK(accepts("root ::= \"\"", ""));
  CHECK(accepts("root ::= \"a\" |", ""));
  CHECK(accepts("root ::= [^a-y\\x00-\\x1F] .", "z\n"));
  CHECK(accepts("root ::= [-a] [a-]", "-a"));
  CHECK(accepts(R"(root ::= [\]\[\\"])", "]"));
  CHECK(accepts(R"(root ::= "\"\\\n\t\x41\u00e9\U0001F600")", "\"\\\n\tA\xC3\xA9\xF0\x9F\x98\x80"));
}

TEST_CASE("grammars: rules go on in the next lines in parentheses and before |") {
  CHECK(accepts("root ::= (\n \"a\" # one\n | \"b\"\n)\n", "b"));
  CHECK(accepts("root ::= \"a\"\n  | \"b\"  # two\n\n  | c\nc ::= \"c\"", "c"));
  CHECK(accepts("root ::=\n  \"a\" |\n \"b\"", "b"));
}

TEST_CASE("grammars: repetitions have the bounds that they are given") {
  const std::pair<const char*, std::pair<int, int>> cases[] = {
      {"*", {0, 99}},    {"+", {1, 99}},    {"?", {0, 1}},     {"{3}", {3, 3}},
      {"{2,}", {2, 99}}, {"{0,4}", {0, 4}}, {"{2,5}", {2, 5}}, {"{ 1 , 2 }", {1, 2}},
      {"{0}", {0, 0}},   {"{0,0}", {0, 0}}, {"{0,}", {0, 99}}, {"{2}{2}", {4, 4}},
      {"{2}?", {0, 2}}};
  for (const auto& [repetition, bounds] : cases) {
    for (const std::string part : {"[ab]", "\"a\"", "(\"a\" | \"bb\")", "part"}) {
      const auto grammar =
          Grammar::parse("root ::= " + part + repetition + "\npart ::= \"a\" \"\"");
      std::string text;
      for (int count = 0; count < 8; ++count, text += 'a') {
        const bool is_two = std::string_view(repetition) == "{2}?" && count == 1;
        INFO(part << repetition << " with " << count);
        CHECK(accepts(grammar, text) ==
              (count >= bounds.first && count <= bounds.second && !is_two));
      }
    }
  }
}

TEST_CASE("grammars: characters are read byte by byte, and only as UTF-8") {
  const auto grammar = Grammar::parse("root ::= [a-\\U0010FFFF]*");
  GrammarMatcher matcher(grammar);
  for (const char byte : std::string("\xF0\x9F\x98\x80")) {
    CHECK(matcher.push(std::string_view(&byte, 1)));
    CHECK(matcher.may_end() == (byte == '\x80'));
  }
  CHECK_FALSE(matcher.push("\x80"));
  CHECK_FALSE(matcher.push("\xED\xA0\x80"));  // a surrogate
  CHECK_FALSE(matcher.push("\xC0\xAF"));      // too long
  CHECK_FALSE(matcher.push("\xF4\x90"));      // beyond the last character
  CHECK(matcher.push("\xF4\x8F\xBF\xBF"));
  CHECK(matcher.push("\xED\x9F\xBF"));
}

TEST_CASE("grammars: sets of characters hold each of their characters and no other") {
  const std::pair<char32_t, char32_t> intervals[] = {
      {0x7E, 0x81},         {0x80, 0x80},     {0x7FF, 0x800},    {0x7C0, 0x83F},
      {0xFFF, 0x1000},      {0xD700, 0xE100}, {0xFFFF, 0x10000}, {0x3FFFF, 0x40000},
      {0x10FFFE, 0x10FFFF}, {0x61, 0x10FFF0}};
  const auto utf8 = [](char32_t c) {
    std::string out;
    const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | (c >> 6)), put(0x80 | (c & 63));
    } else if (c < 0x10000) {
      put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 63)), put(0x80 | (c & 63));
    } else {
      put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 63)), put(0x80 | ((c >> 6) & 63)),
          put(0x80 | (c & 63));
    }
    return out;
  };
  for (const auto& [first, last] : intervals) {
    const auto escape = [](char32_t c) {
      std::string digits;
      for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789ABCDEF"[(c >> shift) & 15];
      return "\\U" + digits;
    };
    const auto grammar = Grammar::parse("root ::= [" + escape(first) + "-" + escape(last) + "]");
    std::vector<char32_t> tried;
    for (const char32_t edge : {0x7Fu, 0x7FFu, 0xFFFu, 0xD7FFu, 0xFFFFu, 0x3FFFFu, 0x10FFFFu}) {
      for (char32_t c = edge - 70; c <= edge + 70; ++c) tried.push_back(c);
    }
    for (const char32_t c : tried) {
      if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) continue;
      GrammarMatcher matcher(grammar);
      INFO("U+" << std::hex << static_cast<std::uint32_t>(c));
      CHECK((matcher.push(utf8(c)) && matcher.may_end()) == (c >= first && c <= last));
    }
  }
}

TEST_CASE("grammars: nested texts of any depth") {
  const auto grammar = Grammar::parse(R"x(root ::= "(" root ")" | "[" root* "]" | "")x");
  const int depth = 100000;
  GrammarMatcher matcher(grammar);
  CHECK(matcher.push(std::string(depth, '(')));
  CHECK_FALSE(matcher.push("]"));
  CHECK(matcher.push(std::string(depth - 1, ')')));
  CHECK_FALSE(matcher.may_end());
  CHECK(matcher.push(")"));
  CHECK(matcher.may_end());
  CHECK_FALSE(matcher.may_continue());
  CHECK(accepts(grammar, "[()[[]]()]"));
  CHECK_FALSE(accepts(grammar, "[(])"));
}

TEST_CASE("grammars: a list as a rule that ends with itself takes no memory") {
  const auto grammar = Grammar::parse("root ::= \"a\" root | \"b\" root | \"\"");
  GrammarMatcher matcher(grammar);
  for (int i = 0; i < 100; ++i) REQUIRE(matcher.push(std::string(100000, i % 2 ? 'a' : 'b')));
  CHECK(matcher.may_end());
}

TEST_CASE("grammars: a refused text leaves the matcher where it was") {
  GrammarMatcher matcher(Grammar::parse("root ::= \"abc\" | \"abd\" \"e\""));
  CHECK_FALSE(matcher.push("abx"));
  CHECK(matcher.push("ab"));
  CHECK_FALSE(matcher.push("e"));
  CHECK(matcher.push("d"));
  CHECK_FALSE(matcher.may_end());
  CHECK(matcher.may_continue());
  CHECK(matcher.push(""));
  CHECK(matcher.push("e"));
  CHECK(matcher.may_end());
  CHECK_FALSE(matcher.may_continue());
}

TEST_CASE("grammars: what is wrong with one is said by line and column") {
  const auto fails = [](Errc code, const std::string& grammar, const std::string& place) {
    INFO(grammar);
    CHECK(testing::contains(expect_error(code, [&] { Grammar::parse(grammar); }), place));
  };
  fails(Errc::syntax, "root = \"a\"", "1:6");
  fails(Errc::syntax, "root ::= \"a", "1:10");
  fails(Errc::syntax, "root ::= [a", "1:10");
  fails(Errc::syntax, "root ::= []", "1:10");
  fails(Errc::syntax, "root ::= [z-a]", "1:10");
  fails(Errc::syntax, "root ::= \"\\q\"", "1:11");
  fails(Errc::syntax, "root ::= \"\\x4\"", "1:14");
  fails(Errc::syntax, "root ::= \"\\uD800\"", "1:11");
  fails(Errc::syntax, "root ::= \"\\U00110000\"", "1:11");
  fails(Errc::syntax, "root ::= ( \"a\"", "1:15");
  fails(Errc::syntax, "root ::= \"a\" )", "1:14");
  fails(Errc::syntax, "root ::= *", "1:10");
  fails(Errc::syntax, "root ::= \"a\"{2", "1:15");
  fails(Errc::syntax, "root ::= \"a\"{x}", "1:14");
  fails(Errc::syntax, "root ::= \"a\"{3,2}", "1:13");
  fails(Errc::syntax, "root ::= \"a\"\nroot ::= \"b\"", "2:1");
  fails(Errc::syntax, "::= \"a\"", "1:1");
  fails(Errc::bad_reference, "root ::= a", "1:10");
  fails(Errc::bad_reference, "start ::= \"a\"", "\"root\"");
  fails(Errc::bad_reference, "", "\"root\"");
  fails(Errc::bad_encoding, "root ::= \"\xFF\"", "UTF-8");
  fails(Errc::limit_exceeded, "root ::= \"a\"{65537}", "1:14");
  fails(Errc::limit_exceeded,
        "root ::= a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} "
        "a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} a{60000} a{60000}\na ::= "
        "\"b\"",
        "root");
  fails(Errc::depth_limit, "root ::= " + std::string(101, '(') + "\"a\"" + std::string(101, ')'),
        "1:110");
  fails(Errc::depth_limit, "root ::= \"a\"" + std::string(101, '*'), "1:113");
  fails(Errc::depth_limit, "root ::= \"a\"" + std::string(200'000, '?'), "1:113");
  fails(Errc::depth_limit,
        "root ::= (\"x\" (\"a\"" + std::string(60, '*') + " | \"b\"))" + std::string(41, '*'),
        "1:127");
  fails(Errc::unsupported, "root ::= <think>", "1:10");
  fails(Errc::cycle, "root ::= root \"a\" | \"b\"", "\"root\"");
  fails(Errc::cycle, "root ::= a\na ::= b \"x\"\nb ::= \"y\"? (a | \"c\")", "begins with itself");
  fails(Errc::cycle, "root ::= root", "\"root\"");
  fails(Errc::cycle, "root ::= \"a\"* root \"b\"", "\"root\"");
}

TEST_CASE("grammars: rules from another root") {
  const std::string text = "a ::= \"x\" b\nb ::= \"y\"";
  GrammarMatcher matcher(Grammar::parse(text, "b"));
  CHECK(matcher.push("y"));
  CHECK(Grammar::parse(text, "a").text() == text);
}

TEST_CASE("grammars: parts that may be empty, again and again") {
  CHECK(accepts("root ::= (\"a\"?)* \"b\"", "aab"));
  CHECK(accepts("root ::= ((\"a\"*)*)+ \"b\"", "aab"));
  CHECK(accepts("root ::= \"a\"" + std::string(100, '*') + " \"b\"+?", "aab"));
  CHECK(accepts("root ::= e e e \"b\" e\ne ::= \"\" | f\nf ::= \"x\"?", "xxbx"));
}

TEST_CASE("grammars: one that can be read in ever more ways is refused at that point") {
  // After n characters any of 2^n sequences of brackets may be open.
  const auto grammar = Grammar::parse(R"(root ::= "a" root "b" | "a" root "c" | "")");
  GrammarMatcher matcher(grammar);
  expect_error(Errc::limit_exceeded, [&] {
    for (int i = 0; i < 64; ++i) matcher.push("a");
  });
  CHECK(matcher.push("b"));  // it is where it was
}

TEST_CASE("token constraints: tokens by what they add to the text") {
  const Tokenizer tokenizer(testing::small_bpe());
  TokenConstraint constraint(Grammar::parse(R"(root ::= "hell" "o"? (" he" | "é"))"), tokenizer);
  using Ids = std::vector<std::int32_t>;
  CHECK(allowed(constraint) == Ids{3, 10, 12, 13});  // h, he, hell, hello
  constraint.push(10);
  CHECK(allowed(constraint) == Ids{5, 11});  // l, ll
  expect_error(Errc::bad_argument, [&] { constraint.push(6); });
  constraint.push(11);
  CHECK(allowed(constraint) == Ids{6, 7, 8, 14});  // o, space, the first byte of é, " he"
  constraint.push(8);
  CHECK(allowed(constraint) == Ids{9});
  CHECK_FALSE(constraint.may_end());
  constraint.push(9);
  CHECK(constraint.may_end());
  CHECK_FALSE(constraint.may_continue());
  CHECK(allowed(constraint) == Ids{1});  // the end of generation
  CHECK(constraint.allows(1));
  CHECK_FALSE(constraint.allows(0));
  constraint.push(1);
  CHECK(allowed(constraint).empty());
  CHECK_FALSE(constraint.may_end());
  expect_error(Errc::out_of_range, [&] { constraint.allows(15); });
  expect_error(Errc::out_of_range, [&] { constraint.push(-1); });
}

TEST_CASE("token constraints: many large states are refused as one that is too large") {
  Vocabulary vocabulary = testing::small_bpe();
  const std::string letters(500, 'a');
  vocabulary.tokens.back() = letters;
  vocabulary.merges.clear();
  const Tokenizer tokenizer(vocabulary);
  TokenConstraint constraint(Grammar::parse("root ::= (\"a\"?){14000} \"b\""), tokenizer);
  expect_error(Errc::limit_exceeded, [&] { constraint.allowed(); });
  CHECK(constraint.push("aab"));  // it is where it was
  CHECK(constraint.may_end());
}

TEST_CASE("token constraints: the first token loses its space where decoding drops it") {
  const Tokenizer tokenizer(testing::small_spm());
  TokenConstraint constraint(Grammar::parse("root ::= \"ab\" \" a\"*"), tokenizer);
  const auto id = [&](const char* token) { return *tokenizer.find(token); };
  for (const char* const token : {"ab", "▁a", "a", "▁ab"}) CHECK(constraint.allows(id(token)));
  for (const char* const token : {"abc", "▁", "b", "<s>", "<unk>", "</s>"}) {
    CHECK_FALSE(constraint.allows(id(token)));
  }
  std::vector<std::int32_t> expected{3 + 'a', id("ab"), id("▁a"), id("a"), id("▁ab")};
  std::ranges::sort(expected);
  CHECK(allowed(constraint) == expected);
  constraint.push(id("▁ab"));
  CHECK(constraint.allows(id("▁a")));
  CHECK_FALSE(constraint.allows(id("a")));
  CHECK(constraint.allows(id("</s>")));
}

TEST_CASE("token constraints: the set of tokens has those that are allowed one by one") {
  const Tokenizer tokenizer(testing::small_spm());
  const auto grammar =
      Grammar::parse("root ::= ((\"ab\" | \"a\" [b-\\U00010000]+) \" \"?)* \"c\"?");
  TokenConstraint constraint(grammar, tokenizer);
  std::uint32_t random = 12345;
  for (int i = 0; i < 400; ++i) {
    const auto ids = allowed(constraint);
    std::vector<std::int32_t> single;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.vocab_size()); ++id) {
      if (constraint.allows(id)) single.push_back(id);
    }
    REQUIRE(ids == single);
    std::erase_if(single, [&](std::int32_t id) { return tokenizer.is_eog(id); });
    if (single.empty()) break;
    random = random * 1664525 + 1013904223;
    constraint.push(single[(random >> 8) % single.size()]);
  }
}
