// Values of Jinja templates, as Python has them.
#pragma once

#include <tenon/text/tokenizer.hpp>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::text::jinja {

/// A text, and which parts of it came from the conversation and not from the template.
struct Text {
  std::string bytes;
  std::vector<TextRange> content{};  ///< ascending, not adjacent

  bool has_content() const noexcept { return !content.empty(); }
};

/// The bytes that a text takes.
std::size_t size_of(const Text& text) noexcept;
/// Called before a text becomes so large. Errors: limit_exceeded above 64 MiB.
void check_text_size(std::size_t bytes);
/// Errors: those of check_text_size().
void append(Text& text, std::string_view bytes);
void append(Text& text, const Text& more);
/// Bytes [begin, end).
Text part_of(const Text& text, std::size_t begin, std::size_t end);
/// A text that was made of others as a whole, all of it content where `is_content`.
Text marked(std::string bytes, bool is_content);

class Value;
struct List;
struct Dict;
struct Function;
struct Loop;

/// How much a value is, of which lists may hold parts several times: bounds for what walks through it.
struct Extent {
  std::int64_t depth = 1;   ///< of lists within lists
  std::int64_t weight = 0;  ///< about the bytes that it takes
};

/// What was not there, with its name for messages.
struct Undefined {
  std::string name;
};

/// A handle; copies share lists and dictionaries.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) : value_(nullptr) {}    // NOLINT: as in Python, values
  Value(bool value) : value_(value) {}          // NOLINT
  Value(std::int64_t value) : value_(value) {}  // NOLINT
  Value(double value) : value_(value) {}        // NOLINT
  Value(Text text) : value_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  Value(Function function);                                                    // NOLINT
  Value(std::shared_ptr<Loop> loop) : value_(std::move(loop)) {}               // NOLINT
  static Value undefined(std::string name) {
    Value made;
    made.value_ = Undefined{std::move(name)};
    return made;
  }
  static Value of(std::string_view bytes) { return Text{std::string(bytes)}; }
  /// Errors: depth_limit, limit_exceeded (more than 64 MiB), template_error (a namespace in another value).
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  static Value name_space(std::vector<std::pair<Value, Value>> entries);

  template <class T>
  const T* as() const noexcept {
    return std::get_if<T>(&value_);
  }
  bool is_undefined() const noexcept { return as<Undefined>() != nullptr; }
  bool is_none() const noexcept { return as<std::nullptr_t>() != nullptr; }
  /// Null where it is none.
  const Text* text() const noexcept { return shared<const Text>(); }
  const List* list() const noexcept { return shared<const List>(); }
  Dict* dict() const noexcept { return shared<Dict>(); }
  const Function* function() const noexcept { return shared<const Function>(); }
  Loop* loop() const noexcept { return shared<Loop>(); }
  /// Booleans, too, count as 0 and 1.
  bool is_integer() const noexcept {
    return as<bool>() != nullptr || as<std::int64_t>() != nullptr;
  }
  bool is_number() const noexcept { return is_integer() || as<double>() != nullptr; }
  std::int64_t integer() const;  ///< of is_integer()
  double number() const;         ///< of is_number()

  bool is_true() const;
  /// "str", "int", ...: the class in Python.
  std::string_view type_name() const noexcept;
  Extent extent() const noexcept;
  /// About the bytes of what no other value shares: of a value that was just made, what is new in it.
  std::int64_t own_weight() const noexcept;

 private:
  template <class T>
  T* shared() const noexcept {
    const auto* const held = std::get_if<std::shared_ptr<T>>(&value_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>,
               std::shared_ptr<Loop>>
      value_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  Extent extent;
};

/// A list that grows item by item, and is refused as soon as it is too large.
class ListBuilder {
 public:
  /// Errors: those of Value::list().
  void add(Value item);
  const std::vector<Value>& items() const noexcept { return items_; }
  std::vector<Value> take() { return std::exchange(items_, {}); }

 private:
  std::vector<Value> items_;
  Extent extent_{};
};

using Entry = std::pair<Value, Value>;

struct Dict {
  std::vector<Entry> entries;  ///< in the order of insertion
  bool is_namespace = false;
  Extent extent;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Errors: those of Value::dict.
  void set(const Value& key, const Value& value);

 private:
  /// The number of entries where there is none.
  std::size_t place_of(const Value& key) const;
  std::size_t place_of(std::string_view key) const;

  std::map<std::string_view, std::size_t>
      texts_;                // places of keys that are texts, of more than a few
  std::size_t indexed_ = 0;  // entries that have been looked at for them
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

/// The variable `loop`.
struct Loop {
  std::shared_ptr<const List> items;
  std::int64_t index = 0;  ///< from 0
  Value last_changed{};
  bool has_changed = false;
};

[[noreturn]] void refuse(std::string message);

bool are_equal(const Value& one, const Value& other);
/// As Python's < and <= see them: unordered with a NaN. Errc::template_error for types that have no order.
std::partial_ordering compare(const Value& one, const Value& other);
inline bool is_less(const Value& one, const Value& other) { return compare(one, other) < 0; }
inline bool is_at_most(const Value& one, const Value& other) { return compare(one, other) <= 0; }
/// The places of these values in ascending order, of equal ones the first first; NaN are behind all numbers.
/// Errc::template_error for types that have no order.
std::vector<std::size_t> order_of(const std::vector<Value>& keys, bool is_reversed = false);
/// As Python's str(): what `{{ value }}` gives.
Text to_text(const Value& value);
/// As Python's repr().
void append_repr(std::string& out, const Value& value);
/// Whether a text in it came from the conversation.
bool has_content(const Value& value);

struct JsonStyle {
  std::int64_t indent = -1;  ///< spaces; negative: on one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
/// As Python's json.dumps(). Errc::template_error for what JSON has not.
std::string to_json(const Value& value, const JsonStyle& style = {});
/// A JSON text as a value; its texts are content where `is_content`. Errc::syntax.
Value from_json(std::string_view json, bool is_content);

/// Begins of characters, and the end: of texts whose characters are counted.
std::vector<std::size_t> character_places(std::string_view bytes);
std::int64_t count_characters(std::string_view bytes);

}  // namespace tenon::text::jinja
