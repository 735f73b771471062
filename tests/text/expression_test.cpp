#include "support/expect_error.hpp"
#include "text/expression_matcher.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;
using testing::expect_error;
using Found = std::vector<std::string>;

namespace {

/// All matches, from left to right.
Found matches(std::string_view regex, std::string_view text) {
  const Expression expression(regex);
  ExpressionMatcher::Scratch scratch;
  ExpressionMatcher matcher(expression, text, scratch);
  Found found;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = matcher.may_start_at(i) ? matcher.end_from(i) : i;
    if (end != i) found.emplace_back(text.substr(i, end - i));
    i = end != i ? end : i + 1;
  }
  return found;
}

}  // namespace

TEST_CASE("expressions: the first alternative that matches wins, not the longest") {
  CHECK(matches("a|ab|b", "ab") == Found{"a", "b"});
  CHECK(matches("(?:a|ab)c", "abc") == Found{"abc"});
  CHECK(matches("a*b|a", "aab aa") == Found{"aab", "a", "a"});
}

TEST_CASE("expressions: repetition, greedy, lazy, possessive and counted") {
  CHECK(matches("a{2,3}", "aaaaaa aa a") == Found{"aaa", "aaa", "aa"});
  CHECK(matches("a{,2}b", "aaab") == Found{"aab"});
  CHECK(matches("a+?b?", "aab") == Found{"a", "ab"});
  CHECK(matches("a++a|b", "aaab") == Found{"b"});
  CHECK(matches("(?:ab?){2}c", "aabc abac") == Found{"aabc", "abac"});
  CHECK(matches("a{x}", "a{x}") == Found{"a{x}"});
}

TEST_CASE("expressions: sets, properties and their complements") {
  CHECK(matches(R"([^\s\p{L}]+)", "a1-b ½") == Found{"1-", "½"});
  CHECK(matches(R"([\p{L}&&[^a-c]]+)", "abcdé") == Found{"dé"});
  CHECK(matches(R"([]a-]+)", "x]a-") == Found{"]a-"});
  CHECK(matches(R"(\P{Lu}+)", "aBc") == Found{"a", "c"});
  CHECK(matches(R"([\x{3042}\u3044]+)", "あいう") == Found{"あい"});
}

TEST_CASE("expressions: looking ahead over a character, and places") {
  CHECK(matches(R"(\s+(?!\S)|\s)", "a   b ") == Found{"  ", " ", " "});
  CHECK(matches(R"(a(?=b))", "ab a") == Found{"a"});
  CHECK(matches(R"(\b\w+\b)", "ab, c_1") == Found{"ab", "c_1"});
  CHECK(matches("^a+$", "aa\na\nab") == Found{"aa", "a"});
}

TEST_CASE("expressions: ignoring case takes the long s and the sign of Kelvin along") {
  CHECK(matches("(?i:'s|k)x", "'Sx 'ſx \u212Ax kX") == Found{"'Sx", "'ſx", "\u212Ax"});
  CHECK(matches("(?i)ab", "aB") == Found{"aB"});
}

TEST_CASE("expressions: ill-formed bytes are symbols, of one character each") {
  CHECK(matches(R"(\p{So}{2}a)",
                "\xE2\x82\xFF"
                "a") == Found{"\xE2\x82\xFF"
                              "a"});
  CHECK(matches(R"(\p{So}+\p{So})", "\xE2\x82\xFF") == Found{"\xE2\x82\xFF"});
}

TEST_CASE("expressions: what is not implemented is refused by name") {
  for (const auto& [regex, name] :
       std::vector<std::pair<const char*, const char*>>{{R"((?<=a)b)", "the group (?<="},
                                                        {R"((a)\1)", R"(\1)"},
                                                        {R"(\p{Greek})", R"(\p{greek})"},
                                                        {R"(a(?=bc))", "looking ahead"},
                                                        {R"((a*)*)", "may be empty"},
                                                        {R"(a*)", "no character"},
                                                        {R"((?i:é))", "case"},
                                                        {R"(a{1001})", "1000 times"},
                                                        {R"([[:alpha:]])", "POSIX"},
                                                        {R"((?>a|b)c)", "the group (?>"},
                                                        {R"(\Ga)", R"(\G)"}}) {
    INFO(regex);
    const std::string message = expect_error(Errc::unsupported, [&] { Expression{regex}; });
    CHECK(message.find(name) != std::string::npos);
  }
  for (const char* const regex :
       {"(a", "a)", "[a", "+a", "a{3,2}", "[b-a]", R"(\x{110000})", "\xFF", R"(\p{L)", "\\"}) {
    INFO(regex);
    expect_error(Errc::bad_tokenizer, [&] { Expression{regex}; });
  }
  expect_error(Errc::limit_exceeded, [] { Expression(std::string(1000, '(') + "a"); });
  expect_error(Errc::limit_exceeded, [] { Expression("(?:(?:(?:ab){100}){100}){100}"); });
}

TEST_CASE("expressions: a hostile one takes time in proportion to the text") {
  const std::string as(200'000, 'a');
  for (const char* const regex : {"(?:a+)+b", "(?:a|a)+b", "(?:a?){30}a{30}b", "a+b",
                                  R"(\s+$|a+a+a+c)", R"((?:a{0,9}){9}b)"}) {
    INFO(regex);
    const auto start = std::chrono::steady_clock::now();
    CHECK(matches(regex, as).empty());
    // Quadratic time would be a minute, exponential time forever.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  }
  // What failed is remembered, what succeeded is not.
  CHECK(matches("(?:a+)+b|a", as + "b").size() == 1);
  CHECK(matches("a+b|a", as).size() == as.size());
}
