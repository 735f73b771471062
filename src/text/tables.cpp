#include "tables.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::text {
namespace {

/// Another number for another hash, order or form of slots.
constexpr std::uint64_t layout = 1;

/// Before the slots of the index and those of the merges.
struct Header {
  std::uint64_t layout;
  std::uint64_t vocabulary;  ///< its digest
  ByteFlags joins_space;
};
static_assert(sizeof(Header) % alignof(MergeTable::Slot) == 0 &&
              sizeof(TokenIndex::Slot) % alignof(MergeTable::Slot) == 0);
static_assert(std::has_unique_object_representations_v<TokenIndex::Slot> &&
              std::has_unique_object_representations_v<MergeTable::Slot>);

std::uint64_t hash(std::string_view text, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

/// Digest of the vocabulary. Texts are hashed one by one, each with its own seed, since they are
/// not contiguous.
std::uint64_t digest(const Vocabulary& v) noexcept {
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(v.model), v.tokens.size(),
                                 v.merges.size()};
  std::uint64_t sum = XXH3_64bits(sizes, sizeof(sizes));
  sum += XXH3_64bits(v.types.data(), v.types.size() * sizeof(TokenType));
  std::uint64_t seed = 0;
  for (const std::string_view token : v.tokens) sum += hash(token, ++seed);
  for (const Merge& merge : v.merges) {
    sum += hash(merge.left, ++seed);
    sum += hash(merge.right, ++seed);
  }
  return sum;
}

/// The merges that the model goes by.
std::span<const Merge> merges_of(const Vocabulary& v) noexcept {
  const bool merges = v.model == TokenizerModel::bpe || v.model == TokenizerModel::spm ||
                      v.model == TokenizerModel::hybriddna;
  if (!merges) return {};
  return v.merges;
}

/// The next `count` slots of `bytes`.
template <class Slot>
std::span<const Slot> take(std::span<const std::byte>& bytes, std::size_t count) noexcept {
  const auto slots = bytes.first(count * sizeof(Slot));
  bytes = bytes.subspan(slots.size());
  return {reinterpret_cast<const Slot*>(slots.data()), count};
}

/// The bytes that precede a space inside a token: between such a byte and a space a token may join
/// two words.
ByteFlags inner_spaces(const Recipe& recipe) {
  ByteFlags flags{};
  const TokenizerModel model = recipe.vocabulary.model;
  if (model != TokenizerModel::spm && model != TokenizerModel::unigram) return flags;
  for (std::size_t id = 0; id < recipe.vocabulary.tokens.size(); ++id) {
    if (!recipe.is_ordinary(static_cast<std::int32_t>(id))) continue;
    const std::string_view token = recipe.vocabulary.tokens[id];
    for (std::size_t mark = token.find(space_mark, 1); mark != std::string_view::npos;
         mark = token.find(space_mark, mark + 1)) {
      flags[static_cast<unsigned char>(token[mark - 1])] = 1;
    }
  }
  return flags;
}

bool is_aligned(const std::byte* bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(bytes) % alignof(MergeTable::Slot) == 0;
}

}  // namespace

Tables make_tables(const Recipe& recipe) {
  TokenIndex index(recipe.vocabulary.tokens);
  MergeTable merges(merges_of(recipe.vocabulary), recipe, index);
  return {std::move(index), std::move(merges), inner_spaces(recipe)};
}

std::vector<std::byte> to_bytes(const Tables& tables, const Vocabulary& vocabulary) {
  const Header header{layout, digest(vocabulary), tables.joins_space};
  const auto index = std::as_bytes(tables.index.slots());
  const auto merges = std::as_bytes(tables.merges.slots());
  std::vector<std::byte> bytes(sizeof(Header));
  std::memcpy(bytes.data(), &header, sizeof(Header));
  bytes.reserve(sizeof(Header) + index.size() + merges.size());
  bytes.insert(bytes.end(), index.begin(), index.end());
  bytes.insert(bytes.end(), merges.begin(), merges.end());
  return bytes;
}

std::optional<Tables> from_bytes(std::span<const std::byte> bytes, const Vocabulary& vocabulary) {
  const std::size_t ids = vocabulary.tokens.size();
  const std::size_t index_slots = HashSlots<TokenIndex::Slot>::count_for(ids);
  const std::size_t merge_slots =
      HashSlots<MergeTable::Slot>::count_for(merges_of(vocabulary).size());
  if (bytes.size() != sizeof(Header) + index_slots * sizeof(TokenIndex::Slot) +
                          merge_slots * sizeof(MergeTable::Slot) ||
      !is_aligned(bytes.data())) {
    return std::nullopt;
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.layout != layout || header.vocabulary != digest(vocabulary)) return std::nullopt;
  auto rest = bytes.subspan(sizeof(Header));
  const auto index = take<TokenIndex::Slot>(rest, index_slots);
  const auto merges = take<MergeTable::Slot>(rest, merge_slots);
  if (!are_safe(index, ids) || !are_safe(merges, ids)) return std::nullopt;
  return Tables{TokenIndex(vocabulary.tokens, index), MergeTable(merges), header.joins_space, true};
}

}  // namespace tenon::text
