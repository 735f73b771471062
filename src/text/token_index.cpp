#include "token_index.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <tenon/error.hpp>

#include <xxhash.h>

namespace tenon::text {
namespace {

std::uint64_t hash(std::string_view text) noexcept { return XXH3_64bits(text.data(), text.size()); }

}  // namespace

TokenIndex::TokenIndex(std::span<const std::string_view> tokens)
    : tokens_(tokens), slots_(std::bit_ceil(tokens.size() * 2 + 2)), mask_(slots_.size() - 1) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;  // a gap between ids
    const std::uint64_t h = hash(tokens[i]);
    const auto tag = static_cast<std::uint32_t>(h >> 32);
    std::size_t at = static_cast<std::size_t>(h) & mask_;
    for (; slots_[at].id >= 0; at = (at + 1) & mask_) {
      if (slots_[at].tag == tag && tokens[static_cast<std::size_t>(slots_[at].id)] == tokens[i]) {
        throw Error(Errc::bad_tokenizer, "tokenizer",
                    fmt::format("tokens {} and {} have the same text", slots_[at].id, i));
      }
    }
    slots_[at] = {tag, static_cast<std::int32_t>(i)};
    max_length_ = std::max(max_length_, tokens[i].size());
  }
}

std::int32_t TokenIndex::find(std::string_view text) const noexcept {
  if (text.size() > max_length_ || slots_.empty()) return -1;
  const std::uint64_t h = hash(text);
  const auto tag = static_cast<std::uint32_t>(h >> 32);
  for (std::size_t at = static_cast<std::size_t>(h) & mask_; slots_[at].id >= 0;
       at = (at + 1) & mask_) {
    if (slots_[at].tag == tag && tokens_[static_cast<std::size_t>(slots_[at].id)] == text) {
      return slots_[at].id;
    }
  }
  return -1;
}

}  // namespace tenon::text
