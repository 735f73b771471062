// Types and attributes of a network's JSON.
#include "names.hpp"
#include "network_json.hpp"
#include "program/limits.hpp"

#include <tenon/object.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::io::network {
namespace {

std::string_view kind_of(const AttributeValue& value) {
  constexpr std::string_view kinds[] = {"an integer", "a real number",   "true or false",
                                        "a word",     "an element type", "a list of integers"};
  return kinds[value.index()];
}

/// What JSON has no numbers for.
constexpr std::string_view words_of_reals[] = {"nan", "inf", "-inf"};

}  // namespace

void write_type(JsonWriter& json, const Shape& shape) {
  json.begin_object().member("dtype", name(shape.dtype()));
  json.key("shape").begin_array();
  for (const std::int64_t dim : shape.dims()) {
    if (is_static(dim)) {
      json.value(dim);
    } else {
      json.value(is_symbol(dim) ? symbol_name(dim).text() : std::string_view("_"));
    }
  }
  json.end_array().end_object();
}

Shape read_type(const JsonValue& type, WordBudget& words) {
  type.check_keys({"dtype", "shape"});
  const JsonValue word = type["dtype"];
  std::optional<DType> dtype = find_dtype(word.text());
  if (!dtype) dtype = find_object_type(word.text());
  if (!dtype) {
    word.fail(Errc::unsupported_dtype,
              fmt::format("there is no element type {}", quote_name(word.text())));
  }
  const JsonValue shape = type["shape"];
  if (shape.size() > static_cast<std::size_t>(max_rank)) {
    shape.fail(Errc::bad_shape, fmt::format("{} axes, at most {}", shape.size(), max_rank));
  }
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const JsonValue size = shape[i];
    if (!size.json().is_string()) {
      const std::int64_t dim = size.integer();
      if (dim < 0) size.fail(Errc::bad_shape, fmt::format("a size of {}", dim));
      dims.push_back(dim);
    } else if (size.text() == "_") {
      dims.push_back(unknown_dim);
    } else {
      dims.push_back(size.locate([&] { return symbol(words.intern(size, size.text())); }));
    }
  }
  return type.locate([&] { return Shape(dims, *dtype); });
}

void write_attribute(JsonWriter& json, const AttributeValue& value) {
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, double>) {
          if (std::isnan(held)) {
            json.value(words_of_reals[0]);
          } else if (std::isinf(held)) {
            json.value(words_of_reals[held > 0 ? 1 : 2]);
          } else {
            json.value(held);
          }
        } else if constexpr (std::is_same_v<T, Name>) {
          json.value(held.text());
        } else if constexpr (std::is_same_v<T, DType>) {
          json.value(name(held));
        } else if constexpr (std::is_same_v<T, IntList>) {
          json.begin_array();
          for (const std::int64_t item : held) json.value(item);
          json.end_array();
        } else {
          json.value(held);
        }
      },
      value);
}

namespace {

/// The value as the attribute's own kind has it; nothing when it is another kind.
std::optional<AttributeValue> read_value(const JsonValue& value, const AttributeValue& like,
                                         WordBudget& words) {
  const nlohmann::json& json = value.json();
  if (std::holds_alternative<double>(like)) {
    if (json.is_number()) return json.get<double>();
    if (!json.is_string()) return std::nullopt;
    constexpr double reals[] = {std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()};
    const auto word = std::ranges::find(words_of_reals, value.text());
    if (word == std::end(words_of_reals)) return std::nullopt;
    return reals[word - std::begin(words_of_reals)];
  }
  if (std::holds_alternative<std::int64_t>(like) && json.is_number_integer()) {
    return value.integer();
  }
  if (std::holds_alternative<bool>(like) && json.is_boolean()) return value.boolean();
  if (std::holds_alternative<Name>(like) && json.is_string()) {
    return words.intern(value, value.text());
  }
  if (std::holds_alternative<DType>(like) && json.is_string()) {
    if (const auto dtype = find_dtype(value.text())) return *dtype;
  }
  if (std::holds_alternative<IntList>(like) && json.is_array()) {
    IntList list;
    if (value.size() > static_cast<std::size_t>(max_rank)) return std::nullopt;
    for (std::size_t i = 0; i < value.size(); ++i) list.push_back(value[i].integer());
    return list;
  }
  return std::nullopt;
}

}  // namespace

void read_attributes(const JsonValue& attributes, std::string_view node, OpInstance& op,
                     WordBudget& words) {
  static_cast<void>(attributes.has(""));  // an object
  for (const auto& item : attributes.json().items()) {
    const std::string& key = item.key();
    const auto field = std::ranges::find(op.def()->fields, key, &AttributeField::name);
    const auto refuse = [&](std::string_view why) {
      attributes.fail(Errc::bad_attribute, fmt::format("attribute {} of {} '{}' {}",
                                                       quote_name(key), op.def()->name, node, why));
    };
    if (field == op.def()->fields.end()) {
      std::vector<std::string_view> known;
      for (const AttributeField& each : op.def()->fields) known.push_back(each.name);
      refuse(known.empty() ? "does not exist: the op has none"
                           : fmt::format("does not exist; there is: {}", fmt::join(known, ", ")));
    }
    const AttributeValue like = field->get(op.def()->defaults);
    const auto value = [&]() -> std::optional<AttributeValue> {
      try {
        return read_value(attributes[key.c_str()], like, words);
      } catch (const Error& error) {
        if (error.code() != Errc::bad_type) throw;
        return std::nullopt;  // an integer that is none, or too large
      }
    }();
    if (!value || !field->set(op.attributes(), *value)) {
      refuse(fmt::format("is {}, not {:.40}", kind_of(like), item.value().dump()));
    }
  }
}

Name WordBudget::intern(const JsonValue& place, const std::string& text) {
  if (!words_.contains(text)) {
    if (text.size() > program_limits::name_bytes || words_.size() == program_limits::words) {
      place.fail(Errc::limit_exceeded,
                 fmt::format("more than {} different words, or one of more than {} bytes",
                             program_limits::words, program_limits::name_bytes));
    }
    words_.insert(text);
  }
  return {text};
}

}  // namespace tenon::io::network
