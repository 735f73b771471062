#pragma once

#include <tenon/text/tokenizer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A token that is matched whole in text.
struct MatchedToken {
  std::string text;
  AddedToken options;
  bool is_control = false;
};

/// A range of text: one token, or ordinary text where `id` is -1.
struct Fragment {
  std::int32_t id = -1;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Which control tokens may be matched.
struct ControlPolicy {
  bool allowed = true;
  std::span<const TextRange> plain;  ///< but not where they overlap these
};

/// Finds the leftmost-longest tokens of a list in a text.
///
/// The tokens are sorted, and a match narrows a range of them byte by byte. Time is O(n) for
/// ordinary text, O(n * longest token) at worst.
class TokenMatcher {
 public:
  static constexpr std::size_t longest_token = 2048;  ///< bytes

  /// Errors: limit_exceeded (a token of more than longest_token bytes).
  explicit TokenMatcher(std::vector<MatchedToken> tokens);

  bool empty() const noexcept { return tokens_.empty(); }

  /// Cuts `text` into fragments that cover it, except white space that tokens strip.
  std::vector<Fragment> cut(std::string_view text, const ControlPolicy& control) const;

 private:
  /// The longest token that starts at `position`, or null.
  const MatchedToken* longest_at(std::string_view text, std::size_t position) const;

  std::vector<MatchedToken> tokens_;                  ///< sorted by text
  std::array<std::uint32_t, 257> first_with_byte_{};  ///< tokens starting with b: [b, b + 1)
};

}  // namespace tenon::text
