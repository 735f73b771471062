// Reading an untrusted JSON document, with errors that name the location of a value.
#pragma once

#include <tenon/error.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tenon::io {

/// The document's file, and the unknown keys found in it.
struct JsonFile {
  std::string name;
  bool strict = false;
  std::size_t unknown_keys = 0;
  std::string first_unknown;  ///< where
};

/// A value and its path: "/functions/0/nodes/3". Values form a linked list on the stack, so that
/// paths are composed only for messages; a value must not outlive its parent.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, JsonFile& file) : value_(value), file_(file) {}
  JsonValue(const JsonValue&) = delete;
  JsonValue& operator=(const JsonValue&) = delete;

  const nlohmann::json& json() const noexcept { return value_; }
  JsonFile& file() const noexcept { return file_; }
  std::string where() const;  ///< "net.json:/functions/0/nodes/3"
  [[noreturn]] void fail(Errc code, std::string message) const {
    throw Error(code, where(), std::move(message));
  }

  // Members of an object. Errc::bad_type when this is none, Errc::bad_key for an absent one.
  bool has(std::string_view key) const;
  JsonValue operator[](const char* key) const;
  /// Errc::bad_key for the first member that is none of these, where the file is read strictly;
  /// counted elsewhere.
  void check_keys(std::initializer_list<std::string_view> known) const;

  // Items of an array; Errc::bad_type when this is none.
  std::size_t size() const;
  JsonValue operator[](std::size_t index) const;  ///< `index` below size()

  // Errc::bad_type for another kind of value; of integers also for one that does not fit.
  const std::string& text() const;
  bool boolean() const;
  std::int64_t integer() const;

  /// Calls `read`, and replaces the location of its errors by this value's.
  template <class Read>
  auto locate(Read&& read) const {
    try {
      return read();
    } catch (const Error& error) {
      fail(error.code(), error.message());
    }
  }

 private:
  JsonValue(const nlohmann::json& value, const JsonValue& outer, std::string_view key,
            std::size_t index)
      : value_(value), file_(outer.file_), outer_(&outer), key_(key), index_(index) {}
  std::string path() const;
  void expect(bool right, std::string_view what) const;

  const nlohmann::json& value_;
  JsonFile& file_;
  const JsonValue* outer_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
};

}  // namespace tenon::io
