#pragma once

#include "base/immortal.hpp"

#include <tenon/error.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::text {

/// Access to the members of a tokenizer.json's components, with errors that name the file.
class JsonParts {
 protected:
  using json = nlohmann::json;

  explicit JsonParts(std::string_view where) : where_(where) {}

  [[noreturn]] void malformed(std::string message) const {
    throw Error(Errc::bad_tokenizer, std::string(where_), std::move(message));
  }

  [[noreturn]] void unsupported(std::string message) const {
    throw Error(Errc::unsupported, std::string(where_), std::move(message));
  }

  static const json& optional(const json& object, const char* key) {
    const json& null = process_wide([] { return json(); });
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  const json& required(const json& object, const char* key) const {
    const json& value = optional(object, key);
    if (value.is_null()) malformed(fmt::format("\"{}\" is missing", key));
    return value;
  }

  const std::string& text(const json& object, const char* key) const {
    const json& value = required(object, key);
    if (!value.is_string()) malformed(fmt::format("\"{}\" is no string", key));
    return value.get_ref<const std::string&>();
  }

  /// Whether a value is this text. The library's own comparison makes a value of the text, and ends
  /// the process where there is no memory for it.
  static bool says(const json& value, std::string_view text) {
    return value.is_string() && value.get_ref<const std::string&>() == text;
  }

  bool flag(const json& object, const char* key, bool fallback) const {
    const json& value = optional(object, key);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) malformed(fmt::format("\"{}\" is neither true nor false", key));
    return value.get<bool>();
  }

  std::uint32_t id(const json& value, std::string_view of) const {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      malformed(fmt::format("the id of \"{}\" is no small whole number", of.substr(0, 80)));
    }
    return value.get<std::uint32_t>();
  }

  /// The parts of a component: a Sequence's, or the component alone.
  std::vector<const json*> parts(const json& component, const char* list_key) const {
    std::vector<const json*> flat;
    if (component.is_null()) return flat;
    if (text(component, "type") != "Sequence") return {&component};
    const json& list = required(component, list_key);
    if (!list.is_array()) malformed(fmt::format("\"{}\" is no list", list_key));
    for (const json& part : list) {
      // The parser bounds the nesting, and with it this recursion.
      const auto inner = parts(part, list_key);
      flat.insert(flat.end(), inner.begin(), inner.end());
    }
    return flat;
  }

  std::string_view where() const { return where_; }

 private:
  std::string_view where_;
};

}  // namespace tenon::text
