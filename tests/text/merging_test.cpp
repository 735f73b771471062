#include "text/merging.hpp"

#include <limits>
#include <random>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon::text;

namespace {

/// A made-up language of merges: any pair may merge, by a hash that leaves few distinct ranks.
Candidate find(std::uint32_t seed, const Symbol& left, const Symbol& right) {
  const auto a = static_cast<std::uint32_t>(left.id);
  const auto b = static_cast<std::uint32_t>(right.id);
  const std::uint32_t h = (a * 2654435761u ^ b * 40503u ^ seed) * 2246822519u;
  if ((h >> 28) < 5) return {};
  return {(h >> 20) % 7, static_cast<std::int32_t>((a * 31 + b * 17 + 1) % 64)};
}

/// The definition: look through all adjacent pairs, merge the best, leftmost among equals, start
/// over.
std::vector<std::int32_t> by_definition(std::vector<std::int32_t> ids, std::uint32_t seed) {
  for (;;) {
    Candidate best{std::numeric_limits<std::uint64_t>::max(), -1};
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      Symbol left;
      Symbol right;
      left.id = ids[i];
      right.id = ids[i + 1];
      const Candidate candidate = find(seed, left, right);
      if (candidate.id >= 0 && candidate.rank < best.rank) {
        best = candidate;
        at = i;
      }
    }
    if (best.id < 0) return ids;
    ids[at] = best.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("merging: best rank first and leftmost among equals, in short and in long words") {
  const std::uint32_t seed = 20240229;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Merger merger;
  for (int round = 0; round < 400; ++round) {
    const std::size_t length =
        round % 8 == 0 ? Merger::long_word + random() % 300 : 1 + random() % 60;
    const std::uint32_t alphabet = 1 + random() % 6;
    std::vector<std::int32_t> ids(length);
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % alphabet);
    const std::uint32_t language = static_cast<std::uint32_t>(random());
    merger.clear();
    for (std::uint32_t i = 0; i < length; ++i) merger.add(ids[i], i, i + 1);
    merger.merge(
        [&](const Symbol& left, const Symbol& right) { return find(language, left, right); });
    std::vector<std::int32_t> merged;
    for (const Symbol& symbol : merger.symbols()) {
      if (symbol.end != 0) merged.push_back(symbol.id);
    }
    REQUIRE(merged == by_definition(ids, language));
  }
}
