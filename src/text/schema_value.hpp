#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text {

struct SchemaValue;
using SchemaMember = std::pair<std::string, SchemaValue>;

/// The names of an object's members in alphabetical order, where they are more than a few.
class NameOrder {
 public:
  /// Of all members anew.
  void assign(const std::vector<SchemaMember>& members);
  /// Of the last member, too.
  void add(const std::vector<SchemaMember>& members);
  const SchemaMember* find(const std::vector<SchemaMember>& members,
                           std::string_view name) const noexcept;

 private:
  // The places of members: first those of the `settled_` first ones in order, then, in order, those added since.
  std::vector<std::uint32_t> places_;
  std::size_t settled_ = 0;
};

/// A value of a JSON schema, with the members of objects in the order of the text. It is copied where schemas are
/// merged, and destroyed without allocating memory, as nlohmann's values are not.
struct SchemaValue {
  enum class Kind : std::uint8_t { null, boolean, integer, real, string, array, object };
  using Member = SchemaMember;

  Kind kind = Kind::null;
  bool flag = false;
  double number = 0;
  std::string text{};  ///< of a string, or a number as it was spelled
  std::vector<SchemaValue> items{};
  std::vector<Member> members{};  ///< changed by member() and erase() only
  NameOrder order{};              ///< of `members`

  bool is_boolean() const noexcept { return kind == Kind::boolean; }
  bool is_true() const noexcept { return is_boolean() && flag; }
  bool is_false() const noexcept { return is_boolean() && !flag; }
  bool is_string() const noexcept { return kind == Kind::string; }
  bool is_array() const noexcept { return kind == Kind::array; }
  bool is_object() const noexcept { return kind == Kind::object; }
  bool is_number() const noexcept { return kind == Kind::integer || kind == Kind::real; }

  /// Of a number, where it is an integer of 64 bits.
  std::optional<std::int64_t> integer() const;
  /// A member, or null.
  const SchemaValue* find(std::string_view name) const noexcept;
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// A member, made where it is missing.
  SchemaValue& member(std::string_view name);
  void erase(std::string_view name);
  /// What a JSON pointer (RFC 6901) without its # leads to, or null.
  const SchemaValue* at_pointer(std::string_view pointer) const;
  /// As JSON, without white space.
  std::string dump() const;

  friend bool operator==(const SchemaValue& one, const SchemaValue& other);
};

/// Of numbers; integers are compared exactly.
std::partial_ordering compare_numbers(const SchemaValue& one, const SchemaValue& other);

/// Errors: those of parse_strict_json().
SchemaValue parse_schema(std::string_view text, std::string_view where = "JSON schema");

/// `text` as JSON has it, with its quotes.
std::string json_string(const std::string& text);

}  // namespace tenon::text
