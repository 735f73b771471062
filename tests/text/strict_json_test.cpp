#include "base/strict_json.hpp"

#include "support/expect_error.hpp"

#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace std::string_literals;
using testing::expect_error;

TEST_CASE("strict json: values of every kind") {
  const auto document =
      parse_strict_json(R"({"a": [1, -2, 2.5, true, null, "\u00e9"], "b": {"a": {}}})", "test");
  const auto& root = document.root();
  CHECK(root.at("a").size() == 6);
  CHECK(root.at("a")[1] == -2);
  CHECK(root.at("a")[5] == "é");
  CHECK(root.at("b").at("a").is_object());
  CHECK(parse_strict_json("7", "test").root() == 7);
}

TEST_CASE("strict json: a key twice in one object") {
  const auto what = expect_error(Errc::duplicate_name, [] {
    parse_strict_json(R"({"x": 1, "y": {"x": 2, "x": 3}})", "test");
  });
  CHECK(what.find("\"x\"") != std::string::npos);
  CHECK_NOTHROW(parse_strict_json(R"([{"x": 1}, {"x": 2}])", "test"));
}

TEST_CASE("strict json: nesting ends at 512") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK_NOTHROW(parse_strict_json(nested(512), "test"));
  expect_error(Errc::depth_limit, [&] { parse_strict_json(nested(513), "test"); });
  expect_error(Errc::depth_limit, [] { parse_strict_json(std::string(10'000'000, '['), "test"); });
  std::string objects;
  for (int i = 0; i < 600; ++i) objects += R"({"a":)";
  expect_error(Errc::depth_limit, [&] { parse_strict_json(objects, "test"); });
}

TEST_CASE("strict json: syntax errors name line and column") {
  const auto what = expect_error(
      Errc::syntax, [] { parse_strict_json("{\n  \"a\": 1,\n  oops\n}", "test.json"); });
  CHECK(what.find("test.json:3:3") != std::string::npos);
  for (const char* const text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "nul", "// c\n1", "\"\xFF\"",
                                 "[1e999]", "\"\\ud800\"", "{\"a\":1,}", "'a'", "\"\n\""}) {
    INFO(text);
    expect_error(Errc::syntax, [&] { parse_strict_json(text, "test"); });
  }
  // To nlohmann's parser a zero byte is the end.
  for (const std::string& text : {"{}\0"s, "{}\0 x"s, "[1]\n\0"s, "{\0}"s, "\0"s}) {
    expect_error(Errc::syntax, [&] { parse_strict_json(text, "test"); });
  }
}
