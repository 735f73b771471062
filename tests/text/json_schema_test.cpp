#include "support/expect_error.hpp"

#include <tenon/text/grammar.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;
using testing::expect_error;
using Texts = std::vector<std::string>;

// Texts drawn from grammars are checked against the `jsonschema` package in python/tests/package/test_grammars.py.
namespace {

void check(std::string_view schema, const Texts& allowed, const Texts& refused) {
  const auto grammar = Grammar::from_json_schema(schema);
  INFO(schema << "\n" << grammar.text());
  const auto matches = [&](std::string_view text) {
    GrammarMatcher matcher(grammar);
    return matcher.push(text) && matcher.may_end();
  };
  for (const std::string& text : allowed) {
    INFO(text);
    CHECK(matches(text));
  }
  for (const std::string& text : refused) {
    INFO(text);
    CHECK_FALSE(matches(text));
  }
}

void fails(Errc code, std::string_view schema, std::string_view part) {
  INFO(schema);
  CHECK(testing::contains(expect_error(code, [&] { Grammar::from_json_schema(schema); }), part));
}

}  // namespace

TEST_CASE("JSON schemas: any JSON") {
  check("{}",
        {"1", "-0.5e+10", "true", "null", R"("a\"\\\u00e9\ud83d\uDE00é")", "[]", "[1, [2,\n  3]]",
         "{}", R"({"a": {"b":[]}, "c" : null})"},
        {"", "01", "+1", ".5", "1.", "tru", "[1,]", "{a:1}", R"("\x")", "\"\n\"", R"("\ud800")",
         R"("\udc00")", "1 ", " 1", "[1 2]", "NaN", "12345678901234567"});
  check("true", {"[]"}, {"]"});
  check(R"({"title": "t", "description": "d", "default": 3})", {"\"x\""}, {"x"});
}

TEST_CASE("JSON schemas: members in their order, required or not, and others") {
  const std::string_view abc = R"({"type": "object", "required": ["b"], "properties":
      {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"type": "null"}}})";
  check(abc,
        {R"({"b":true})", R"({"a":null,"b":true})", R"({"b": true, "c": null})",
         R"({"a" :null , "b":false,"c":null })"},
        {"{}", R"({"a":null})", R"({"b":true,"a":null})", R"({"b":1})", R"({"b":true,})",
         R"({,"b":true})", R"({"b":true,"x":1})", R"({"b":true "c":null})"});
  check(R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}})",
        {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
        {R"({"b":null,"a":null})", R"({"a":null,"a":null})", "[]"});
  check(R"({"properties": {"ab": {"type": "null"}, "ax": true, "": {"type": "null"}},
            "additionalProperties": {"type": "integer"}})",
        {"{}", R"({"zz":1})", R"({"ab":null,"a":1,"abc":2,"b":3})", R"({"":null,"x\n":1})",
         R"({"x":1})"},
        {R"({"ab":1})", R"({"x":1,"ab":null})", R"({"":1})", R"({"x":null})", R"({"x":1,"":1})"});
  check(R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"});
  check(R"({"type": "object", "properties": {}})", {"{}"}, {R"({"a":1})"});
  check(R"({"type": "object", "required": []})", {"{}"}, {R"({"a":1})"});
  check(R"({"additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2})",
        {R"({"a":null})", R"({"a":null,"b":null})"}, {"{}", R"({"a":null,"b":null,"c":null})"});
  check(R"({"required": ["x"]})", {R"({"x":[1]})"}, {"{}", R"({"y":1})"});
  check(R"({"required": ["x"], "additionalProperties": true})", {R"({"x":1,"y":2})"},
        {"{}", R"({"y":2})"});
  check(
      R"({"properties": {"a\"b\\": {"type": "null"}, "ü]^-[": {"type": "null"}}, "additionalProperties": true})",
      {R"({"a\"b\\":null,"ü]^-[":null})", R"({"a":1,"ü]^":2})"},
      {R"({"a\"b\\":1})", R"({"ü]^-[":1})"});
}

