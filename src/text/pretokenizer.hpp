#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Returns the end of the match that starts at `position`; `position` where there is none.
///
/// A scanner implements one regular expression. It looks ahead over at most a run of one kind of
/// character, so that splitting a text takes linear time.
using Scanner = std::size_t (*)(std::string_view text, std::size_t position);

/// Splits in order, each inside the pieces of the one before. Matches become pieces, and so does
/// what lies between them.
using SplitStages = std::span<const Scanner>;

/// The pre-tokenizer of a name in GGUF files.
struct Pretokenizer {
  SplitStages stages;
  bool composes = false;        ///< the family's tokenizer brings text to NFC first
  bool ignores_merges = false;  ///< a word that is a token is never taken apart
  bool adds_bos = false;        ///< unless the file says otherwise
};

std::optional<Pretokenizer> find_pretokenizer(std::string_view name);

/// The scanner of a regular expression that published tokenizer.json files use, or null.
Scanner find_split_pattern(std::string_view regex);

/// Appends the ends of the pieces of `text` to `ends`.
void split(std::string_view text, SplitStages stages, std::vector<std::uint32_t>& ends,
           std::vector<std::uint32_t>& scratch);

}  // namespace tenon::text
