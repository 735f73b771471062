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

/// What a tokenizer looks tokens and merges up in: all that takes time to make of a vocabulary.
/// Refers to the recipe's tokens.
struct Tables {
  TokenIndex index;
  MergeTable merges;      ///< empty where the model merges by scores, or not at all
  ByteFlags joins_space;  ///< spm: bytes behind which a token may go on with a space
  bool are_kept = false;  ///< whether they lie in bytes that somebody else keeps
};

/// Errors: bad_tokenizer (a text twice, merges of unknown tokens).
Tables make_tables(const Recipe& recipe);

/// The tables as bytes, with a digest of the vocabulary that they were made of.
std::vector<std::byte> to_bytes(const Tables& tables, const Vocabulary& vocabulary);

/// The tables that lie in `bytes`, which must outlive them. None where to_bytes() did not make
/// them, or not for this vocabulary; whatever the bytes are, no search leads out of them or goes on
/// for ever. They are not compared with tables made anew: who keeps them sees to it that they have
/// not changed since.
std::optional<Tables> from_bytes(std::span<const std::byte> bytes, const Vocabulary& vocabulary);

}  // namespace tenon::text
