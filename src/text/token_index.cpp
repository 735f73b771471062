#include "token_index.hpp"

#include <tenon/error.hpp>

#include <algorithm>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::text {
namespace {

std::uint64_t hash(std::string_view text) noexcept { return XXH3_64bits(text.data(), text.size()); }

std::size_t longest_of(std::span<const std::string_view> tokens) noexcept {
  std::size_t longest = 0;
  for (const std::string_view token : tokens) longest = std::max(longest, token.size());
  return longest;
}

}  // namespace

TokenIndex::TokenIndex(std::span<const std::string_view> tokens, std::span<const Slot> kept)
    : tokens_(tokens), slots_(kept), max_length_(longest_of(tokens)) {}

TokenIndex::TokenIndex(std::span<const std::string_view> tokens)
    : tokens_(tokens), slots_(tokens.size()), max_length_(longest_of(tokens)) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;  // a gap between ids
    const std::uint64_t h = hash(tokens[i]);
    const auto tag = static_cast<std::uint32_t>(h >> 32);
    auto at = static_cast<std::size_t>(h);
    for (; slots_[at].id >= 0; ++at) {
      if (slots_[at].tag == tag && tokens[static_cast<std::size_t>(slots_[at].id)] == tokens[i]) {
        throw Error(Errc::bad_tokenizer, "tokenizer",
                    fmt::format("tokens {} and {} have the same text", slots_[at].id, i));
      }
    }
    slots_.set(at, {tag, static_cast<std::int32_t>(i)});
  }
}

std::int32_t TokenIndex::find(std::string_view text) const noexcept {
  if (text.size() > max_length_) return -1;
  const std::uint64_t h = hash(text);
  const auto tag = static_cast<std::uint32_t>(h >> 32);
  for (auto at = static_cast<std::size_t>(h); slots_[at].id >= 0; ++at) {
    if (slots_[at].tag == tag && tokens_[static_cast<std::size_t>(slots_[at].id)] == text) {
      return slots_[at].id;
    }
  }
  return -1;
}

}  // namespace tenon::text
