#include "token_pieces.hpp"

#include <algorithm>
#include <utility>

namespace tenon::text {

TokenPieces::TokenPieces(
    std::size_t count, const std::function<std::string(std::int32_t id, bool at_start)>& spelling) {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    std::string text = spelling(id, false);
    if (spelling(id, true) != text) other_at_start_.push_back(id);
    if (!text.empty()) tokens.emplace_back(std::move(text), id);
  }
  std::ranges::sort(tokens);
  pieces_.reserve(tokens.size() + 1);
  std::string_view before;
  for (const auto& [text, id] : tokens) {
    const auto common = std::ranges::mismatch(before, text).in1 - before.begin();
    pieces_.push_back(
        {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(common), id});
    bytes_ += text;
    before = text;
  }
  pieces_.push_back({static_cast<std::uint32_t>(bytes_.size()), 0, -1});
}

}  // namespace tenon::text
