// The structure of a snapshot file; see snapshot.hpp for the order of its parts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::snapshot {

static_assert(std::endian::native == std::endian::little, "snapshots are written little-endian");

inline constexpr std::array<char, 8> magic{'T', 'E', 'N', 'O', 'N', 'S', 'N', 'P'};
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t byte_order = 0x0102'0304;
inline constexpr std::uint64_t section_alignment = 64;
inline constexpr std::uint64_t max_table_bytes = std::uint64_t{64} << 20;
inline constexpr std::size_t max_name_bytes = 255;

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t file_bytes;
  std::uint64_t table_offset;
  std::uint64_t table_bytes;
  std::uint64_t section_count;
  std::uint64_t table_xxh3;
  std::uint64_t header_xxh3;  // of the bytes from `version` up to here
};
static_assert(sizeof(Header) == 64);
inline constexpr std::size_t hashed_header_begin = offsetof(Header, version);
inline constexpr std::size_t hashed_header_end = offsetof(Header, header_xxh3);

struct Entry {  // in the table; the name follows
  std::uint64_t offset;
  std::uint64_t size_bytes;
  std::uint64_t xxh3;
  std::uint64_t name_bytes;
};
static_assert(sizeof(Entry) == 32);

constexpr std::uint64_t align(std::uint64_t offset) {
  return (offset + section_alignment - 1) / section_alignment * section_alignment;
}

/// 1 to 255 printable ASCII characters.
constexpr bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= max_name_bytes &&
         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace tenon::snapshot
