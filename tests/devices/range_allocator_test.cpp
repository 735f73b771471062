#include "support/expect_error.hpp"

#include <tenon/range_allocator.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;

constexpr std::uint64_t base = 0x1'0000'0000;

/// A naive allocator with an entry per byte: 0 is free, every block has a number, and its redzones
/// the negative of that.
class Oracle {
 public:
  Oracle(std::uint64_t size, std::uint64_t redzone) : owner_(size), redzone_(redzone) {}

  std::optional<std::uint64_t> allocate(std::uint64_t size, std::uint64_t alignment) {
    std::optional<std::pair<std::uint64_t, std::uint64_t>> best;  // hole's size, offset of block
    for (const auto& [begin, length] : holes()) {
      std::uint64_t at = begin + redzone_;
      while ((base + at) % alignment != 0) ++at;
      if (at + size + redzone_ > begin + length) continue;
      if (!best || length < best->first) best = {length, at};
    }
    if (!best) return std::nullopt;
    const std::uint64_t at = best->second;
    ++number_;
    fill(at - redzone_, redzone_, -number_);
    fill(at, size, number_);
    fill(at + size, redzone_, -number_);
    return base + at;
  }

  bool is_free(std::uint64_t begin, std::uint64_t size) const {
    const auto first = owner_.begin() + static_cast<std::ptrdiff_t>(begin - base);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(size),
                       [](int owner) { return owner == 0; });
  }
  void reserve(std::uint64_t begin, std::uint64_t size) { fill(begin - base, size, ++number_); }
  void release(std::uint64_t begin) {
    const int number = owner_[begin - base];
    for (int& owner : owner_) {
      if (std::abs(owner) == number) owner = 0;
    }
  }

  std::uint64_t used() const {
    return static_cast<std::uint64_t>(
        std::count_if(owner_.begin(), owner_.end(), [](int owner) { return owner > 0; }));
  }
  std::uint64_t largest_hole() const {
    std::uint64_t largest = 0;
    for (const auto& [begin, length] : holes()) largest = std::max(largest, length);
    return largest;
  }

 private:
  void fill(std::uint64_t begin, std::uint64_t size, int owner) {
    std::fill_n(owner_.begin() + static_cast<std::ptrdiff_t>(begin), size, owner);
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
    for (std::uint64_t i = 0; i < owner_.size(); ++i) {
      if (owner_[i] != 0) continue;
      const std::uint64_t begin = i;
      while (i < owner_.size() && owner_[i] == 0) ++i;
      result.emplace_back(begin, i - begin);
    }
    return result;
  }

  std::vector<int> owner_;
  std::uint64_t redzone_;
  int number_ = 0;
};

}  // namespace

TEST_CASE("RangeAllocator: blocks are aligned, in the range, and do not overlap") {
  RangeAllocator ranges(base, 4096);
  CHECK(ranges.allocate(100) == base);
  CHECK(ranges.allocate(100) == base + 128);
  CHECK(ranges.allocate(1, 1) == base + 100);  // the smallest hole that holds it
  CHECK(ranges.allocate(8, 1024) == base + 1024);
  CHECK(ranges.count() == 4);
  CHECK(ranges.usage().used_bytes == 209);
  expect_error(Errc::out_of_device_memory, [&] { ranges.allocate(4096); });
  CHECK_FALSE(ranges.try_allocate(4096));
}

TEST_CASE("RangeAllocator: best fit, and adjacent holes are merged") {
  RangeAllocator ranges(base, 1024);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(ranges.allocate(64));
  CHECK_FALSE(ranges.try_allocate(1, 1));
  CHECK(ranges.usage().largest_hole_bytes == 0);
  CHECK(ranges.usage().fragmentation() == 0);  // nothing is free

  for (const std::size_t i : {2u, 3u, 4u, 8u, 9u, 12u}) ranges.release(blocks[i], 64);
  const RangeAllocator::Usage usage = ranges.usage();
  CHECK(usage.used_bytes == 640);
  CHECK(usage.peak_bytes == 1024);
  CHECK(usage.largest_hole_bytes == 192);
  CHECK(usage.fragmentation() == Approx(0.5));  // 192 of 384
  CHECK(ranges.allocate(128) == blocks[8]);
  CHECK(ranges.allocate(64) == blocks[12]);
  CHECK(ranges.allocate(192) == blocks[2]);
  CHECK_FALSE(ranges.try_allocate(1, 1));
}

