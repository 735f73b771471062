#include "byte_trie.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace tenon::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.first.empty(); });
  for (const auto& [text, id] : tokens) {
    if (text.size() <= longest_token) continue;
    throw Error(
        Errc::limit_exceeded, "tokenizer",
        fmt::format(
            "token {} has {} bytes; models that look for the best of all tokens at each place "
            "have at most {}",
            id, text.size(), longest_token));
  }
  std::ranges::sort(tokens);

  /// The tokens [begin, end) share the bytes down to one node.
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::vector<Range> level{{0, count}};
  labels_.push_back('\0');
  for (std::size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> next;
    for (Range range : level) {
      std::int32_t id = -1;
      while (range.begin != range.end && tokens[range.begin].first.size() == depth) {
        id = tokens[range.begin++].second;
      }
      ids_.push_back(id);
      children_.push_back(static_cast<Node>(labels_.size()));
      while (range.begin != range.end) {
        const char label = tokens[range.begin].first[depth];
        const auto last =
            std::find_if(tokens.begin() + range.begin, tokens.begin() + range.end,
                         [&](const auto& token) { return token.first[depth] != label; });
        const auto end = static_cast<std::uint32_t>(last - tokens.begin());
        labels_.push_back(label);
        next.push_back({range.begin, end});
        range.begin = end;
      }
    }
    level = std::move(next);
  }
  children_.push_back(static_cast<Node>(labels_.size()));
}

}  // namespace tenon::text
