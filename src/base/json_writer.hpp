// JSON, written token by token.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tenon {

/// Appends JSON to a string, without white space and with keys in the order of the calls, which the
/// caller keeps well-formed. There is no document in memory: when memory runs out, only a string
/// has to be destroyed, which needs no memory (in contrast to JsonDocument, see there).
///
///     JsonWriter json;
///     json.begin_object().key("dims").begin_array().value(4).value(8).end_array().end_object();
///     json.take();  // {"dims":[4,8]}
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  /// Before each value of an object.
  JsonWriter& key(std::string_view name);

  /// Bytes that are not UTF-8 become U+FFFD.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <std::integral Number>
  JsonWriter& value(Number number) {
    if constexpr (std::is_same_v<Number, bool>) {
      return write(number ? "true" : "false");
    } else {
      return write(std::to_string(number));
    }
  }
  /// The shortest digits that read back as the same number, which is finite.
  JsonWriter& value(double number);

  template <class Value>
  JsonWriter& member(std::string_view name, const Value& of_it) {
    return key(name).value(of_it);
  }

  const std::string& text() const noexcept { return text_; }
  std::string take() { return std::exchange(text_, {}); }

 private:
  void separate();
  void quote(std::string_view text);
  JsonWriter& write(std::string_view token);
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);

  std::string text_;
  bool follows_a_value_ = false;  ///< what comes next in this container comes after a comma
};

/// One string as JSON.
std::string json_string(std::string_view text);

}  // namespace tenon