TEST_CASE("JSON schemas: arrays and tuples") {
  check(R"({"type": "array", "items": {"type": "null"}})", {"[]", "[null]", "[ null , null ]"},
        {"[1]", "[null,]"});
  check(R"({"items": {"type": "null"}, "minItems": 2, "maxItems": 3})",
        {"[null,null]", "[null,null,null]"}, {"[]", "[null]", "[null,null,null,null]"});
  check(R"({"items": {"type": "null"}, "maxItems": 0})", {"[]", "[ ]"}, {"[null]"});
  check(R"({"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": false})",
        {"[null,true]"}, {"[null]", "[null,true,1]", "[true,null]", "[]"});
  check(
      R"({"prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3})",
      {"[null,true]", "[null,true,false]"}, {"[null]", "[null,true,true,true]", "[null,null]"});
  check(R"({"prefixItems": [{"type": "null"}, {"type": "null"}], "maxItems": 1})", {"[null]"},
        {"[null,null]", "[]"});
  check(R"({"items": [{"type": "null"}], "additionalItems": false})", {"[null]"}, {"[null,1]"});
}

TEST_CASE("JSON schemas: strings by length, pattern and format") {
  check(R"({"type": "string", "minLength": 2, "maxLength": 3})",
        {R"("ab")", R"("äöü")", R"("\n\ud83d\ude00")"}, {R"("a")", R"("abcd")", R"("")"});
  check(R"({"maxLength": 1})", {R"("")", R"("a")"}, {R"("ab")"});
  check(R"({"pattern": "^[a-c]{2}(x|yz)?$"})", {R"("ab")", R"("aayz")", R"("ccx")"},
        {R"("abx ")", R"("a")", R"("xab")"});
  check(R"({"pattern": "b+"})", {R"("abba")", R"("b")", R"("\nb\"")"}, {R"("aaa")", R"("")"});
  check(R"({"pattern": "^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xax")"});
  check(R"({"pattern": "^\\d+\\.\\w\\S[^x\\]]\\s.$"})", {R"("12.a\"y q")", R"("1._!\\ é")"},
        {R"("1.a x q")", R"("1xa!y q")", R"("1.a!] q")"});
  check(R"({"pattern": "^\\u0041\\x42\\u{43}\\/\\-$"})", {R"("ABC/-")"}, {R"("ABC")"});
  check(R"({"pattern": "^(?:a(?<n>b)??)*?$"})", {R"("")", R"("aaba")"}, {R"("b")"});
  check(R"({"format": "date"})", {R"("2024-02-29")"}, {R"("2024-13-01")", R"("24-01-01")"});
  check(R"({"format": "date-time"})",
        {R"("2024-02-29T23:59:59Z")", R"("2024-02-29T00:00:00.123+01:30")"},
        {R"("2024-02-29 23:59:59Z")", R"("2024-02-29T24:00:00Z")"});
  check(R"({"format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"});
  check(R"({"format": "ipv4"})", {R"("255.0.10.199")"},
        {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"});
  check(R"({"format": "email"})", {R"("a.b+c@d-e.org")"}, {R"("a@b")", R"("a@@b.org")"});
  check(R"({"format": "color"})", {R"("anything")"}, {"1"});
}

TEST_CASE("JSON schemas: numbers between bounds") {
  check(R"({"type": "integer"})", {"0", "-5", "9999999999999999"}, {"1.0", "-", "00"});
  check(R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 103})",
        {"-12", "-9", "-1", "0", "7", "10", "99", "100", "102"},
        {"-13", "103", "200", "-20", "1000", "-0", "01"});
  check(R"({"type": "integer", "minimum": 95})", {"95", "99", "100", "123456"},
        {"94", "9", "0", "-95"});
  check(R"({"type": "integer", "exclusiveMinimum": 1.5, "maximum": 2.5})", {"2"}, {"1", "3"});
  // Zod's z.int(), and beyond what f64 holds.
  check(R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})",
        {"9007199254740991", "-9007199254740991", "0"}, {"9007199254740992", "-9007199254740992"});
  check(R"({"type": "integer", "exclusiveMinimum": 9007199254740992})",
        {"9007199254740993", "9223372036854775806"}, {"9007199254740992", "7"});
  check(R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})",
        {"0", "9223372036854775806"}, {"-1", "18446744073709551616"});
  check(R"({"type": "integer", "minimum": -1e300, "exclusiveMaximum": 9223372036854775807})",
        {"-9223372036854775806", "9223372036854775806"}, {"9223372036854775807"});
  check(R"({"type": "number", "minimum": 9007199254740993})",
        {"9007199254740993", "9007199254740993.5"}, {"9007199254740992.5", "9"});
  check(R"({"type": "integer", "maximum": -7})", {"-7", "-10", "-99"}, {"-6", "0", "7"});
  check(R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "0.5", "1", "1.00", "0.0"},
        {"1.5", "-0.5", "1.01", "2", "-0"});
  check(R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 12})",
        {"0.01", "1", "11.99", "9.5"}, {"0", "0.0", "12", "12.0", "-1", "13"});
  check(R"({"minimum": -3, "maximum": 2})", {"-3", "-2.5", "-0.5", "0", "1.9", "2", "2.0"},
        {"-3.1", "2.1", "-4", "3"});
  check(R"({"minimum": -30, "exclusiveMaximum": -20})", {"-30", "-20.5", "-25.25"},
        {"-20", "-20.0", "-31", "-19", "25"});
  check(R"({"type": "number", "minimum": 5})", {"5", "5.5", "70", "1234.5"}, {"4.9", "-5"});
}

