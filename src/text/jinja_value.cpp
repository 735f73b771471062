#include "jinja_value.hpp"

#include "base/utf8.hpp"
#include "jinja_numbers.hpp"
#include "schema_value.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

constexpr std::int64_t max_nested = 100;  // of lists within lists; what walks them recurses
constexpr std::int64_t max_weight = std::int64_t{1} << 26;  // bytes of one value, about
constexpr std::size_t max_text = std::size_t{1} << 26;      // bytes
constexpr std::int64_t value_weight = sizeof(Value);
constexpr std::int64_t head_weight = 32;  // of allocations: counts of owners, and the allocator's
constexpr std::int64_t container_weight = sizeof(Dict) + head_weight;

std::int64_t weight_of(const Text& text) {
  return static_cast<std::int64_t>(sizeof(Text) + size_of(text)) + head_weight;
}

/// Of a container with these items beside `held`.
Extent extent_of(std::span<const Value> items, Extent held) {
  for (const Value& item : items) {
    if (const Dict* const dict = item.dict(); dict != nullptr && dict->is_namespace) {
      refuse("a namespace within another value");
    }
    // What they hold in turn is not counted, and could hold them again.
    if (item.function() != nullptr) refuse("a function within another value");
    if (item.loop() != nullptr) refuse("a loop within another value");
    const Extent extent = item.extent();
    held.depth = std::max(held.depth, extent.depth + 1);
    held.weight += extent.weight;
    if (held.depth > max_nested) {
      throw Error(Errc::depth_limit, "chat template",
                  fmt::format("values more than {} deep", max_nested));
    }
    if (held.weight > max_weight) {
      throw Error(Errc::limit_exceeded, "chat template", "a value of more than 64 MiB");
    }
  }
  return held;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void append_quoted(std::string& out, std::string_view text) {
  const bool is_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = is_double ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    check_text_size(out.size());
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += quote;
}

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const std::string_view bytes = text.substr(i, c.length);
    i += c.length;
    check_text_size(out.size());
    switch (c.value) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c.value >= 0x10000 && ensure_ascii) {
          const auto rest = static_cast<std::uint32_t>(c.value - 0x10000);
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        } else if (c.value < 0x20 || (c.value > 0x7E && ensure_ascii)) {
          out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.value));
        } else {
          out += bytes;
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, std::int64_t level = 0) {
    check_text_size(out.size());
    if (value.is_none()) {
      out += "null";
    } else if (const bool* const flag = value.as<bool>()) {
      out += *flag ? "true" : "false";
    } else if (value.is_integer()) {
      out += fmt::format("{}", value.integer());
    } else if (const double* const number = value.as<double>()) {
      out += std::isnan(*number)   ? "NaN"
             : std::isinf(*number) ? (*number < 0 ? "-Infinity" : "Infinity")
                                   : float_text(*number);
    } else if (const Text* const text = value.text()) {
      append_json_text(out, text->bytes, style_.ensure_ascii);
    } else if (const List* const list = value.list()) {
      write_items(list->items.size(), '[', ']', level,
                  [&](std::size_t i) { write(list->items[i], level + 1); });
    } else if (const Dict* const dict = value.dict(); dict != nullptr && !dict->is_namespace) {
      const std::vector<std::size_t> order = order_of_entries(*dict);
      write_items(order.size(), '{', '}', level, [&](std::size_t i) {
        const auto& [key, member] = dict->entries[order[i]];
        write_key(key);
        add(style_.key_separator);
        write(member, level + 1);
      });
    } else {
      refuse(fmt::format("tojson of {}", value.type_name()));
    }
  }

  std::string out;

 private:
  void add(std::string_view more) {
    check_text_size(out.size() + more.size());
    out += more;
  }
  std::vector<std::size_t> order_of_entries(const Dict& dict) const {
    std::vector<Value> keys;
    for (const Entry& entry : dict.entries) keys.push_back(entry.first);
    if (style_.sort_keys) return order_of(keys);
    std::vector<std::size_t> order(keys.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    return order;
  }
  void write_key(const Value& key) {
    if (!key.is_none() && !key.is_number() && key.text() == nullptr) {
      refuse(fmt::format("tojson of a key that is {}", key.type_name()));
    }
    if (key.text() == nullptr) out += '"';
    write(key);
    if (key.text() == nullptr) out += '"';
  }
  template <class Write>
  void write_items(std::size_t count, char open, char close, std::int64_t level,
                   const Write& item) {
    out += open;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) add(style_.indent < 0 ? std::string_view(style_.item_separator) : item_end());
      start_line(level + 1);
      item(i);
    }
    if (count > 0) start_line(level);
    out += close;
  }
  /// Between items on lines of their own, Python leaves the blank out.
  std::string_view item_end() const {
    return style_.item_separator == ", " ? std::string_view(",") : style_.item_separator;
  }
  void start_line(std::int64_t level) {
    if (style_.indent < 0) return;
    const auto blanks = static_cast<std::size_t>(style_.indent * level);
    check_text_size(out.size() + blanks);
    out += '\n';
    out.append(blanks, ' ');
  }

  const JsonStyle& style_;
};

