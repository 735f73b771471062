#include "jinja_functions.hpp"
#include "jinja_numbers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

/// Of what select, map and the like take: nothing of a value that is false.
std::vector<Value> items_if_true(const Value& value) {
  return value.is_true() ? items_of(value) : std::vector<Value>();
}

/// The value at a path of attributes, "a.b.0".
Value at_path(const Value& value, const Value& path) {
  if (path.is_integer()) return item_of(value, path);
  if (path.text() == nullptr) refuse(fmt::format("an attribute that is {}", path.type_name()));
  Value at = value;
  std::string_view rest = path.text()->bytes;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    const bool is_number =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && name.size() < 10) {
      at = item_of(at, *read_integer(name));
    } else {
      at = item_of(at, Value::of(name));
    }
    if (name.size() == rest.size()) return at;
    rest.remove_prefix(name.size() + 1);
  }
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   count, rest.values.size())));
  return rest;
}

Value map_filter(const Value& value, const Arguments& a) {
  ListBuilder out;
  if (const Value* const path = argument(a, std::numeric_limits<std::size_t>::max(), "attribute")) {
    const Value* const otherwise = argument(a, std::numeric_limits<std::size_t>::max(), "default");
    for (const Value& item : items_if_true(value)) {
      Value found = at_path(item, *path);
      out.add(found.is_undefined() && otherwise != nullptr ? *otherwise : std::move(found));
    }
    return Value::list(out.take());
  }
  const std::string name = text_argument(a, 0, "filter").bytes;
  const Filter filter = find_filter(name);
  if (filter == nullptr) refuse(fmt::format("no filter '{}'", name));
  const Arguments rest = without_first(a, 1);
  for (const Value& item : items_if_true(value)) out.add(filter(item, rest));
  return Value::list(out.take());
}