TEST_CASE("JSON schemas: constants, choices, and several types") {
  check(R"({"enum": ["a\"b", 1, null, {"x": [1]}]})", {R"("a\"b")", "1", "null", R"({"x":[1]})"},
        {"2", R"("a")"});
  check(R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"});
  check(R"({"const": "é"})", {R"("é")"}, {R"("e")"});
  check(R"({"enum": [1, 5, 9.5, "a"], "minimum": 2, "exclusiveMaximum": 9.5})", {"5", R"("a")"},
        {"1", "9.5"});
  check(R"({"enum": ["a", "ab", "aé", "1", 7], "minLength": 2, "maxLength": 2})",
        {R"("ab")", R"("aé")", "7"}, {R"("a")", R"("1")"});
  check(R"({"enum": ["a", "b1", 7], "pattern": "\\d$"})", {R"("b1")", "7"}, {R"("a")"});
  check(R"({"enum": ["1", "b1", "bé1"], "pattern": "\\d$", "minLength": 2, "maxLength": 2})",
        {R"("b1")"}, {R"("1")", R"("bé1")"});
  check(R"({"type": "integer", "enum": [1.0, 2.5, 3]})", {"1.0", "3"}, {"2.5"});
  check(R"({"enum": [9007199254740992, 9007199254740993, 9007199254740994],
            "minimum": 9007199254740993, "exclusiveMaximum": 9007199254740994})",
        {"9007199254740993"}, {"9007199254740992", "9007199254740994"});
  check(R"({"const": 9007199254740993, "enum": [9007199254740993, 9007199254740992]})",
        {"9007199254740993"}, {"9007199254740992"});
  check(R"({"const": 2, "enum": [1, 2]})", {"2"}, {"1"});
  check(R"({"type": ["null", "integer"], "minimum": 3})", {"null", "3"}, {"2", "true"});
  check(R"({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 0}]})", {"null", R"("")"},
        {"1"});
  check(
      R"({"properties": {"a": {"type": "null"}}, "oneOf": [{"required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
      {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"}, {"{}"});
  check(R"({"allOf": [{"properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
                      {"properties": {"b": {"type": "null"}, "a": {"minimum": 3}}, "required": ["b"]}]})",
        {R"({"a":3,"b":null})"}, {R"({"a":3})", R"({"b":null})", R"({"a":2,"b":null})"});
  const std::string a = R"({"properties": {"a": {"type": "null"}}, "additionalProperties": )";
  const std::string b = R"({"properties": {"b": {}}})";
  for (const std::string& both : {"[" + a + "false}, " + b + "]", "[" + b + ", " + a + "false}]"}) {
    check(R"({"allOf": )" + both + "}", {"{}", R"({"a":null})"}, {R"({"b":1})", R"({"a":1})"});
    fails(Errc::unsupported, R"({"required": ["b"], "allOf": )" + both + "}", "nothing");
  }
  check(R"({"allOf": [)" + a + R"({"type": "integer"}}, )" + b + "]}",
        {R"({"b":1})", R"({"a":null,"b":2})", R"({"c":3})"}, {R"({"b":"x"})", R"({"c":null})"});
  check(R"({"allOf": [)" + a + R"(true}, {"additionalProperties": {"type": "null"}}]})",
        {R"({"a":null,"c":null})"}, {R"({"a":"x"})", R"({"c":1})"});
  check(R"({"allOf": [{"properties": {"a": true}}, {"properties": {"a": {"type": "null"}}}]})",
        {R"({"a":null})"}, {R"({"a":1})"});
}

