#include "support/expect_error.hpp"

#include <tenon/arena.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {
using testing::expect_error;
constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
}  // namespace

TEST_CASE("Arena: aligned, disjoint, within the budget") {
  Arena arena(4096);
  std::vector<std::pair<std::uintptr_t, std::size_t>> pieces;
  for (const std::size_t alignment : {1u, 8u, 2u, 64u, 16u, 256u}) {
    const std::size_t size = 3 * alignment + 1;
    const auto begin = reinterpret_cast<std::uintptr_t>(arena.allocate(size, alignment));
    CHECK(begin % alignment == 0);
    for (const auto& [other, length] : pieces)
      CHECK((begin >= other + length || other >= begin + size));
    pieces.emplace_back(begin, size);
  }
  CHECK(arena.used() <= arena.budget());
  const std::size_t used = arena.used();
  CHECK(arena.allocate(0, 1) != nullptr);
  CHECK(arena.used() == used);
}

TEST_CASE("Arena: running out takes nothing and breaks nothing") {
  Arena arena(64);
  const std::string_view text = arena.copy(std::string_view("kept"));
  const std::size_t used = arena.used();
  const std::string what = expect_error(Errc::out_of_arena, [&] { arena.allocate(61, 1); });
  CHECK(what.find("need 61") != std::string::npos);
  CHECK(what.find("have 60") != std::string::npos);
  expect_error(Errc::out_of_arena, [&] { arena.allocate(huge, 1); });
  expect_error(Errc::out_of_arena, [&] { arena.allocate(huge - 4, 8); });  // the end would wrap
  CHECK(arena.used() == used);
  CHECK(text == "kept");
  CHECK(arena.allocate(60, 1) != nullptr);  // to the last byte
  expect_error(Errc::out_of_arena, [&] { arena.allocate(1, 1); });
  arena.rewind(used);
  CHECK(arena.allocate(60, 1) != nullptr);
  CHECK(text == "kept");
}

TEST_CASE("Arena: invalid alignments, impossible budgets") {
  Arena arena(64);
  for (const std::size_t alignment :
       {std::size_t{0}, std::size_t{3}, std::size_t{8192}, std::size_t{1} << 40}) {
    expect_error(Errc::bad_argument, [&] { arena.allocate(1, alignment); });
  }
  CHECK(arena.used() == 0);
  Arena none(0);
  CHECK(none.allocate(0, 1) != nullptr);
  expect_error(Errc::out_of_arena, [&] { none.allocate(1, 1); });
  expect_error(Errc::out_of_memory, [] { Arena(huge / 2); });
}

TEST_CASE("Arena: copies") {
  Arena arena(1024);
  const std::vector<std::int64_t> values{1, 2, 3};
  const auto copied = arena.copy(std::span(values));
  CHECK(std::vector(copied.begin(), copied.end()) == values);
  CHECK(copied.data() != values.data());
  CHECK(arena.copy(std::span<const std::int64_t>()).empty());
  CHECK(*arena.make(7.5) == 7.5);
}

}  // namespace tenon
