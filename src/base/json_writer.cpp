#include "base/json_writer.hpp"

#include "base/utf8.hpp"

#include <cstddef>
#include <iterator>

#include <fmt/format.h>

namespace tenon {

void JsonWriter::separate() {
  if (follows_a_value_) text_ += ',';
}

JsonWriter& JsonWriter::write(std::string_view token) {
  separate();
  text_ += token;
  follows_a_value_ = true;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  follows_a_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  follows_a_value_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  follows_a_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
  follows_a_value_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  std::string digits = fmt::format("{}", number);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";  // no integer
  return write(digits);
}

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, utf8_end(text));
    for (const char c : valid) {
      constexpr std::string_view special = "\"\\\b\f\n\r\t";
      constexpr std::string_view letters = "\"\\bfnrt";
      if (const std::size_t at = special.find(c); at != std::string_view::npos) {
        text_ += {'\\', letters[at]};
      } else if (static_cast<unsigned char>(c) < 0x20) {
        fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        text_ += c;
      }
    }
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    text_ += "\xEF\xBF\xBD";
    text.remove_prefix(1);
  }
  text_ += '"';
}

std::string json_string(std::string_view text) {
  JsonWriter writer;
  writer.value(text);
  return writer.take();
}

}  // namespace tenon
