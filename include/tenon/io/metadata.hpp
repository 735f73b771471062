#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::io {

/// Types of metadata values; the numbers are those of the GGUF specification.
enum class MetaType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

inline constexpr std::uint32_t meta_type_count = static_cast<std::uint32_t>(MetaType::f64) + 1;

std::string_view name(MetaType type) noexcept;   ///< "u8", "string", "array"
std::size_t size_bytes(MetaType type) noexcept;  ///< of a number or bool; 0 for others

/// An array in the metadata: a view of numbers in the file, or views of strings.
class MetaArray {
 public:
  MetaArray() = default;
  /// `count` numbers or bools at any alignment, little-endian; the caller keeps them alive.
  MetaArray(MetaType element_type, const std::byte* elements, std::size_t count) noexcept
      : element_type_(element_type), count_(count), elements_(elements) {}
  explicit MetaArray(std::vector<std::string_view> strings)
      : element_type_(MetaType::string),
        count_(strings.size()),
        strings_(std::make_shared<const std::vector<std::string_view>>(std::move(strings))) {}

  MetaType element_type() const noexcept { return element_type_; }
  std::size_t size() const noexcept { return count_; }

  /// The elements as stored; empty for strings.
  std::span<const std::byte> bytes() const noexcept {
    return {elements_, elements_ == nullptr ? 0 : count_ * size_bytes(element_type_)};
  }
  /// The elements of an array of strings: bytes of any encoding. Empty for numbers.
  std::span<const std::string_view> strings() const noexcept {
    if (strings_ == nullptr) return {};
    return *strings_;
  }

  /// Whether both have the same type and the same elements, compared as bytes.
  friend bool operator==(const MetaArray& a, const MetaArray& b) noexcept;

 private:
  MetaType element_type_ = MetaType::u8;
  std::size_t count_ = 0;
  const std::byte* elements_ = nullptr;
  std::shared_ptr<const std::vector<std::string_view>> strings_;
};

/// One value. The alternatives are in the order of MetaType: `MetaType(value.index())`.
using MetaValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                               std::uint32_t, std::int32_t, float, bool, std::string_view,
                               MetaArray, std::uint64_t, std::int64_t, double>;

inline MetaType type_of(const MetaValue& value) noexcept {
  return static_cast<MetaType>(value.index());
}

/// The type of a value as in messages: "u32", "array of 262144 f32".
std::string type_text(const MetaValue& value);

/// Key and value pairs of a file, in the file's order. Strings and arrays are views of the mapped
/// file or of copies, valid as long as any copy of this object. Keys are valid UTF-8; string values
/// are arbitrary bytes (tokens of a vocabulary need not be text).
class Metadata {
 public:
  struct Entry {
    std::string_view key;
    MetaValue value;
  };

  Metadata() = default;
  /// `entries` must have distinct keys; `keeper` keeps alive the memory that they view; `where`
  /// names the file in messages.
  Metadata(std::vector<Entry> entries, std::shared_ptr<const void> keeper, std::string where);

  std::span<const Entry> entries() const noexcept { return entries_; }
  std::size_t size() const noexcept { return entries_.size(); }

  const MetaValue* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  /// The value of `key` as T, one of
  ///
  ///   bool
  ///   an integer type                  from any stored integer whose value fits
  ///   float, double                    from f32 or f64
  ///   std::string, std::string_view
  ///   a vector of one of these         from an array of exactly that type, or of integers of the
  ///                                    same width whose values fit
  ///
  /// Errc::bad_key when there is no such key; Errc::bad_type, naming both types, for a value of
  /// another type, or an integer that does not fit.
  template <class T>
  T get(std::string_view key) const;

  /// As get(), but returns `fallback` where the key is absent. A value of another type is still an
  /// error.
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return contains(key) ? get<T>(key) : std::move(fallback);
  }

  /// As get(), but returns nothing where the key is absent.
  template <class T>
  std::optional<T> get_optional(std::string_view key) const {
    return contains(key) ? std::optional<T>(get<T>(key)) : std::nullopt;
  }

  /// An array of strings without a copy. Errors as for get().
  std::span<const std::string_view> strings(std::string_view key) const;

  // Setters: replace the value of an existing key, and copy their arguments. Errc::bad_key for an
  // empty key, Errc::bad_encoding for one that is not UTF-8.
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }
  template <class T>
    requires std::is_arithmetic_v<T>
  void set(std::string_view key, T number) {
    set_value(key, MetaValue(number));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void set_array(std::string_view key, std::span<const T> numbers) {
    set_numbers(key, type_of(MetaValue(T{})), numbers.data(), numbers.size());
  }
  void set_strings(std::string_view key, std::span<const std::string_view> strings);

 private:
  const MetaValue& require(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected) const;
  [[noreturn]] void fail_range(std::string_view key, const std::string& found) const;
  bool get_bool(std::string_view key) const;
  double get_floating(std::string_view key) const;
  std::string_view get_text(std::string_view key) const;
  std::int64_t get_signed(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::uint64_t get_unsigned(std::string_view key, std::uint64_t high) const;
  std::size_t array_size(std::string_view key) const;
  void copy_numbers(std::string_view key, MetaType type, void* to) const;
  void set_value(std::string_view key, MetaValue value);
  void set_numbers(std::string_view key, MetaType type, const void* numbers, std::size_t count);
  std::string_view keep(std::string_view text);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_key_;  // positions in entries_, ordered by key
  std::vector<std::shared_ptr<const void>> keepers_;
  std::string where_;
};

namespace detail {
template <class T>
struct VectorElement {};
template <class T>
struct VectorElement<std::vector<T>> {
  using type = T;
};
}  // namespace detail

template <class T>
T Metadata::get(std::string_view key) const {
  if constexpr (std::is_same_v<T, bool>) {
    return get_bool(key);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(get_floating(key));
  } else if constexpr (std::signed_integral<T>) {
    return static_cast<T>(
        get_signed(key, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::unsigned_integral<T>) {
    return static_cast<T>(get_unsigned(key, std::numeric_limits<T>::max()));
  } else if constexpr (std::is_same_v<T, std::string_view> || std::is_same_v<T, std::string>) {
    return T(get_text(key));
  } else {
    using Element = typename detail::VectorElement<T>::type;
    if constexpr (std::is_arithmetic_v<Element>) {
      static_assert(!std::is_same_v<Element, bool>, "ask for std::vector<std::uint8_t>");
      T values(array_size(key));
      copy_numbers(key, type_of(MetaValue(Element{})), values.data());
      return values;
    } else {
      const auto found = strings(key);
      return T(found.begin(), found.end());
    }
  }
}

}  // namespace tenon::io
