#include "schema_value.hpp"

#include "base/strict_json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

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
  bool end_object() {
    open_.back()->order.assign(open_.back()->members);
    return close();
  }
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

constexpr std::size_t few_members = 16, few_added = 256;

auto name_in(const std::vector<SchemaMember>& members) {
  return [&members](std::uint32_t place) -> std::string_view { return members[place].first; };
}

}  // namespace

void NameOrder::assign(const std::vector<SchemaMember>& members) {
  places_.clear();
  settled_ = 0;
  if (members.size() <= few_members) return;
  places_.resize(members.size());
  std::iota(places_.begin(), places_.end(), 0U);
  std::ranges::sort(places_, {}, name_in(members));
  settled_ = places_.size();
}

void NameOrder::add(const std::vector<SchemaMember>& members) {
  if (places_.empty()) return assign(members);
  const auto settled = [&] { return places_.begin() + static_cast<std::ptrdiff_t>(settled_); };
  const auto last = static_cast<std::uint32_t>(members.size() - 1);
  const auto name = name_in(members);
  places_.insert(std::ranges::lower_bound(settled(), places_.end(), name(last), {}, name), last);
  if (places_.size() - settled_ < few_added) return;
  std::vector<std::uint32_t> merged;  // clang refuses what inplace_merge() uses
  merged.reserve(places_.size());
  std::ranges::merge(std::span(places_).first(settled_), std::span(places_).subspan(settled_),
                     std::back_inserter(merged), {}, name, name);
  places_ = std::move(merged);
  settled_ = places_.size();
}

const SchemaMember* NameOrder::find(const std::vector<SchemaMember>& members,
                                    std::string_view name) const noexcept {
  if (places_.empty()) {
    const auto found = std::ranges::find(members, name, &SchemaMember::first);
    return found == members.end() ? nullptr : &*found;
  }
  const auto name_of = name_in(members);
  const auto settled = places_.begin() + static_cast<std::ptrdiff_t>(settled_);
  for (const auto& [begin, end] :
       {std::pair(places_.begin(), settled), std::pair(settled, places_.end())}) {
    const auto found = std::ranges::lower_bound(begin, end, name, {}, name_of);
    if (found != end && name_of(*found) == name) return &members[*found];
  }
  return nullptr;
}

std::optional<std::int64_t> SchemaValue::integer() const {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  if (kind == Kind::integer) {
    if (std::from_chars(text.data(), end, value).ec == std::errc()) return value;
    return std::nullopt;
  }
  constexpr double limit = 9223372036854775808.0;
  if (kind != Kind::real || number != std::floor(number)) return std::nullopt;
  if (number < -limit || number >= limit) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::partial_ordering compare_numbers(const SchemaValue& one, const SchemaValue& other) {
  const auto a = one.integer(), b = other.integer();
  if (a && b) return *a <=> *b;
  return one.number <=> other.number;
}

const SchemaValue* SchemaValue::find(std::string_view name) const noexcept {
  const Member* const found = order.find(members, name);
  return found == nullptr ? nullptr : &found->second;
}

SchemaValue& SchemaValue::member(std::string_view name) {
  if (const Member* const found = order.find(members, name)) {
    return members[static_cast<std::size_t>(found - members.data())].second;
  }
  members.emplace_back(std::string(name), SchemaValue());
  order.add(members);
  return members.back().second;
}

void SchemaValue::erase(std::string_view name) {
  if (std::erase_if(members, [&](const Member& one) { return one.first == name; }) > 0) {
    order.assign(members);
  }
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
  if (one.is_number() && other.is_number()) return compare_numbers(one, other) == 0;
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
