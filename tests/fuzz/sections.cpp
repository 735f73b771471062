#include "fuzz/sections.hpp"

#include <algorithm>

namespace tenon::testing {
namespace {

constexpr std::size_t length_bytes = 3;

}  // namespace

std::vector<std::string_view> split_sections(std::span<const std::uint8_t> bytes,
                                             std::size_t most) {
  std::vector<std::string_view> parts;
  while (bytes.size() >= length_bytes && parts.size() < most) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length |= std::size_t{bytes[i]} << (8 * i);
    bytes = bytes.subspan(length_bytes);
    length = std::min(length, bytes.size());
    parts.emplace_back(reinterpret_cast<const char*>(bytes.data()), length);
    bytes = bytes.subspan(length);
  }
  return parts;
}

std::string join_sections(std::span<const std::string> parts) {
  std::string bytes;
  for (const std::string& part : parts) {
    for (std::size_t i = 0; i < length_bytes; ++i) {
      bytes.push_back(static_cast<char>(part.size() >> (8 * i)));
    }
    bytes += part;
  }
  return bytes;
}

}  // namespace tenon::testing
