// Methods, attributes and items.
#include "jinja_functions.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

bool has_affix(const Text& text, const Arguments& arguments, bool at_end) {
  const Value* const wanted = argument(arguments, 0, "prefix");
  const auto matches = [&](const Value& one) {
    if (one.text() == nullptr) refuse(fmt::format("an affix that is {}", one.type_name()));
    const std::string& affix = one.text()->bytes;
    return at_end ? text.bytes.ends_with(affix) : text.bytes.starts_with(affix);
  };
  if (wanted == nullptr) refuse("startswith() and endswith() take a text");
  if (wanted->list() != nullptr) return std::ranges::any_of(wanted->list()->items, matches);
  return matches(*wanted);
}

std::int64_t character_index(const Text& text, std::size_t byte) {
  return byte == std::string::npos ? -1
                                   : count_characters(std::string_view(text.bytes).substr(0, byte));
}

/// What is before the separator at `at`, the separator, and what is behind it.
Value parted(const Text& text, const Text& by, std::size_t at, std::vector<Value> otherwise) {
  if (by.bytes.empty() || at == std::string::npos) return Value::list(std::move(otherwise), true);
  return Value::list(
      {part_of(text, 0, at), by, part_of(text, at + by.bytes.size(), text.bytes.size())}, true);
}

Value filled(const Text& text, const Arguments& a, unsigned sides) {
  if (a.values.empty()) refuse("center(), ljust() and rjust() take a width");
  const Text fill = optional_text(a, 1, "fillchar").value_or(Text{" "});
  if (count_characters(fill.bytes) != 1) refuse("a fill of more or less than one character");
  return padded(text, width_argument(a, 0, "width", 0), fill.bytes, sides);
}

