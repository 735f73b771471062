// Accesses that are found by their bytes: the same ones as by looking at all of them.
#include "lower/access_index.hpp"

#include "support/op_testing.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::lowering {
namespace {

Access random_access(testing::Random& random) {
  const std::int64_t sizes[] = {0, 1, 3, 64, 64, 1000, std::int64_t{1} << 62};
  const std::int64_t begin = random.integer(0, 2000);
  const std::int64_t size = sizes[random.integer(0, 6)];
  const Place::Kind kind = random.integer(0, 1) == 0 ? Place::Kind::slab : Place::Kind::input;
  return {kind,
          static_cast<std::uint32_t>(kind == Place::Kind::slab ? 0 : random.integer(0, 2)),
          {begin, begin + size}};
}

/// An access of no bytes counts as one of one byte.
Access widened(Access access) {
  access.bytes.end = std::max(access.bytes.end, access.bytes.begin + 1);
  return access;
}

TEST_CASE("AccessIndex: what overlaps, after insertions and removals") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    testing::Random random(seed);
    AccessIndex index;
    std::vector<Access> all;
    std::vector<bool> is_in;
    for (int step = 0; step < 600; ++step) {
      const Access query = random_access(random);
      std::vector<std::size_t> found, wanted;
      const auto note = [&](std::size_t number) {
        found.push_back(number);
        return false;
      };
      CHECK_FALSE(index.any_overlapping(query, note));
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (is_in[i] && overlap(widened(all[i]), widened(query))) wanted.push_back(i);
      }
      std::ranges::sort(found);
      REQUIRE(found == wanted);
      CHECK(index.any_overlapping(query, [](std::size_t) { return true; }) == !wanted.empty());
      if (step % 3 == 0) {
        const auto is_third = [&](std::size_t number) {
          if (number % 3 != 0) return false;
          is_in[number] = false;
          return true;
        };
        index.erase_overlapping(query, is_third);
      }
      index.insert(query, all.size());
      all.push_back(query);
      is_in.push_back(true);
    }
  }
}

}  // namespace
}  // namespace tenon::lowering
