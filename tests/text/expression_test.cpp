#include "support/expect_error.hpp"
#include "text/expression_matcher.hpp"

#include <chrono>
#include <string>
#include <tuple>
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
    if (end != i) {
      i = end;
    } else {  // a character on
      while (++i < text.size() && (text[i] & 0xC0) == 0x80) {
      }
    }
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

TEST_CASE("expressions: escapes, classes and sets of sets") {
  const std::string controls = "\n\r\t\f\v\a\x1B";
  const std::vector<std::tuple<const char*, std::string, Found>> cases = {
      {R"([\n\r\t\f\v\a\e]+)", "a" + controls, {controls}},
      {R"(\x41\x{42}\u0043)", "ABC", {"ABC"}},
      {R"(\x4|\])", "\x04]", {"\x04", "]"}},
      {R"(\d+|\D)", "12a", {"12", "a"}},
      {R"(\w+|\W)", "a_1-", {"a_1", "-"}},
      {R"(\s|\S+)", "ab c", {"ab", " ", "c"}},
      {R"(a\B.)", "ab a.", {"ab"}},
      {R"([\w\d.]+)", "a.1 _", {"a.1", "_"}},
      {R"([^\S]+)", "a \tb", {" \t"}},
      {R"([\D]+)", "1a2", {"a"}},
      {R"(\p{Han}+|\P{Han}+)", "a漢字b", {"a", "漢字", "b"}},
      {R"(\p{^Han}+)", "漢ab", {"ab"}},
      {R"([^\p{Han}\d]+)", "漢ab1", {"ab"}},
      {R"([[a-c]d[xyz]]+)", "abdez", {"abd", "z"}},
      {R"([[\p{Han}\s]\S]+)", "漢 a", {"漢 a"}},
      {R"([[^a-c]]+)", "abde", {"de"}},
      {R"([^a-d&&b-z]+)", "abcdez", {"a", "ez"}},
      {R"([a-z&&[^c-x]&&[^a]]+)", "abcxyz", {"b", "yz"}},
      {R"([a-&&[-a]]+)", "-ab", {"-a"}},
      {R"([a-[x]]+)", "-axb", {"-ax"}},
      {R"((?i:[a-z]+))", "aBcſ1", {"aBcſ"}},
      {R"((?i:\p{L}+)b)", "aBb", {"aBb"}},
      {R"(a?\p{P_}|b??c)", "a!bc", {"a!", "bc"}},
      {R"(a{2,}|a{1})", "aaa a", {"aaa", "a"}},
      {R"(a{1b}|a{,})", "a{1b}a{,}", {"a{1b}", "a{,}"}},
      {R"((?:ab|cd)*?e)", "abcde", {"abcde"}},
  };
  for (const auto& [regex, text, found] : cases) {
    INFO(regex);
    CHECK(matches(regex, text) == found);
  }
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
                                                        {R"(^*a)", "repetition of a condition"},
                                                        {R"(a{2}?)", "lazy repetition"},
                                                        {R"(a{2}+)", "possessive repetition"},
                                                        {R"((?:ab)++)", "possessive repetition"},
                                                        {R"(a**)", "of a repetition"},
                                                        {R"(a{2}{3})", "of a repetition"},
                                                        {R"([[[[[[a]]]]]])", "nested so deep"},
                                                        {R"([a[^b]])", "a complement"},
                                                        {R"([[^b]a])", "a complement"},
                                                        {R"([[a&&b]c])", "an intersection"},
                                                        {R"([a-\d])", "ends in a class"},
                                                        {R"(\pL)", "without braces"},
                                                        {R"((?i)\p{Lu})", "the case of a property"},
                                                        {R"((?i)[a-\x{80}])", "ASCII"},
                                                        {R"(\Ga)", R"(\G)"}}) {
    INFO(regex);
    const std::string message = expect_error(Errc::unsupported, [&] { Expression{regex}; });
    CHECK(message.find(name) != std::string::npos);
  }
  for (const char* const regex :
       {"(a", "a)", "[a", "+a", "a{3,2}", "[b-a]", R"(\x{110000})", "\xFF", R"(\p{L)", "\\",
        R"(\x{})", R"(\u12)", R"(\x{41)", "[a&&", "(?:a"}) {
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
