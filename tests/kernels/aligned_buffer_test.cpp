#include "backends/cpu/matmul/aligned_buffer.hpp"

#include <tenon/error.hpp>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using tenon::cpu::AlignedBuffer;

namespace {

bool holds(const AlignedBuffer& buffer, int value) {
  for (std::size_t i = 0; i < buffer.size_bytes(); ++i) {
    if (buffer.data()[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("aligned buffer: sizes, alignment, moves") {
  AlignedBuffer empty;
  CHECK(empty.data() == nullptr);
  CHECK(AlignedBuffer(0).size_bytes() == 0);
  for (const std::size_t size : {1u, 63u, 16384u, 100000u, 3000000u, 40000000u}) {
    AlignedBuffer a(size);
    CHECK(a.size_bytes() == size);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 64 == 0);
    std::memset(a.data(), 7, size);
    std::byte* place = a.data();
    AlignedBuffer b(std::move(a));
    CHECK(b.data() == place);
    AlignedBuffer c;
    c = std::move(b);
    CHECK(c.data() == place);
    CHECK(holds(c, 7));
  }
}

TEST_CASE("aligned buffer: more than there is throws") {
  const auto too_much = [] { AlignedBuffer buffer(SIZE_MAX / 2); };
  CHECK_THROWS_AS(too_much(), tenon::Error);
  const auto overflow = [] { AlignedBuffer buffer(SIZE_MAX); };
  CHECK_THROWS_AS(overflow(), tenon::Error);
}

TEST_CASE("aligned buffer: buffers of many threads do not overlap, in any order of release") {
  std::vector<std::thread> threads;
  std::vector<int> damaged(4, 0);
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t, &damaged] {
      std::mt19937 random(t);
      std::vector<std::pair<AlignedBuffer, int>> live;
      for (int round = 0; round < 400; ++round) {
        if (live.size() > 20) {
          const std::size_t victim = random() % live.size();
          damaged[t] += !holds(live[victim].first, live[victim].second);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
        }
        AlignedBuffer buffer(random() % 60000);
        const int value = static_cast<int>(random() % 256);
        if (buffer.size_bytes() != 0) std::memset(buffer.data(), value, buffer.size_bytes());
        live.emplace_back(std::move(buffer), value);
      }
      for (const auto& [buffer, value] : live) damaged[t] += !holds(buffer, value);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : damaged) CHECK(count == 0);
}
