#include "json_reader.hpp"

#include <algorithm>
#include <limits>
#include <ranges>
#include <vector>

#include <fmt/format.h>

namespace tenon::io {

std::string JsonValue::path() const {
  std::vector<const JsonValue*> way;
  for (const JsonValue* value = this; value->outer_ != nullptr; value = value->outer_) {
    way.push_back(value);
  }
  std::string text;
  for (const JsonValue* const value : std::views::reverse(way)) {
    const std::string_view key = value->key_;
    text += '/';
    text += key.empty() ? std::to_string(value->index_) : std::string(key);
  }
  return text.empty() ? "/" : text;
}

std::string JsonValue::where() const { return fmt::format("{}:{}", file_.name, path()); }

void JsonValue::expect(bool right, std::string_view what) const {
  if (!right) fail(Errc::bad_type, fmt::format("expected {}, found {}", what, value_.type_name()));
}

bool JsonValue::has(std::string_view key) const {
  expect(value_.is_object(), "an object");
  return value_.find(key) != value_.end();
}

JsonValue JsonValue::operator[](const char* key) const {
  expect(value_.is_object(), "an object");
  const auto member = value_.find(key);
  if (member == value_.end()) fail(Errc::bad_key, fmt::format("there is no '{}'", key));
  return {*member, *this, key, 0};
}

void JsonValue::check_keys(std::initializer_list<std::string_view> known) const {
  expect(value_.is_object(), "an object");
  for (auto member = value_.begin(); member != value_.end(); ++member) {
    if (std::ranges::find(known, member.key()) != known.end()) continue;
    constexpr std::size_t shown = 60;
    const std::string_view key = std::string_view(member.key()).substr(0, shown);
    if (file_.strict) fail(Errc::bad_key, fmt::format("the format knows no key '{}'", key));
    if (file_.unknown_keys++ == 0) file_.first_unknown = fmt::format("{}/{}", path(), key);
  }
}

std::size_t JsonValue::size() const {
  expect(value_.is_array(), "an array");
  return value_.size();
}

JsonValue JsonValue::operator[](std::size_t index) const {
  return {value_[index], *this, {}, index};
}

const std::string& JsonValue::text() const {
  expect(value_.is_string(), "a string");
  return value_.get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  expect(value_.is_boolean(), "true or false");
  return value_.get<bool>();
}

std::int64_t JsonValue::integer() const {
  expect(value_.is_number_integer(), "an integer");
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value_.is_number_unsigned() && value_.get<std::uint64_t>() > most) {
    fail(Errc::bad_type, fmt::format("{} does not fit 64 bits", value_.get<std::uint64_t>()));
  }
  return value_.get<std::int64_t>();
}

}  // namespace tenon::io
