#include "character_map.hpp"

#include <tenon/error.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon::text {
namespace {

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) {
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

constexpr std::size_t longest_entry = 1024;

std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

CharacterMap::CharacterMap(std::string_view table) {
  const std::size_t trie_bytes = table.size() < 4 ? 0 : little_endian(table, 0);
  if (table.size() < 4 || trie_bytes % 4 != 0 || trie_bytes > table.size() - 4) {
    throw Error(Errc::bad_tokenizer, "tokenizer",
                fmt::format("a table of character replacements of {} bytes is cut", table.size()));
  }
  units_.reserve(trie_bytes / 4);
  for (std::size_t at = 4; at < 4 + trie_bytes; at += 4) {
    units_.push_back(little_endian(table, at));
  }
  replacements_ = table.substr(4 + trie_bytes);
  if (!replacements_.empty() && replacements_.back() != '\0') {
    throw Error(Errc::bad_tokenizer, "tokenizer",
                "the last of a table's character replacements has no end");
  }
}

CharacterMap::Match CharacterMap::find(std::string_view text, bool takes_first) const noexcept {
  Match match;
  if (units_.empty()) return match;
  std::size_t node = offset_of(units_[0]);
  const std::size_t most = std::min(text.size(), longest_entry);
  for (std::size_t i = 0; i < most && text[i] != 0; ++i) {
    node ^= static_cast<unsigned char>(text[i]);
    if (node >= units_.size()) break;
    const std::uint32_t unit = units_[node];
    if ((unit & ((1u << 31) | 0xFF)) != static_cast<unsigned char>(text[i])) break;
    node ^= offset_of(unit);
    if ((unit & (1u << 8)) == 0) continue;
    if (node >= units_.size()) break;
    const std::size_t begin = units_[node] & ~(1u << 31);
    if (begin >= replacements_.size()) break;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    match = {i + 1, rest.substr(0, rest.find('\0'))};
    if (takes_first) break;
  }
  return match;
}

}  // namespace tenon::text
