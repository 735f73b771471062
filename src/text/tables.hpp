#pragma once

#include "merge_table.hpp"
#include "recipe.hpp"
#include "token_index.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tenon::text {

/// One number for each byte, 0 or 1.
using ByteFlags = std::array<std::uint8_t, 256>;

/// Lookup tables of tokens and merges: everything that takes time to make from a vocabulary. Refers
/// to the recipe's tokens.
struct Tables {
  TokenIndex index;
  MergeTable merges;      ///< empty where the model merges by scores, or not at all
  ByteFlags joins_space;  ///< spm, unigram: bytes after which a token may continue with a space
  bool are_kept = false;  ///< whether they are in borrowed memory
};

/// Errors: bad_tokenizer (a text twice, merges of unknown tokens).
Tables make_tables(const Recipe& recipe);

/// The tables as bytes, with a digest of the vocabulary that they were made of.
std::vector<std::byte> to_bytes(const Tables& tables, const Vocabulary& vocabulary);

/// The tables in `bytes`, which must outlive them. None unless to_bytes() made them for this
/// vocabulary. Every entry is range-checked, so that no search leaves the tables or runs forever,
/// whatever the bytes are. Their content is not compared with rebuilt tables: the caller ensures
/// that they have not changed.
std::optional<Tables> from_bytes(std::span<const std::byte> bytes, const Vocabulary& vocabulary);

}  // namespace tenon::text