TEST_CASE("RangeAllocator: what cannot be allocated") {
  RangeAllocator ranges(base, 4096);
  const auto all = std::numeric_limits<std::uint64_t>::max();
  expect_error(Errc::bad_argument, [&] { ranges.allocate(0); });
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, all}) {
    expect_error(Errc::bad_argument, [&] { ranges.allocate(8, alignment); });
  }
  CHECK_FALSE(ranges.try_allocate(all));
  CHECK_FALSE(ranges.try_allocate(all - 63));
  CHECK_FALSE(ranges.try_allocate(1, std::uint64_t{1} << 63));
  CHECK_FALSE(RangeAllocator(base + 1, 4096).try_allocate(4096, 2));
  // The last address there is.
  RangeAllocator top(all - 64, 64);
  CHECK(top.allocate(64, 1) == all - 64);
  CHECK_FALSE(RangeAllocator(all - 64, 64).try_allocate(8, 128));

  expect_error(Errc::bad_argument, [] { RangeAllocator(base, 0); });
  expect_error(Errc::bad_argument, [&] { RangeAllocator(all, 1); });
  expect_error(Errc::bad_argument, [&] { RangeAllocator(base, all); });
  expect_error(Errc::bad_argument, [] { RangeAllocator(base, 64, {"ocm", 32}); });
  expect_error(Errc::bad_argument, [&] { RangeAllocator(base, 64, {"ocm", all}); });
  CHECK(RangeAllocator(base, 65, {"ocm", 32}).allocate(1, 1) == base + 32);
}

TEST_CASE("RangeAllocator: what cannot be released") {
  RangeAllocator ranges(base, 4096);
  const std::uint64_t block = ranges.allocate(128);
  ranges.reserve(base + 1024, 64);
  const auto refused = [&](Errc code, std::uint64_t begin, std::uint64_t size) {
    INFO(begin << " " << size);
    expect_error(code, [&] { ranges.release(begin, size); });
  };
  refused(Errc::bad_argument, block + 64, 64);  // inside
  refused(Errc::bad_argument, block, 64);
  refused(Errc::bad_argument, block, 192);
  refused(Errc::bad_argument, base + 1024, 64);  // reserved
  refused(Errc::call_order, base + 512, 64);     // a hole
  refused(Errc::out_of_range, base - 1, 64);
  refused(Errc::out_of_range, base + 4096, 64);
  CHECK(ranges.count() == 2);
  ranges.release(block, 128);
  refused(Errc::call_order, block, 128);  // twice
}

TEST_CASE("RangeAllocator: reservations at given places") {
  RangeAllocator ranges(base, 4096);
  const std::uint64_t block = ranges.allocate(64);
  expect_error(Errc::overlap, [&] { ranges.reserve(block, 64); });
  expect_error(Errc::overlap, [&] { ranges.reserve(block + 63, 1); });
  ranges.reserve(base + 1000, 100);
  expect_error(Errc::overlap, [&] { ranges.reserve(base + 64, 937); });
  expect_error(Errc::overlap, [&] { ranges.reserve(base + 1099, 1); });
  ranges.reserve(base + 64, 936);
  ranges.reserve(base + 4095, 1);
  expect_error(Errc::out_of_range, [&] { ranges.reserve(base + 4090, 7); });
  expect_error(Errc::out_of_range, [&] { ranges.reserve(base - 1, 1); });
  expect_error(Errc::out_of_range, [&] { ranges.reserve(base, ~std::uint64_t{0}); });
  expect_error(Errc::bad_argument, [&] { ranges.reserve(base + 2000, 0); });

  CHECK(ranges.allocate(64) == base + 1152);  // off all of them
  CHECK_FALSE(ranges.unreserve(base + 1000, 99));
  CHECK_FALSE(ranges.unreserve(base + 1001, 99));
  CHECK_FALSE(ranges.unreserve(block, 64));  // a block
  CHECK(ranges.unreserve(base + 1000, 100));
  CHECK_FALSE(ranges.unreserve(base + 1000, 100));
  CHECK(ranges.usage().used_bytes == 64 + 936 + 1 + 64);
}