/// NaN are equal to each other, and above all other numbers.
std::partial_ordering compare_with_nan_last(const Value& one, const Value& other) {
  const bool first = std::isnan(one.number()), second = std::isnan(other.number());
  return first || second ? first <=> second : compare_numbers(one, other);
}

/// Texts by their bytes, lists by their first items that differ. What is equal need not have an order.
template <class CompareNumbers>
std::partial_ordering compared(const Value& one, const Value& other,
                               const CompareNumbers& numbers) {
  if (one.is_number() && other.is_number()) return numbers(one, other);
  if (one.text() != nullptr && other.text() != nullptr) {
    return one.text()->bytes <=> other.text()->bytes;
  }
  if (one.list() != nullptr && other.list() != nullptr) {
    const auto& left = one.list()->items;
    const auto& right = other.list()->items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      const auto found = compared(left[i], right[i], numbers);
      if (found != 0) return found;
    }
    return left.size() <=> right.size();
  }
  if (are_equal(one, other)) return std::partial_ordering::equivalent;
  refuse(fmt::format("{} and {} have no order", one.type_name(), other.type_name()));
}

Value of_json(const SchemaValue& json, bool is_content) {
  using Json = SchemaValue::Kind;
  switch (json.kind) {
    case Json::null:
      return nullptr;
    case Json::boolean:
      return json.flag;
    case Json::integer: {
      const char* const end = json.text.data() + json.text.size();
      std::int64_t number = 0;
      const bool fits = std::from_chars(json.text.data(), end, number).ec == std::errc();
      return fits ? Value(number) : Value(json.number);
    }
    case Json::real:
      return json.number;
    case Json::string:
      return marked(json.text, is_content);
    case Json::array: {
      std::vector<Value> items;
      for (const SchemaValue& item : json.items) items.push_back(of_json(item, is_content));
      return Value::list(std::move(items));
    }
    case Json::object: {
      std::vector<Entry> entries;
      for (const auto& [name, member] : json.members) {
        entries.emplace_back(marked(name, is_content), of_json(member, is_content));
      }
      return Value::dict(std::move(entries));
    }
  }
  return {};
}

}  // namespace

void refuse(std::string message) {
  throw Error(Errc::template_error, "chat template", std::move(message));
}

std::size_t size_of(const Text& text) noexcept {
  return text.bytes.size() + text.content.size() * sizeof(TextRange);
}

void check_text_size(std::size_t bytes) {
  if (bytes <= max_text) return;
  throw Error(Errc::limit_exceeded, "chat template", "a text of more than 64 MiB");
}

void append(Text& text, std::string_view bytes) {
  check_text_size(size_of(text) + bytes.size());
  text.bytes += bytes;
}

void append(Text& text, const Text& more) {
  check_text_size(size_of(text) + size_of(more));
  const std::size_t at = text.bytes.size();
  text.bytes += more.bytes;
  for (const TextRange& range : more.content) {
    if (!text.content.empty() && text.content.back().end == at + range.begin) {
      text.content.back().end = at + range.end;
    } else {
      text.content.push_back({at + range.begin, at + range.end});
    }
  }
}

Text part_of(const Text& text, std::size_t begin, std::size_t end) {
  Text part{text.bytes.substr(begin, end - begin)};
  for (const TextRange& range : text.content) {
    const std::size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
    if (from < to) part.content.push_back({from - begin, to - begin});
  }
  return part;
}