using Method = Value (*)(const Text& text, const Arguments& arguments);
constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();
struct NamedMethod {
  std::string_view name;
  std::size_t most;  // arguments by position: Python's bounds of the part to look at are not known
  Method call;
};
/// Errc::template_error for more arguments than these, which would not be heeded.
void check_count(std::string_view name, const Arguments& arguments, std::size_t most) {
  if (arguments.values.size() <= most) return;
  refuse(fmt::format("{}() with more than {} argument{}", name, most, most == 1 ? "" : "s"));
}
constexpr NamedMethod text_methods[] = {
    {"strip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), both_sides));
     }},
    {"lstrip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), left_side));
     }},
    {"rstrip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), right_side));
     }},
    {"split", 2,
     [](const Text& t, const Arguments& a) {
       return split(t, optional_text(a, 0, "sep"), integer_argument(a, 1, "maxsplit", -1));
     }},
    {"rsplit", 2,
     [](const Text& t, const Arguments& a) {
       return split_from_right(t, optional_text(a, 0, "sep"),
                               integer_argument(a, 1, "maxsplit", -1));
     }},
    {"splitlines", 1,
     [](const Text& t, const Arguments& a) {
       return lines_of(t, flag_argument(a, 0, "keepends"));
     }},
    {"partition", 1,
     [](const Text& t, const Arguments& a) {
       const Text by = text_argument(a, 0, "sep");
       return parted(t, by, t.bytes.find(by.bytes), {t, Text{}, Text{}});
     }},
    {"rpartition", 1,
     [](const Text& t, const Arguments& a) {
       const Text by = text_argument(a, 0, "sep");
       return parted(t, by, t.bytes.rfind(by.bytes), {Text{}, Text{}, t});
     }},
    {"format", any_number, formatted},
    {"replace", 3,
     [](const Text& t, const Arguments& a) {
       return Value(replaced(t, text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                             integer_argument(a, 2, "count", -1)));
     }},
    {"startswith", 1,
     [](const Text& t, const Arguments& a) { return Value(has_affix(t, a, false)); }},
    {"endswith", 1, [](const Text& t, const Arguments& a) { return Value(has_affix(t, a, true)); }},
    {"removeprefix", 1,
     [](const Text& t, const Arguments& a) {
       const Text affix = text_argument(a, 0, "prefix");
       return Value(
           t.bytes.starts_with(affix.bytes) ? part_of(t, affix.bytes.size(), t.bytes.size()) : t);
     }},
    {"removesuffix", 1,
     [](const Text& t, const Arguments& a) {
       const Text affix = text_argument(a, 0, "suffix");
       return Value(
           t.bytes.ends_with(affix.bytes) ? part_of(t, 0, t.bytes.size() - affix.bytes.size()) : t);
     }},
    {"upper", 0, [](const Text& t, const Arguments&) { return Value(upper(t)); }},
    {"lower", 0, [](const Text& t, const Arguments&) { return Value(lower(t)); }},
    {"capitalize", 0, [](const Text& t, const Arguments&) { return Value(capitalized(t)); }},
    {"title", 0, [](const Text& t, const Arguments&) { return Value(title(t)); }},
    {"swapcase", 0,
     [](const Text& t, const Arguments&) {
       return Value(
           mapped(t, [](char32_t c) { return lower_of(c) == c ? upper_of(c) : lower_of(c); }));
     }},
    {"join", 1,
     [](const Text& t, const Arguments& a) {
       if (a.values.empty()) refuse("join() takes a list");
       const std::vector<Value> items = items_of(a.values[0]);
       for (const Value& item : items) {
         if (item.text() == nullptr) refuse(fmt::format("join() of {}", item.type_name()));
       }
       return Value(joined(items, t));
     }},
    {"find", 1,
     [](const Text& t, const Arguments& a) {
       return Value(character_index(t, t.bytes.find(text_argument(a, 0, "sub").bytes)));
     }},
    {"rfind", 1,
     [](const Text& t, const Arguments& a) {
       return Value(character_index(t, t.bytes.rfind(text_argument(a, 0, "sub").bytes)));
     }},
    {"index", 1,
     [](const Text& t, const Arguments& a) {
       const std::size_t at = t.bytes.find(text_argument(a, 0, "sub").bytes);
       if (at == std::string::npos) refuse("index() of a text that does not occur");
       return Value(character_index(t, at));
     }},
    {"rindex", 1,
     [](const Text& t, const Arguments& a) {
       const std::size_t at = t.bytes.rfind(text_argument(a, 0, "sub").bytes);
       if (at == std::string::npos) refuse("rindex() of a text that does not occur");
       return Value(character_index(t, at));
     }},
    {"count", 1,
     [](const Text& t, const Arguments& a) {
       const std::string part = text_argument(a, 0, "sub").bytes;
       if (part.empty()) return Value(count_characters(t.bytes) + 1);
       std::int64_t count = 0;
       for (std::size_t at = t.bytes.find(part); at != std::string::npos;
            at = t.bytes.find(part, at + part.size()))
         ++count;
       return Value(count);
     }},
    {"isdigit", 0,
     [](const Text& t, const Arguments&) {
       return Value(all_characters(t, [](char32_t c) { return c >= '0' && c <= '9'; }));
     }},
    {"isnumeric", 0,
     [](const Text& t, const Arguments&) {
       return Value(all_characters(t, [](char32_t c) { return has(c, trait_number); }));
     }},
    {"isalpha", 0,
     [](const Text& t, const Arguments&) { return Value(all_characters(t, is_letter)); }},
    {"isalnum", 0,
     [](const Text& t, const Arguments&) {
       return Value(
           all_characters(t, [](char32_t c) { return has(c, trait_letter | trait_number); }));
     }},
    {"isspace", 0,
     [](const Text& t, const Arguments&) { return Value(all_characters(t, is_space)); }},
    {"isupper", 0, [](const Text& t, const Arguments&) { return Value(is_upper_case(t)); }},
    {"islower", 0, [](const Text& t, const Arguments&) { return Value(is_lower_case(t)); }},
    {"center", 2, [](const Text& t, const Arguments& a) { return filled(t, a, both_sides); }},
    {"ljust", 2, [](const Text& t, const Arguments& a) { return filled(t, a, right_side); }},
    {"rjust", 2, [](const Text& t, const Arguments& a) { return filled(t, a, left_side); }},
    {"zfill", 1,
     [](const Text& t, const Arguments& a) {
       const std::int64_t missing = width_argument(a, 0, "width", 0) - count_characters(t.bytes);
       const bool is_signed = t.bytes.starts_with('-') || t.bytes.starts_with('+');
       Text out = part_of(t, 0, is_signed ? 1 : 0);
       append(out, std::string(static_cast<std::size_t>(std::max<std::int64_t>(missing, 0)), '0'));
       append(out, part_of(t, is_signed ? 1 : 0, t.bytes.size()));
       return Value(out);
     }},
};

