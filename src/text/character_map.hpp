#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// SentencePiece's table of replacements ("precompiled_charsmap"): a double-array trie over the
/// bytes to replace, and the replacements, each ended by a zero byte.
///
/// A unit of the trie holds a label (bits 0 to 7, and bit 31 for a value), whether a value follows
/// (bit 8), and the offset to its children (from bit 10, times 256 with bit 9), as in Darts-clone.
class CharacterMap {
 public:
  /// Errors: bad_tokenizer (a table that is cut). Every index is checked when it is used. A file may hold a circle
  /// instead of a trie, so no entry has more than 1,024 bytes; SentencePiece's own have at most some 50.
  explicit CharacterMap(std::string_view table);

  struct Match {
    std::size_t length = 0;  ///< 0: none
    std::string_view replacement;
  };

  /// What the longest (or the shortest) entry that `text` begins with is replaced by.
  Match longest(std::string_view text) const noexcept { return find(text, false); }
  Match shortest(std::string_view text) const noexcept { return find(text, true); }

 private:
  Match find(std::string_view text, bool takes_first) const noexcept;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace tenon::text