Text marked(std::string bytes, bool is_content) {
  Text text{std::move(bytes)};
  if (is_content && !text.bytes.empty()) text.content.push_back({0, text.bytes.size()});
  return text;
}

Value::Value(Function function) : value_(std::make_shared<const Function>(std::move(function))) {}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  const Extent extent = extent_of(items, {.weight = value_weight + container_weight});
  Value made;
  made.value_ = std::make_shared<const List>(
      List{.items = std::move(items), .is_tuple = is_tuple, .extent = extent});
  return made;
}

Value Value::dict(std::vector<Entry> entries) {
  auto dict = std::make_shared<Dict>();
  dict->extent.weight = value_weight + container_weight;
  dict->entries.reserve(entries.size());
  for (auto& [key, value] : entries) dict->set(key, value);
  Value made;
  made.value_ = std::move(dict);
  return made;
}

Value Value::name_space(std::vector<Entry> entries) {
  const Value made = dict(std::move(entries));
  made.dict()->is_namespace = true;
  return made;
}

std::int64_t Value::integer() const {
  if (const bool* const flag = as<bool>()) return *flag ? 1 : 0;
  return *as<std::int64_t>();
}

double Value::number() const {
  if (const double* const real = as<double>()) return *real;
  return static_cast<double>(integer());
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (text() != nullptr) return !text()->bytes.empty();
  if (list() != nullptr) return !list()->items.empty();
  if (dict() != nullptr && !dict()->is_namespace) return !dict()->entries.empty();
  return true;
}

std::string_view Value::type_name() const noexcept {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (as<bool>() != nullptr) return "bool";
  if (as<std::int64_t>() != nullptr) return "int";
  if (as<double>() != nullptr) return "float";
  if (text() != nullptr) return "str";
  if (list() != nullptr) return list()->is_tuple ? "tuple" : "list";
  if (dict() != nullptr) return dict()->is_namespace ? "Namespace" : "dict";
  return function() != nullptr ? "function" : "LoopContext";
}

Extent Value::extent() const noexcept {
  if (list() != nullptr) return list()->extent;
  if (dict() != nullptr) return dict()->extent;
  return {.depth = 0, .weight = value_weight + (text() == nullptr ? 0 : weight_of(*text()))};
}

std::int64_t Value::own_weight() const noexcept {
  const auto is_own = [](const auto* held) { return held != nullptr && held->use_count() == 1; };
  if (is_own(std::get_if<std::shared_ptr<const Text>>(&value_))) return weight_of(*text());
  std::int64_t weight = 0;
  if (is_own(std::get_if<std::shared_ptr<const List>>(&value_))) {
    weight += container_weight;
    for (const Value& item : list()->items) weight += value_weight + item.own_weight();
  } else if (is_own(std::get_if<std::shared_ptr<Dict>>(&value_))) {
    weight += container_weight;
    for (const auto& [key, value] : dict()->entries) {
      weight += 2 * value_weight + key.own_weight() + value.own_weight();
    }
  }
  return weight;
}

void ListBuilder::add(Value item) {
  extent_ = extent_of({&item, 1}, extent_);
  items_.push_back(std::move(item));
}

std::size_t Dict::place_of(std::string_view key) const {
  if (indexed_ > 0) {
    const auto found = texts_.find(key);
    return found == texts_.end() ? entries.size() : found->second;
  }
  const auto found = std::ranges::find_if(entries, [&](const Entry& entry) {
    return entry.first.text() != nullptr && entry.first.text()->bytes == key;
  });
  return static_cast<std::size_t>(found - entries.begin());
}

std::size_t Dict::place_of(const Value& key) const {
  if (key.text() != nullptr) return place_of(key.text()->bytes);
  if (texts_.size() == entries.size()) return entries.size();
  const auto found = std::ranges::find_if(
      entries, [&](const Entry& entry) { return are_equal(entry.first, key); });
  return static_cast<std::size_t>(found - entries.begin());
}

const Value* Dict::find(const Value& key) const {
  const std::size_t place = place_of(key);
  return place == entries.size() ? nullptr : &entries[place].second;
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t place = place_of(key);
  return place == entries.size() ? nullptr : &entries[place].second;
}