TEST_CASE("JSON schemas: references, also to themselves") {
  check(R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["next"],
        "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}}}}})",
        {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
        {"null", R"({"next":1})", "{}"});
  check(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  check(
      R"({"definitions": {"a/b": {"type": "integer"}}, "properties": {"x": {"$ref": "#/definitions/a~1b", "minimum": 4}}})",
      {R"({"x":4})"}, {R"({"x":3})"});
  check(R"({"$ref": "#/%24defs/a%20b%25", "$defs": {"a b%": {"type": "null"}}})", {"null"}, {"1"});
  check(R"({"$ref": "#/$defs/1%", "$defs": {"1%": {"type": "null"}}})", {"null"}, {"1"});
  fails(Errc::bad_reference, R"({"$ref": "#/$defs/x"})", "#/$defs/x");
  fails(Errc::unsupported, R"({"$ref": "other.json"})", "other.json");
  fails(Errc::cycle, R"({"$ref": "#"})", "itself");
  fails(Errc::depth_limit, R"({"allOf": [{"$ref": "#"}]})", "deep");
}

TEST_CASE(
    "JSON schemas: what is not a schema, or more than a grammar can say, is refused with its "
    "place") {
  fails(Errc::syntax, "{", "JSON schema:1:2");
  fails(Errc::duplicate_name, R"({"type": "null", "type": "null"})", "type");
  fails(Errc::bad_type, "[]", "#");
  fails(Errc::bad_type, R"({"type": 1})", "#");
  // A long name is cut between two of its characters: 98 bytes of é behind the a.
  std::string name = "a";
  for (int i = 0; i < 60; ++i) name += "é";
  fails(Errc::bad_type, R"({"properties": {")" + name + R"(": {"type": 1}}})",
        name.substr(0, 99) + "...");
  fails(Errc::bad_argument, R"({"type": "float"})", "float");
  fails(Errc::bad_type, R"({"properties": {"a": 1}})", "#/properties/a");
  fails(Errc::bad_type, R"({"required": "a"})", "required");
  fails(Errc::bad_argument, R"({"enum": []})", "enum");
  fails(Errc::bad_argument, R"({"type": "string", "const": null})", "const");
  fails(Errc::bad_argument, R"({"const": 3, "enum": [1, 2]})", "const");
  fails(Errc::unsupported, R"({"properties": {"a": {}}, "enum": [{"a": 1}]})", "properties");
  fails(Errc::bad_argument, R"({"items": {}, "minItems": -1})", "minItems");
  fails(Errc::bad_argument, R"({"items": {}, "minItems": 3, "maxItems": 2})", "maxItems");
  fails(Errc::bad_argument, R"({"type": "integer", "minimum": 3, "maximum": 2})", "bounds");
  fails(Errc::bad_argument, R"({"pattern": "(a"})", "(a");
  fails(Errc::unsupported, R"({"pattern": "(?=a)b"})", "look");
  fails(Errc::unsupported, R"({"pattern": "a\\b"})", "\\b");
  fails(Errc::unsupported, R"({"pattern": "a", "maxLength": 3})", "pattern");
  fails(Errc::unsupported, R"({"properties": {"a": {"not": {}}}})", "#/properties/a");
  fails(Errc::unsupported, R"({"items": {}, "uniqueItems": true})", "uniqueItems");
  fails(Errc::unsupported, R"({"type": "number", "minimum": 0.5})", "0.5");
  fails(Errc::unsupported, R"({"allOf": [{"const": 1}, {"const": 2}]})", "const");
  fails(Errc::bad_argument,
        R"({"properties": {}, "required": ["a"], "additionalProperties": false})", "\"a\"");
  check(R"({"uniqueItems": false, "items": {"type": "null"}})", {"[null,null]"}, {});
}

TEST_CASE("JSON schemas: what doubles at each level is refused") {
  const std::string levels = R"({"$ref": "#/$defs/a0", "$defs": {)";
  const auto nested = [&](int count, const auto& body) {
    std::string schema = levels;
    for (int i = 0; i < count; ++i) {
      schema +=
          "\"a" + std::to_string(i) + "\": " + body("#/$defs/a" + std::to_string(i + 1)) + ", ";
    }
    return schema + "\"a" + std::to_string(count) + R"(": {"type": "string"}}})";
  };
  const auto reference = [](const std::string& to) { return R"({"$ref": ")" + to + "\"}"; };
  const auto all_of = [&](const std::string& to) {
    return R"({"allOf": [)" + reference(to) + ", " + reference(to) + "]}";
  };
  const auto with_sibling = [&](const std::string& to) {
    return R"({"properties": {"a": {"minLength": 1, "$ref": ")" + to +
           R"("}, "b": {"minLength": 1, "$ref": ")" + to + R"("}}})";
  };
  const auto choices = [&](const std::string& to) {
    return R"({"minLength": 0, "anyOf": [)" + reference(to) + ", " + reference(to) + "]}";
  };
  check(nested(3, all_of), {R"("a")"}, {"1"});
  fails(Errc::limit_exceeded, nested(40, all_of), "merged");
  fails(Errc::limit_exceeded, nested(40, with_sibling), "merged");
  fails(Errc::limit_exceeded, nested(40, choices), "merged");
}

