#include "base/suggestion.hpp"
#include "names.hpp"

#include <tenon/error.hpp>
#include <tenon/io/metadata.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace tenon::io {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<TypeFacts, meta_type_count> type_facts{{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

bool is_integer(MetaType type) noexcept {
  switch (type) {
    case MetaType::u8:
    case MetaType::i8:
    case MetaType::u16:
    case MetaType::i16:
    case MetaType::u32:
    case MetaType::i32:
    case MetaType::u64:
    case MetaType::i64:
      return true;
    default:
      return false;
  }
}

bool is_signed(MetaType type) noexcept {
  return type == MetaType::i8 || type == MetaType::i16 || type == MetaType::i32 ||
         type == MetaType::i64;
}

// The number in `value` as T, when it is an integer within [low, high]; calls one of the failures,
// which do not return, otherwise.
template <class T, class BadType, class BadRange>
T integer_within(const MetaValue& value, T low, T high, BadType bad_type, BadRange bad_range) {
  return std::visit(
      [&](const auto& number) -> T {
        using Number = std::decay_t<decltype(number)>;
        if constexpr (std::integral<Number> && !std::is_same_v<Number, bool>) {
          if (std::cmp_less(number, low) || std::cmp_greater(number, high)) bad_range(number);
          return static_cast<T>(number);
        } else {
          bad_type();
          return T{};
        }
      },
      value);
}

// Whether the top bit of a little-endian integer is set: then it has no value of the other sign.
bool top_bit(const std::byte* element, std::size_t size) noexcept {
  return (element[size - 1] & std::byte{0x80}) != std::byte{0};
}

}  // namespace

std::string_view name(MetaType type) noexcept {
  return type_facts[static_cast<std::size_t>(type)].name;
}

std::size_t size_bytes(MetaType type) noexcept {
  return type_facts[static_cast<std::size_t>(type)].size_bytes;
}

bool operator==(const MetaArray& a, const MetaArray& b) noexcept {
  return a.element_type_ == b.element_type_ && a.count_ == b.count_ &&
         std::ranges::equal(a.bytes(), b.bytes()) && std::ranges::equal(a.strings(), b.strings());
}

std::string type_text(const MetaValue& value) {
  if (const auto* array = std::get_if<MetaArray>(&value)) {
    return fmt::format("array of {} {}", array->size(), name(array->element_type()));
  }
  return std::string(name(type_of(value)));
}

Metadata::Metadata(std::vector<Entry> entries, std::shared_ptr<const void> keeper,
                   std::string where)
    : entries_(std::move(entries)), where_(std::move(where)) {
  keepers_.push_back(std::move(keeper));
  by_key_.resize(entries_.size());
  for (std::size_t i = 0; i < by_key_.size(); ++i) by_key_[i] = static_cast<std::uint32_t>(i);
  std::ranges::sort(by_key_, {}, [this](std::uint32_t i) { return entries_[i].key; });
}

const MetaValue* Metadata::find(std::string_view key) const noexcept {
  const auto at = std::ranges::lower_bound(by_key_, key, {},
                                           [this](std::uint32_t i) { return entries_[i].key; });
  if (at == by_key_.end() || entries_[*at].key != key) return nullptr;
  return &entries_[*at].value;
}

const MetaValue& Metadata::require(std::string_view key) const {
  if (const MetaValue* value = find(key)) return *value;
  std::vector<std::string_view> keys;
  keys.reserve(entries_.size());
  for (const Entry& entry : entries_) keys.push_back(entry.key);
  throw Error(Errc::bad_key, where_, "no key " + quote_name(key) + suggestion(key, keys));
}

void Metadata::fail_type(std::string_view key, std::string_view expected) const {
  throw Error(
      Errc::bad_type, where_,
      fmt::format("{} is {}, expected {}", quote_name(key), type_text(require(key)), expected));
}

void Metadata::fail_range(std::string_view key, const std::string& found) const {
  throw Error(Errc::bad_type, where_, fmt::format("{} is {}", quote_name(key), found));
}

bool Metadata::get_bool(std::string_view key) const {
  if (const bool* value = std::get_if<bool>(&require(key))) return *value;
  fail_type(key, "bool");
}

double Metadata::get_floating(std::string_view key) const {
  const MetaValue& value = require(key);
  if (const float* number = std::get_if<float>(&value)) return static_cast<double>(*number);
  if (const double* number = std::get_if<double>(&value)) return *number;
  fail_type(key, "f32 or f64");
}

