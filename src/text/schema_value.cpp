#include "schema_value.hpp"

#include "base/strict_json.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// Builds the value of a text that is known to be well-formed.
class SchemaBuilder {
 public:
  SchemaValue take() { return std::move(root_); }

  bool null() { return place({}); }
  bool boolean(bool value) { return place({.kind = SchemaValue::Kind::boolean, .flag = value}); }
  bool number_integer(nlohmann::json::number_integer_t value) { return place_integer(value); }
  bool number_unsigned(nlohmann::json::number_unsigned_t value) { return place_integer(value); }
  bool number_float(nlohmann::json::number_float_t value, const std::string& spelling) {
    return place({.kind = SchemaValue::Kind::real, .number = value, .text = spelling});
  }
  bool string(std::string& value) {
    return place({.kind = SchemaValue::Kind::string, .text = std::move(value)});
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }

  bool start_object(std::size_t /*size*/) { return open(SchemaValue::Kind::object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(SchemaValue::Kind::array); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    open_.back()->members.emplace_back(std::move(name), SchemaValue());
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
    return false;
  }

 private:
  template <class Integer>
  bool place_integer(Integer value) {
    return place({.kind = SchemaValue::Kind::integer,
                  .number = static_cast<double>(value),
                  .text = fmt::format("{}", value)});
  }
  bool place(SchemaValue value) {
    slot() = std::move(value);
    return true;
  }
  bool open(SchemaValue::Kind kind) {
    SchemaValue& value = slot();
    value.kind = kind;
    open_.push_back(&value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  /// Where the next value goes. Addresses stay valid: only the innermost container grows.
  SchemaValue& slot() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return open_.back()->members.back().second;
    return open_.back()->items.emplace_back();
  }

  SchemaValue root_;
  std::vector<SchemaValue*> open_;
};

}  // namespace

const SchemaValue* SchemaValue::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(members, name, &Member::first);
  return found == members.end() ? nullptr : &found->second;
}

SchemaValue& SchemaValue::member(std::string_view name) {
  const auto found = std::ranges::find(members, name, &Member::first);
  if (found != members.end()) return found->second;
  return members.emplace_back(std::string(name), SchemaValue()).second;
}

void SchemaValue::erase(std::string_view name) {
  std::erase_if(members, [&](const Member& one) { return one.first == name; });
}

const SchemaValue* SchemaValue::at_pointer(std::string_view pointer) const {
  const SchemaValue* value = this;
  while (!pointer.empty() && value != nullptr) {
    if (pointer.front() != '/') return nullptr;
    const std::string_view part = pointer.substr(1, pointer.substr(1).find('/'));
    pointer.remove_prefix(1 + part.size());
    if (value->is_array()) {
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool is_index = error == std::errc() && end == part.data() + part.size();
      value = is_index && index < value->items.size() ? &value->items[index] : nullptr;
      continue;
    }
    std::string name;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const bool is_escape = part[i] == '~' && i + 1 < part.size();
      name += is_escape ? (part[++i] == '0' ? '~' : '/') : part[i];
    }
    value = value->find(name);
  }
  return value;
}

std::string SchemaValue::dump() const {
  std::string json;
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return flag ? "true" : "false";
    case Kind::integer:
    case Kind::real:
      return text;
    case Kind::string:
      return json_string(text);
    case Kind::array:
      for (const SchemaValue& item : items) json += (json.empty() ? "" : ",") + item.dump();
      return "[" + json + "]";
    case Kind::object:
      for (const auto& [name, value] : members) {
        json += (json.empty() ? "" : ",") + json_string(name) + ":" + value.dump();
      }
      return "{" + json + "}";
  }
  return json;
}

bool operator==(const SchemaValue& one, const SchemaValue& other) {
  if (one.is_number() && other.is_number()) return one.number == other.number;
  if (one.kind != other.kind || one.flag != other.flag || one.text != other.text) return false;
  if (one.items != other.items || one.members.size() != other.members.size()) return false;
  return std::ranges::all_of(one.members, [&](const SchemaValue::Member& member) {
    const SchemaValue* const found = other.find(member.first);
    return found != nullptr && *found == member.second;
  });
}

SchemaValue parse_schema(std::string_view text, std::string_view where) {
  static_cast<void>(parse_strict_json(text, where));
  SchemaBuilder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace tenon::text
