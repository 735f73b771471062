#include "base/json_writer.hpp"

#include "base/strict_json.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("JsonWriter: every kind of value, commas in between") {
  JsonWriter json;
  json.begin_object().member("text", "a").member("yes", true).member("no", false);
  json.member("least", std::numeric_limits<std::int64_t>::min());
  json.member("most", std::numeric_limits<std::uint64_t>::max());
  json.key("empty").begin_array().end_array();
  json.key("lists").begin_array();
  json.begin_array().value(1).value(2).end_array().begin_object().end_object().value(0.5);
  json.end_array().member("last", 3).end_object();
  CHECK(json.text() ==
        R"({"text":"a","yes":true,"no":false,"least":-9223372036854775808,)"
        R"("most":18446744073709551615,"empty":[],"lists":[[1,2],{},0.5],"last":3})");
  CHECK(json.take().size() > 100);
  CHECK(json.text().empty());
}

TEST_CASE("JsonWriter: a real number stays one, and reads back as it was") {
  const auto text = [](double number) {
    JsonWriter json;
    json.value(number);
    return json.take();
  };
  CHECK(text(1) == "1.0");
  CHECK(text(-0.0) == "-0.0");
  CHECK(text(0.1) == "0.1");
  CHECK(text(1e-5) == "1e-05");
  const std::uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const JsonDocument back = parse_strict_json(text(number), "test");
    REQUIRE(back.root().is_number_float());
    REQUIRE(std::bit_cast<std::uint64_t>(back.root().get<double>()) ==
            std::bit_cast<std::uint64_t>(number));
  }
}

TEST_CASE("JsonWriter: strings of any bytes become JSON that reads back") {
  CHECK(json_string("a\"b\\c/\x7F é 🦆") == "\"a\\\"b\\\\c/\x7F é 🦆\"");
  CHECK(json_string("\b\f\n\r\t\x01\x1F") == R"("\b\f\n\r\t\u0001\u001f")");
  CHECK(json_string(std::string_view("\0", 1)) == R"("\u0000")");
  CHECK(json_string("a\xFF\xC3") == "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK(json_string("\xED\xA0\x80z") ==
        "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\"");  // a surrogate
  std::string all;
  for (int byte = 0; byte < 0x80; ++byte) all += static_cast<char>(byte);
  CHECK(parse_strict_json(json_string(all), "test").root().get<std::string>() == all);
}

}  // namespace tenon