void Dict::set(const Value& key, const Value& value) {
  constexpr std::size_t few = 16;
  const std::size_t place = place_of(key);
  if (place == entries.size()) {
    const Value both[] = {key, value};
    extent = extent_of(both, extent);
    entries.emplace_back(key, value);
    if (entries.size() <= few) return;
    for (; indexed_ < entries.size(); ++indexed_) {
      const Text* const text = entries[indexed_].first.text();
      if (text != nullptr) texts_.emplace(text->bytes, indexed_);
    }
    return;
  }
  Value& held = entries[place].second;
  Extent others = extent;  // its depth stays, an upper bound
  others.weight -= held.extent().weight;
  extent = extent_of({&value, 1}, others);
  held = value;
}

bool are_equal(const Value& one, const Value& other) {
  if (one.is_number() && other.is_number()) return compare_numbers(one, other) == 0;
  if (one.text() != nullptr && other.text() != nullptr) {
    return one.text()->bytes == other.text()->bytes;
  }
  if (one.list() != nullptr && other.list() != nullptr) {
    return one.list()->is_tuple == other.list()->is_tuple &&
           std::ranges::equal(one.list()->items, other.list()->items, are_equal);
  }
  const Dict *const left = one.dict(), *const right = other.dict();
  if (left != nullptr && right != nullptr) {
    if (left == right) return true;
    if (left->is_namespace || right->is_namespace) return false;
    return left->entries.size() == right->entries.size() &&
           std::ranges::all_of(left->entries, [&](const Entry& entry) {
             const Value* const found = right->find(entry.first);
             return found != nullptr && are_equal(*found, entry.second);
           });
  }
  if (one.is_none() && other.is_none()) return true;
  if (one.is_undefined() && other.is_undefined()) return true;
  return one.function() != nullptr && one.function() == other.function();
}

std::partial_ordering compare(const Value& one, const Value& other) {
  return compared(one, other, compare_numbers);
}

std::vector<std::size_t> order_of(const std::vector<Value>& keys, bool is_reversed) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
    const auto found = compared(keys[i], keys[j], compare_with_nan_last);
    if (found == 0) return i < j;
    return is_reversed ? found > 0 : found < 0;
  });
  return order;
}

Text to_text(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.text() != nullptr) return *value.text();
  std::string text;
  append_repr(text, value);
  return marked(std::move(text), has_content(value));
}

void append_repr(std::string& out, const Value& value) {
  check_text_size(out.size());
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (const bool* const flag = value.as<bool>()) {
    out += *flag ? "True" : "False";
  } else if (value.is_integer()) {
    out += fmt::format("{}", value.integer());
  } else if (const double* const number = value.as<double>()) {
    out += float_text(*number);
  } else if (value.text() != nullptr) {
    append_quoted(out, value.text()->bytes);
  } else if (const List* const list = value.list()) {
    out += list->is_tuple ? '(' : '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, list->items[i]);
    }
    if (list->is_tuple && list->items.size() == 1) out += ',';
    out += list->is_tuple ? ')' : ']';
  } else if (const Dict* const dict = value.dict()) {
    out += dict->is_namespace ? "<Namespace {" : "{";
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->entries[i].first);
      out += ": ";
      append_repr(out, dict->entries[i].second);
    }
    out += dict->is_namespace ? "}>" : "}";
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

bool has_content(const Value& value) {
  if (value.text() != nullptr) return value.text()->has_content();
  if (value.list() != nullptr) return std::ranges::any_of(value.list()->items, has_content);
  if (value.dict() == nullptr) return false;
  return std::ranges::any_of(value.dict()->entries, [](const Entry& entry) {
    return has_content(entry.first) || has_content(entry.second);
  });
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return std::move(writer.out);
}

Value from_json(std::string_view json, bool is_content) {
  return of_json(parse_schema(json, "values of a chat"), is_content);
}

std::vector<std::size_t> character_places(std::string_view bytes) {
  std::vector<std::size_t> places;
  places.reserve(bytes.size() + 1);
  for (std::size_t i = 0; i < bytes.size(); i += code_point_at(bytes, i).length)
    places.push_back(i);
  places.push_back(bytes.size());
  return places;
}

std::int64_t count_characters(std::string_view bytes) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < bytes.size(); i += code_point_at(bytes, i).length) ++count;
  return count;
}

}  // namespace tenon::text::jinja