Value method_of_list(const Value& value, std::string_view name) {
  if (name == "append" || name == "extend" || name == "insert" || name == "pop" ||
      name == "remove" || name == "sort" || name == "reverse" || name == "clear") {
    refuse(fmt::format("{}() changes a list, which the sandbox does not allow", name));
  }
  if (name != "index" && name != "count") return {};
  const bool counts = name == "count";
  return Function{std::string(name), [value, counts](const Arguments& a) {
                    if (a.values.empty()) refuse("index() and count() take a value");
                    check_count(counts ? "count" : "index", a, 1);
                    const auto& items = value.list()->items;
                    const auto is_it = [&](const Value& one) {
                      return are_equal(one, a.values[0]);
                    };
                    if (counts)
                      return Value(static_cast<std::int64_t>(std::ranges::count_if(items, is_it)));
                    const auto found = std::ranges::find_if(items, is_it);
                    if (found == items.end()) refuse("index() of a value that is not in the list");
                    return Value(static_cast<std::int64_t>(found - items.begin()));
                  }};
}

Value attribute_of_loop(const Value& value, std::string_view name) {
  const Loop& loop = *value.loop();
  const auto count = static_cast<std::int64_t>(loop.items->items.size());
  const auto item_at = [&](std::int64_t index) {
    if (index < 0 || index >= count) return Value::undefined("an item beyond the loop's");
    return loop.items->items[static_cast<std::size_t>(index)];
  };
  if (name == "index") return loop.index + 1;
  if (name == "index0") return loop.index;
  if (name == "revindex") return count - loop.index;
  if (name == "revindex0") return count - loop.index - 1;
  if (name == "first") return loop.index == 0;
  if (name == "last") return loop.index == count - 1;
  if (name == "length") return count;
  if (name == "depth") return std::int64_t{1};  // of `recursive` loops, which are refused
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return item_at(loop.index - 1);
  if (name == "nextitem") return item_at(loop.index + 1);
  if (name == "cycle") {
    return Function{
        "cycle", [value](const Arguments& a) {
          if (a.values.empty()) refuse("cycle() takes values");
          return a.values[static_cast<std::size_t>(value.loop()->index) % a.values.size()];
        }};
  }
  if (name == "changed") {
    return Function{"changed", [value](const Arguments& a) {
                      const Value now = Value::list(a.values, true);
                      Loop& of = *value.loop();
                      const bool is_other = !of.has_changed || !are_equal(of.last_changed, now);
                      of.has_changed = true;
                      of.last_changed = now;
                      return Value(is_other);
                    }};
  }
  return Value::undefined(fmt::format("'loop.{}'", name));
}

Value character_at(const Text& text, std::int64_t index) {
  std::int64_t left = index < 0 ? index + count_characters(text.bytes) : index;
  for (std::size_t at = 0; left >= 0 && at < text.bytes.size(); --left) {
    const std::size_t length = code_point_at(text.bytes, at).length;
    if (left == 0) return part_of(text, at, at + length);
    at += length;
  }
  return Value::undefined(fmt::format("item {} of a text", index));
}

}  // namespace

Value no_attribute(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("'{}' of {}", name, value.type_name()));
}

