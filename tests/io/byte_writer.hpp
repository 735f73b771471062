#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::testing {

/// Bytes of a file under construction, little-endian.
struct ByteWriter {
  std::string bytes;

  template <class T>
  ByteWriter& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  ByteWriter& u8(std::uint8_t value) { return number(value); }
  ByteWriter& u32(std::uint32_t value) { return number(value); }
  ByteWriter& u64(std::uint64_t value) { return number(value); }
  ByteWriter& raw(std::string_view text) {
    bytes += text;
    return *this;
  }
  /// A length of 64 bits and the text.
  ByteWriter& text(std::string_view text) { return u64(text.size()).raw(text); }
  ByteWriter& zeros(std::size_t count) {
    bytes.append(count, '\0');
    return *this;
  }
  ByteWriter& align(std::size_t step) { return zeros((step - bytes.size() % step) % step); }
};

}  // namespace tenon::testing