Value selected(const Value& value, const Arguments& a, bool by_attribute, bool is_kept) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (by_attribute && a.values.empty()) refuse("selectattr and rejectattr take an attribute");
  Test test = nullptr;
  if (a.values.size() > first) {
    const std::string name = text_argument(a, first, "test").bytes;
    test = find_test(name);
    if (test == nullptr) refuse(fmt::format("no test '{}'", name));
  }
  const Arguments rest = without_first(a, first + 1);
  std::vector<Value> out;
  for (const Value& item : items_if_true(value)) {
    const Value of = by_attribute ? at_path(item, a.values[0]) : item;
    const bool holds = test == nullptr ? of.is_true() : test(of, rest);
    if (holds == is_kept) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value sort_key(const Value& item, const Value* path, bool is_sensitive) {
  const Value key = path == nullptr ? item : at_path(item, *path);
  if (is_sensitive || key.text() == nullptr) return key;
  return lower(*key.text());
}

/// Of "a,b": by a, and by b where these are equal.
Value sort_key_of_paths(const Value& item, const Value& paths, bool is_sensitive) {
  if (paths.text() == nullptr || paths.text()->bytes.find(',') == std::string::npos) {
    return sort_key(item, &paths, is_sensitive);
  }
  ListBuilder keys;
  for (const Value& path : items_of(split(*paths.text(), Text{","}, -1))) {
    keys.add(sort_key(item, &path, is_sensitive));
  }
  return Value::list(keys.take(), true);
}

Value sort_filter(const Value& value, const Arguments& a) {
  const bool is_reversed = flag_argument(a, 0, "reverse"),
             is_sensitive = flag_argument(a, 1, "case_sensitive");
  const Value* const path = argument(a, 2, "attribute");
  const std::vector<Value> items = items_of(value);
  ListBuilder keys;
  for (const Value& item : items) {
    keys.add(path == nullptr ? sort_key(item, nullptr, is_sensitive)
                             : sort_key_of_paths(item, *path, is_sensitive));
  }
  std::vector<Value> out;
  for (const std::size_t i : order_of(keys.take(), is_reversed)) out.push_back(items[i]);
  return Value::list(std::move(out));
}

Value dictsort_filter(const Value& value, const Arguments& a) {
  if (value.dict() == nullptr) refuse(fmt::format("dictsort of {}", value.type_name()));
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const std::optional<Text> by = optional_text(a, 1, "by");
  const bool by_value = by && by->bytes == "value";
  const auto& entries = value.dict()->entries;
  ListBuilder keys, out;
  for (const Entry& entry : entries) {
    keys.add(sort_key(by_value ? entry.second : entry.first, nullptr, is_sensitive));
  }
  for (const std::size_t i : order_of(keys.take(), flag_argument(a, 2, "reverse"))) {
    out.add(Value::list({entries[i].first, entries[i].second}, true));
  }
  return Value::list(out.take());
}

Value unique_filter(const Value& value, const Arguments& a) {
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const Value* const path = argument(a, 1, "attribute");
  std::vector<Value> out;
  ListBuilder seen;
  for (const Value& item : items_of(value)) {
    const Value key = sort_key(item, path, is_sensitive);
    if (std::ranges::any_of(seen.items(), [&](const Value& one) { return are_equal(one, key); }))
      continue;
    seen.add(key);
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value extreme(const Value& value, const Arguments& a, bool wants_largest) {
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const Value* const path = argument(a, 1, "attribute");
  const std::vector<Value> items = items_of(value);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const Value one = sort_key(items[i], path, is_sensitive),
                other = sort_key(items[best], path, is_sensitive);
    if (wants_largest ? is_less(other, one) : is_less(one, other)) best = i;
  }
  return items[best];
}

Value groupby_filter(const Value& value, const Arguments& a) {
  const Value* const path = argument(a, 0, "attribute");
  if (path == nullptr) refuse("groupby takes an attribute");
  const std::vector<Value> items = items_of(value);
  ListBuilder made;
  for (const Value& item : items) made.add(sort_key(item, path, false));
  const std::vector<Value> keys = made.take();
  const std::vector<std::size_t> order = order_of(keys, false);
  std::vector<Value> members;
  ListBuilder groups;
  for (std::size_t i = 0; i < order.size(); ++i) {
    members.push_back(items[order[i]]);
    if (i + 1 < order.size() && are_equal(keys[order[i]], keys[order[i + 1]])) continue;
    const Value key = at_path(members.front(), *path);
    groups.add(Value::list({key, Value::list(std::exchange(members, {}))}, true));
  }
  return Value::list(groups.take());
}

Value sum_filter(const Value& value, const Arguments& a) {
  const Value* const path = argument(a, 0, "attribute");
  const Value* const start = argument(a, 1, "start");
  Value sum = start == nullptr ? Value(std::int64_t{0}) : *start;
  for (const Value& item : items_of(value)) {
    const Value one = path == nullptr ? item : at_path(item, *path);
    if (!one.is_number() || !sum.is_number()) refuse(fmt::format("a sum of {}", one.type_name()));
    sum = number_result("+", sum, one);
  }
  return sum;
}

Value batch_filter(const Value& value, const Arguments& a) {
  const std::int64_t size = width_argument(a, 0, "linecount", 0);
  const Value* const fill = argument(a, 1, "fill_with");
  if (size == 0) refuse("batch of 0");
  std::vector<Value> part;
  ListBuilder out;
  for (const Value& item : items_of(value)) {
    part.push_back(item);
    if (static_cast<std::int64_t>(part.size()) == size)
      out.add(Value::list(std::exchange(part, {})));
  }
  if (!part.empty()) {
    while (fill != nullptr && static_cast<std::int64_t>(part.size()) < size) part.push_back(*fill);
    out.add(Value::list(std::move(part)));
  }
  return Value::list(out.take());
}

Value default_filter(const Value& value, const Arguments& a) {
  const bool is_missing =
      value.is_undefined() || (flag_argument(a, 1, "boolean") && !value.is_true());
  if (!is_missing) return value;
  const Value* const otherwise = argument(a, 0, "default_value");
  return otherwise == nullptr ? Value::of("") : *otherwise;
}

Value json_filter(const Value& value, const Arguments& a) {
  if (value.is_undefined()) refuse_undefined(value);
  JsonStyle style;
  style.ensure_ascii = flag_argument(a, std::numeric_limits<std::size_t>::max(), "ensure_ascii");
  style.sort_keys = flag_argument(a, std::numeric_limits<std::size_t>::max(), "sort_keys");
  const Value* const indent = argument(a, 0, "indent");
  if (indent != nullptr && !indent->is_none()) style.indent = width_argument(a, 0, "indent", 0);
  const Value* const separators =
      argument(a, std::numeric_limits<std::size_t>::max(), "separators");
  if (separators != nullptr && !separators->is_none()) {
    const std::vector<Value> both = items_of(*separators);
    if (both.size() != 2) refuse("'separators' are two texts");
    style.item_separator = to_text(both[0]).bytes;
    style.key_separator = to_text(both[1]).bytes;
  }
  return marked(to_json(value, style), has_content(value));
}

Value integer_filter(const Value& value, const Arguments& a) {
  const Value* const given = argument(a, 0, "default");
  const Value otherwise = given == nullptr ? Value(std::int64_t{0}) : *given;
  if (value.is_integer()) return value.integer();
  double number = 0;
  if (value.is_number()) {
    number = value.number();
    if (std::isinf(number)) refuse("int of a number without end");
  } else {
    if (value.text() == nullptr) return otherwise;
    if (integer_argument(a, 1, "base", 10) != 10) refuse("int of a text of another base than 10");
    const std::string text = stripped(*value.text(), std::nullopt, both_sides).bytes;
    if (const auto integer = read_integer(text)) return *integer;
    number = read_real(text).value_or(std::nan(""));
  }
  if (!std::isfinite(number)) return otherwise;
  const std::optional<std::int64_t> whole = whole_of(number);
  if (!whole) refuse("a number of more than 64 bits");
  return *whole;
}

Value real_filter(const Value& value, const Arguments& a) {
  const Value* const given = argument(a, 0, "default");
  const Value otherwise = given == nullptr ? Value(0.0) : *given;
  if (value.is_number()) return value.number();
  if (value.text() == nullptr) return otherwise;
  const auto number = read_real(stripped(*value.text(), std::nullopt, both_sides).bytes);
  return number ? Value(*number) : otherwise;
}

Value round_filter(const Value& value, const Arguments& a) {
  if (!value.is_number()) refuse(fmt::format("round of {}", value.type_name()));
  const std::string method = optional_text(a, 1, "method").value_or(Text{"common"}).bytes;
  if (method != "common" && method != "ceil" && method != "floor") {
    refuse("the method of round is common, ceil or floor");
  }
  const Value* const precision = argument(a, 0, "precision");
  const bool is_none = precision != nullptr && precision->is_none();
  const std::int64_t digits = integer_argument(a, 0, "precision", 0);
  if (method != "common") {
    if (is_none) refuse("round without a precision");
    return rounded_to_side(value, digits, method == "ceil");
  }
  const Value nearest = rounded(value, digits);
  if (!is_none || nearest.is_integer()) return nearest;
  const std::optional<std::int64_t> whole = whole_of(nearest.number());
  if (!whole) refuse("a number of more than 64 bits");
  return *whole;
}

Value reverse_filter(const Value& value, const Arguments&) {
  if (const Text* const text = value.text()) {
    const std::vector<std::size_t> places = character_places(text->bytes);
    Text out;
    for (std::size_t i = places.size() - 1; i > 0; --i)
      append(out, part_of(*text, places[i - 1], places[i]));
    return out;
  }
  std::vector<Value> items = items_of(value);
  std::ranges::reverse(items);
  return Value::list(std::move(items));
}

Value join_filter(const Value& value, const Arguments& a) {
  const Value* const separator = argument(a, 0, "d");
  const Value* const path = argument(a, 1, "attribute");
  std::vector<Value> items = items_of(value);
  for (Value& item : items) {
    if (path != nullptr) item = at_path(item, *path);
  }
  return joined(items, separator == nullptr ? Text{} : to_text(*separator));
}

Value indent_filter(const Value& value, const Arguments& a) {
  const Value* const width = argument(a, 0, "width");
  Text indent{std::string(4, ' ')};
  if (width != nullptr && width->text() != nullptr) {
    indent = *width->text();
  } else if (width != nullptr) {
    indent = Text{std::string(static_cast<std::size_t>(width_argument(a, 0, "width", 4)), ' ')};
  }
  return indented(to_text(value), indent, flag_argument(a, 1, "first"),
                  flag_argument(a, 2, "blank"));
}

Value truncate_filter(const Value& value, const Arguments& a) {
  if (value.text() == nullptr) return value;
  const Text& text = *value.text();
  const std::int64_t length = width_argument(a, 0, "length", 255);
  const Text end = optional_text(a, 2, "end").value_or(Text{"..."});
  const std::int64_t leeway = integer_argument(a, 3, "leeway", 5);
  const std::vector<std::size_t> places = character_places(text.bytes);
  const std::int64_t kept = length - count_characters(end.bytes);
  if (kept < 0) refuse("truncate to less than its end");
  if (leeway < 0) refuse("truncate with a leeway below 0");
  if (std::ssize(places) - 1 - length <= leeway) return text;
  Text out = part_of(text, 0, places[static_cast<std::size_t>(kept)]);
  if (!flag_argument(a, 1, "killwords")) {
    const std::size_t space = out.bytes.rfind(' ');
    if (space != std::string::npos) out = part_of(out, 0, space);
  }
  append(out, end);
  return out;
}

Value escape_filter(const Value& value, const Arguments&) {
  Text out = to_text(value);
  static constexpr std::pair<std::string_view, std::string_view> escapes[] = {
      {"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : escapes) {
    out = replaced(out, Text{std::string(from)}, marked(std::string(to), out.has_content()), -1);
  }
  return out;
}

/// Runs of letters, digits and "_".
std::int64_t count_words(const Text& text) {
  std::int64_t count = 0;
  bool is_in_word = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool continues =
        std::exchange(is_in_word, c.value == '_' || has(c.value, trait_letter | trait_number));
    if (is_in_word && !continues) ++count;
    i += c.length;
  }
  return count;
}

Value length_filter(const Value& value, const Arguments&) { return length_of(value); }

/// Python's %, of values by position or by name.
Value format_filter(const Value& value, const Arguments& a) {
  if (a.named.empty()) return percent_format(to_text(value), Value::list(a.values, true));
  if (!a.values.empty()) refuse("format() of values both by position and by name");
  std::vector<Entry> entries;
  for (const auto& [name, given] : a.named) entries.emplace_back(Value::of(name), given);
  return percent_format(to_text(value), Value::dict(std::move(entries)));
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
constexpr NamedFilter all_filters[] = {
    {"abs",
     [](const Value& v, const Arguments&) {
       if (!v.is_number()) refuse(fmt::format("abs of {}", v.type_name()));
       if (!v.is_integer()) return Value(std::fabs(v.number()));
       return v.integer() < 0 ? number_result("-", std::int64_t{0}, v) : Value(v.integer());
     }},
    {"attr",
     [](const Value& v, const Arguments& a) {
       const std::string name = text_argument(a, 0, "name").bytes;
       if (v.dict() == nullptr || v.dict()->is_namespace) return attribute_of(v, name);
       // Not the items of a dictionary, which v.name also finds.
       const Value method = method_of_dict(v, name);
       return method.is_undefined() ? no_attribute(v, name) : method;
     }},
    {"batch", batch_filter},
    {"capitalize", [](const Value& v, const Arguments&) { return Value(capitalized(to_text(v))); }},
    {"center",
     [](const Value& v, const Arguments& a) {
       return Value(padded(to_text(v), width_argument(a, 0, "width", 80), " ", both_sides));
     }},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first",
     [](const Value& v, const Arguments&) {
       const std::vector<Value> items = items_of(v);
       return items.empty() ? Value::undefined("the first of nothing") : items.front();
     }},
    {"float", real_filter},
    {"format", format_filter},
    {"from_json",
     [](const Value& v, const Arguments&) {
       constexpr std::size_t max_json = std::size_t{1} << 22;  // values take up to 60 times as much
       const Text text = to_text(v);
       if (text.bytes.size() > max_json) {
         throw Error(Errc::limit_exceeded, "chat template", "from_json of more than 4 MiB");
       }
       return from_json(text.bytes, text.has_content());
     }},
    {"groupby", groupby_filter},
    {"indent", indent_filter},
    {"int", integer_filter},
    {"items",
     [](const Value& v, const Arguments& a) {
       if (v.is_undefined()) return Value::list({});
       if (v.dict() == nullptr) refuse(fmt::format("items of {}", v.type_name()));
       return method_of_dict(v, "items").function()->call(a);
     }},
    {"join", join_filter},
    {"last",
     [](const Value& v, const Arguments&) {
       const std::vector<Value> items = items_of(v);
       return items.empty() ? Value::undefined("the last of nothing") : items.back();
     }},
    {"length", length_filter},
    {"list", [](const Value& v, const Arguments&) { return Value::list(items_of(v)); }},
    {"lower", [](const Value& v, const Arguments&) { return Value(lower(to_text(v))); }},
    {"map", map_filter},
    {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
    {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
    {"reject", [](const Value& v, const Arguments& a) { return selected(v, a, false, false); }},
    {"rejectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, false); }},
    {"replace",
     [](const Value& v, const Arguments& a) {
       return Value(replaced(to_text(v), text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                             integer_argument(a, 2, "count", -1)));
     }},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", [](const Value& v,
                const Arguments&) { return v.is_undefined() ? Value::of("") : Value(to_text(v)); }},
    {"select", [](const Value& v, const Arguments& a) { return selected(v, a, false, true); }},
    {"selectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, true); }},
    {"sort", sort_filter},
    {"string", [](const Value& v, const Arguments&) { return Value(to_text(v)); }},
    {"sum", sum_filter},
    {"title", [](const Value& v, const Arguments&) { return Value(title_filter(to_text(v))); }},
    {"tojson", json_filter},
    {"trim",
     [](const Value& v, const Arguments& a) {
       return Value(stripped(to_text(v), optional_text(a, 0, "chars"), both_sides));
     }},
    {"truncate", truncate_filter},
    {"unique", unique_filter},
    {"upper", [](const Value& v, const Arguments&) { return Value(upper(to_text(v))); }},
    {"wordcount", [](const Value& v, const Arguments&) { return Value(count_words(to_text(v))); }},
};

}  // namespace

Filter find_filter(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(all_filters, name, &NamedFilter::name);
  return found == std::end(all_filters) ? nullptr : found->filter;
}

}  // namespace tenon::text::jinja