TEST_CASE("RangeAllocator: random calls answer as the oracle") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (const std::uint64_t redzone : {0, 1, 16}) {
    constexpr std::uint64_t size = 3000;
    RangeAllocator ranges(base, size, {"ocm", redzone});
    Oracle oracle(size, redzone);
    std::map<std::uint64_t, std::uint64_t> blocks, reservations;
    const auto any = [&](const auto& map) {
      return *std::next(map.begin(), static_cast<std::ptrdiff_t>(below(map.size())));
    };
    std::uint64_t peak = 0;
    std::size_t refused = 0;
    for (int step = 0; step < 4000; ++step) {
      INFO("step " << step << " redzone " << redzone);
      switch (below(8)) {
        case 0:
        case 1:
        case 2: {
          const std::uint64_t bytes = 1 + below(below(4) == 0 ? 600 : 60);
          const std::uint64_t alignment = std::uint64_t{1} << below(8);
          const auto begin = ranges.try_allocate(bytes, alignment);
          REQUIRE(begin == oracle.allocate(bytes, alignment));
          if (begin) blocks.emplace(*begin, bytes);
          refused += begin ? 0 : 1;
          break;
        }
        case 3: {
          const std::uint64_t begin = base + below(size);
          const std::uint64_t bytes = 1 + below(80);
          if (begin + bytes > base + size) {
            expect_error(Errc::out_of_range, [&] { ranges.reserve(begin, bytes); });
          } else if (!oracle.is_free(begin, bytes)) {
            expect_error(Errc::overlap, [&] { ranges.reserve(begin, bytes); });
          } else {
            ranges.reserve(begin, bytes);
            oracle.reserve(begin, bytes);
            reservations.emplace(begin, bytes);
          }
          break;
        }
        case 4: {
          if (reservations.empty()) break;
          const auto [begin, bytes] = any(reservations);
          REQUIRE(ranges.unreserve(begin, bytes));
          oracle.release(begin);
          reservations.erase(begin);
          break;
        }
        case 5: {  // a release that must change nothing
          const std::uint64_t begin = base + below(size);
          const std::uint64_t bytes = 1 + below(60);
          const auto block = blocks.find(begin);
          if (block != blocks.end() && block->second == bytes) break;
          CHECK_THROWS_AS(ranges.release(begin, bytes), Error);
          break;
        }
        default: {
          if (blocks.empty()) break;
          const auto [begin, bytes] = any(blocks);
          ranges.release(begin, bytes);
          oracle.release(begin);
          blocks.erase(begin);
          break;
        }
      }
      const RangeAllocator::Usage usage = ranges.usage();
      peak = std::max(peak, oracle.used());
      REQUIRE(usage.used_bytes == oracle.used());
      REQUIRE(usage.peak_bytes == peak);
      REQUIRE(usage.largest_hole_bytes == oracle.largest_hole());
      REQUIRE(ranges.count() == blocks.size() + reservations.size());
    }
    CHECK(refused > 0);  // the range was full at times
    for (const auto& [begin, bytes] : blocks) ranges.release(begin, bytes);
    for (const auto& [begin, bytes] : reservations) CHECK(ranges.unreserve(begin, bytes));
    CHECK(ranges.usage().largest_hole_bytes == size);
    CHECK(ranges.usage().fragmentation() == 0);
  }
}

TEST_CASE("RangeAllocator: threads share one range") {
  RangeAllocator ranges(base, std::uint64_t{1} << 20, {"etm", 32});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&ranges, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<std::uint64_t, std::uint64_t>> mine;
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t size = 1 + random() % 500;
        if (const auto begin = ranges.try_allocate(size)) mine.emplace_back(*begin, size);
        if (mine.size() > 20) {
          std::swap(mine[random() % mine.size()], mine.back());
          ranges.release(mine.back().first, mine.back().second);
          mine.pop_back();
        }
      }
      for (const auto& [begin, size] : mine) ranges.release(begin, size);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(ranges.count() == 0);
  CHECK(ranges.usage().used_bytes == 0);
  CHECK(ranges.usage().largest_hole_bytes == std::uint64_t{1} << 20);
}

}  // namespace tenon