TEST_CASE("JSON schemas: large ones take time in proportion") {
  std::string schema = R"({"additionalProperties": {"type": "null"}, "properties": {)";
  for (int i = 0; i < 4000; ++i) {
    schema += (i ? ", \"" : "\"") + std::string("member") + std::to_string(i) +
              R"(": {"type": "integer"})";
  }
  schema += "}}";
  check(schema, {R"({"member17":3,"member3999":4,"other":null})"},
        {R"({"member3999":4,"member17":3})"});
  fails(Errc::limit_exceeded, std::string(1 << 20, ' ') + "{}", "bytes");
  const auto with_name = [](std::size_t length) {
    return R"({"properties": {")" + std::string(length, 'a') +
           R"(": {"type": "null"}}, "additionalProperties": true})";
  };
  const std::string name(30'000, 'a');
  check(with_name(name.size()), {"{\"" + name + "\":null}", "{\"" + name + "a\":1}"},
        {"{\"" + name + "\":1}"});
  fails(Errc::limit_exceeded, with_name(150'000), "instructions");
  const auto repeated = [](std::size_t count, const auto& one) {
    std::string list;
    for (std::size_t i = 0; i < count; ++i) list.append(i > 0 ? "," : "").append(one(i));
    return list;
  };
  const auto any_of = [&](std::size_t count, const auto& one) {
    return R"({"anyOf": [)" + repeated(count, one) + "]}";
  };
  check(any_of(1000, [](std::size_t) { return R"({"enum":["a"],"maxLength":65536})"; }), {R"("a")"},
        {R"("b")"});
  check(any_of(1000, [](std::size_t) { return R"({"enum":["a1"],"pattern":"\\d{1,60000}$"})"; }),
        {R"("a1")"}, {R"("1")"});
  fails(Errc::limit_exceeded,
        any_of(40,
               [](std::size_t i) {
                 return R"({"enum":["a"],"pattern":"^(a|b{)" + std::to_string(60'000 + i) +
                        R"(})$"})";
               }),
        "instructions");
  fails(Errc::bad_argument, any_of(40, [](std::size_t) { return R"({"type":["null","x"]})"; }),
        "x");
  const auto name_of = [](std::size_t i) { return "\"a" + std::to_string(i) + "\""; };
  const std::string names = repeated(10'000, name_of);
  const std::string properties =
      R"("properties": {)" + repeated(10'000, [&](std::size_t i) { return name_of(i) + ":{}"; }) +
      "}";
  check("{" + properties + R"(, "required": [)" + names + "]}", {}, {"{}"});
  check(R"({"allOf": [{)" + properties + "}, {" + properties + R"(, "title": "t"}]})", {}, {});
}