std::string_view Metadata::get_text(std::string_view key) const {
  if (const auto* text = std::get_if<std::string_view>(&require(key))) return *text;
  fail_type(key, "string");
}

std::int64_t Metadata::get_signed(std::string_view key, std::int64_t low, std::int64_t high) const {
  return integer_within(
      require(key), low, high, [&] { fail_type(key, "an integer"); },
      [&](auto number) {
        fail_range(key, fmt::format("{}, allowed are {} to {}", number, low, high));
      });
}

std::uint64_t Metadata::get_unsigned(std::string_view key, std::uint64_t high) const {
  return integer_within(
      require(key), std::uint64_t{0}, high, [&] { fail_type(key, "an integer"); },
      [&](auto number) { fail_range(key, fmt::format("{}, allowed are 0 to {}", number, high)); });
}

std::span<const std::string_view> Metadata::strings(std::string_view key) const {
  const auto* array = std::get_if<MetaArray>(&require(key));
  if (array == nullptr || array->element_type() != MetaType::string) {
    fail_type(key, "array of string");
  }
  return array->strings();
}

std::size_t Metadata::array_size(std::string_view key) const {
  const auto* array = std::get_if<MetaArray>(&require(key));
  if (array == nullptr) fail_type(key, "an array");
  return array->size();
}

void Metadata::copy_numbers(std::string_view key, MetaType type, void* to) const {
  const auto& array = std::get<MetaArray>(require(key));  // array_size() has seen that it is one
  const MetaType found = array.element_type();
  const std::size_t size = io::size_bytes(type);
  const bool bool_as_byte = type == MetaType::u8 && found == MetaType::boolean;
  const bool other_sign = is_integer(found) && is_integer(type) && io::size_bytes(found) == size &&
                          is_signed(found) != is_signed(type);
  if (found != type && !other_sign && !bool_as_byte) {
    fail_type(key, fmt::format("array of {}", io::name(type)));
  }
  const std::span<const std::byte> bytes = array.bytes();
  if (other_sign) {
    for (std::size_t i = 0; i < array.size(); ++i) {
      if (!top_bit(bytes.data() + i * size, size)) continue;
      throw Error(Errc::bad_type, where_,
                  fmt::format("element {} of {} is no {}", i, quote_name(key), io::name(type)));
    }
  }
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
}

std::string_view Metadata::keep(std::string_view text) {
  auto copy = std::make_shared<const std::string>(text);
  const std::string_view view = *copy;
  keepers_.push_back(std::move(copy));
  return view;
}

void Metadata::set(std::string_view key, std::string_view text) { set_value(key, keep(text)); }

void Metadata::set_strings(std::string_view key, std::span<const std::string_view> strings) {
  std::size_t total = 0;
  for (const std::string_view text : strings) total += text.size();
  auto joined = std::make_shared<std::string>();
  joined->reserve(total);
  for (const std::string_view text : strings) *joined += text;
  std::vector<std::string_view> views;
  views.reserve(strings.size());
  std::size_t begin = 0;
  for (const std::string_view text : strings) {
    views.push_back(std::string_view(*joined).substr(begin, text.size()));
    begin += text.size();
  }
  keepers_.push_back(std::move(joined));
  set_value(key, MetaArray(std::move(views)));
}

void Metadata::set_numbers(std::string_view key, MetaType type, const void* numbers,
                           std::size_t count) {
  const auto* bytes = static_cast<const std::byte*>(numbers);
  auto copy =
      std::make_shared<const std::vector<std::byte>>(bytes, bytes + count * io::size_bytes(type));
  const MetaArray array(type, copy->data(), count);
  keepers_.push_back(std::move(copy));
  set_value(key, array);
}

void Metadata::set_value(std::string_view key, MetaValue value) {
  check_name(key, "key", std::numeric_limits<std::uint64_t>::max(),
             where_.empty() ? "Metadata" : where_);
  const auto key_of = [this](std::uint32_t i) { return entries_[i].key; };
  const auto at = std::ranges::lower_bound(by_key_, key, {}, key_of);
  if (at != by_key_.end() && entries_[*at].key == key) {
    entries_[*at].value = std::move(value);
    return;
  }
  by_key_.insert(at, static_cast<std::uint32_t>(entries_.size()));
  entries_.push_back({keep(key), std::move(value)});
}

}  // namespace tenon::io
