// What a session's snapshot says of itself: section "manifest", JSON.
#pragma once

#include "base/strict_json.hpp"

#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/shape.hpp>
#include <tenon/snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::sessions {

using Json = nlohmann::json;

/// Counts changes of what the sections mean. It alone decides whether a snapshot can be read; the
/// version of the library that wrote it is for the message. Of older formats program, weights and
/// options are read, not what backends saved.
inline constexpr int manifest_format = 2;
inline constexpr int oldest_manifest_format = 1;

inline std::span<const std::byte> bytes_of(const HostBuffer& dense) {
  return {dense.bytes(), static_cast<std::size_t>(dense.shape().bytes())};
}
/// XXH3-64 in hexadecimal digits.
std::string digest_of(std::span<const std::byte> bytes);

/// Reads a manifest; whatever is not as save() writes it is Errc::corrupt, naming the field.
class Manifest {
 public:
  /// Errc::incompatible for a manifest of a format that this library does not read.
  explicit Manifest(const Snapshot& snapshot);

  const std::string& where() const noexcept { return where_; }
  bool is_older() const noexcept { return format_ < manifest_format; }

  const Json& root() const noexcept { return document_.root(); }

  template <class T>
  T get(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!fits<T>(value)) refuse(key);
    try {
      return value.get<T>();
    } catch (const Json::exception&) {
      refuse(key);
    }
  }
  template <class T>
  T get(const char* key) const {
    return get<T>(root(), key);
  }
  const Json& member(const Json& object, const char* key) const;
  /// An array of objects.
  const Json::array_t& list(const Json& object, const char* key) const;
  const Json::array_t& list(const char* key) const { return list(root(), key); }
  Shape shape(const Json& object) const;
  Error incompatible(std::string why) const;

 private:
  [[noreturn]] void refuse(const char* key) const;

  /// Numbers that a type cannot hold would be undefined behaviour in the conversion.
  template <class T>
  static bool fits(const Json& value) {
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      return value.is_array() && std::ranges::all_of(value, fits<std::int64_t>);
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::size_t>>) {
      return value.is_object() && std::ranges::all_of(value, fits<std::size_t>);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!value.is_number_integer()) return false;
      if (value.is_number_unsigned()) return std::in_range<T>(value.get<std::uint64_t>());
      return std::in_range<T>(value.get<std::int64_t>());
    } else {
      return true;
    }
  }

  std::string where_;
  JsonDocument document_;
  int format_ = manifest_format;
};

}  // namespace tenon::sessions