Value method_of_dict(const Value& value, std::string_view name) {
  const auto make = [&](auto call) {
    return Value(Function{std::string(name),
                          [value, call](const Arguments& a) { return call(*value.dict(), a); }});
  };
  if (name == "get") {
    return make([](const Dict& dict, const Arguments& a) {
      if (a.values.empty()) refuse("get() takes a key");
      const Value* const found = dict.find(a.values[0]);
      if (found != nullptr) return *found;
      const Value* const otherwise = argument(a, 1, "default");
      return otherwise == nullptr ? Value(nullptr) : *otherwise;
    });
  }
  const bool wants_keys = name != "values", wants_values = name != "keys";
  if (name != "items" && name != "keys" && name != "values" && name != "copy") return {};
  if (name == "copy")
    return make([](const Dict& dict, const Arguments&) { return Value::dict(dict.entries); });
  return make([wants_keys, wants_values](const Dict& dict, const Arguments&) {
    std::vector<Value> items;
    for (const Entry& entry : dict.entries) {
      items.push_back(wants_keys && wants_values ? Value::list({entry.first, entry.second}, true)
                      : wants_keys               ? entry.first
                                                 : entry.second);
    }
    return Value::list(std::move(items));
  });
}

Value attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) refuse_undefined(value);
  if (value.text() != nullptr) {
    const auto* const found = std::ranges::find(text_methods, name, &NamedMethod::name);
    if (found != std::end(text_methods)) {
      return Function{std::string(name), [value, found](const Arguments& a) {
                        check_count(found->name, a, found->most);
                        return found->call(*value.text(), a);
                      }};
    }
  } else if (value.dict() != nullptr) {
    if (!value.dict()->is_namespace) {
      Value method = method_of_dict(value, name);
      if (!method.is_undefined()) return method;
    }
    if (const Value* const found = value.dict()->find(name)) return *found;
  } else if (value.list() != nullptr) {
    Value method = method_of_list(value, name);
    if (!method.is_undefined()) return method;
  } else if (value.loop() != nullptr) {
    return attribute_of_loop(value, name);
  } else if (value.function() != nullptr && name == "name") {
    return Value::of(value.function()->name);
  }
  return no_attribute(value, name);
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) refuse_undefined(value);
  if (key.is_integer() && value.list() != nullptr) {
    const auto& items = value.list()->items;
    const auto size = std::ssize(items);
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size)
      return Value::undefined(fmt::format("item {} of {}", key.integer(), size));
    return items[static_cast<std::size_t>(index)];
  }
  if (key.is_integer() && value.text() != nullptr)
    return character_at(*value.text(), key.integer());
  if (value.dict() != nullptr && !value.dict()->is_namespace) {
    if (const Value* const found = value.dict()->find(key)) return *found;
  }
  if (key.text() != nullptr) return attribute_of(value, key.text()->bytes);
  return Value::undefined(fmt::format("an item of {}", value.type_name()));
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.list() != nullptr) return value.list()->items;
  if (const Text* const text = value.text()) {
    ListBuilder characters;
    for (std::size_t i = 0, next = 0; i < text->bytes.size(); i = next) {
      next = i + code_point_at(text->bytes, i).length;
      characters.add(part_of(*text, i, next));
    }
    return characters.take();
  }
  if (value.dict() != nullptr && !value.dict()->is_namespace) {
    std::vector<Value> keys;
    for (const Entry& entry : value.dict()->entries) keys.push_back(entry.first);
    return keys;
  }
  refuse(fmt::format("{} has no items", value.type_name()));
}

bool is_in(const Value& item, const Value& container) {
  if (const Text* const text = container.text()) {
    if (item.text() == nullptr)
      refuse(fmt::format("'in' a text wants a text, not {}", item.type_name()));
    return text->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (container.dict() != nullptr && !container.dict()->is_namespace)
    return container.dict()->find(item) != nullptr;
  const auto is_item = [&](const Value& one) { return are_equal(one, item); };
  if (container.list() != nullptr) return std::ranges::any_of(container.list()->items, is_item);
  return std::ranges::any_of(items_of(container), is_item);
}

std::int64_t length_of(const Value& value) {
  if (value.text() != nullptr) return count_characters(value.text()->bytes);
  if (value.list() != nullptr) return static_cast<std::int64_t>(value.list()->items.size());
  if (value.dict() != nullptr && !value.dict()->is_namespace)
    return static_cast<std::int64_t>(value.dict()->entries.size());
  if (value.is_undefined()) return 0;
  refuse(fmt::format("{} has no length", value.type_name()));
}

}  // namespace tenon::text::jinja
