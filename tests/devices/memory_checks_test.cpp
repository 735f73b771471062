// Checks of regions: wrong frees, writes past the ends of memory, and leaks.

#include "host_region.hpp"
#include "support/catch_chunk.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"

#include <tenon/device.hpp>
#include <tenon/log.hpp>
#include <tenon/memory.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;
using testing::FakeDevice;

}  // namespace

TEST_CASE("MemRegion: free by address") {
  const auto fake = std::make_shared<FakeDevice>();
  testing::FakeRegion& dram = fake->dram();
  const MemPtr begin = dram.malloc(128, false).begin();
  expect_error(Errc::bad_argument, [&] { dram.free(begin + 64); });   // the inside
  expect_error(Errc::bad_argument, [&] { dram.free(begin + 127); });  // the inside
  expect_error(Errc::call_order, [&] { dram.free(begin + 128); });    // nothing there
  expect_error(Errc::call_order, [&] { dram.free(MemPtr()); });
  CHECK(dram.used_ranges() == 1);
  dram.free(begin);
  CHECK(dram.used_ranges() == 0);
  expect_error(Errc::call_order, [&] { dram.free(begin); });  // twice

  // Handles learn of it.
  MemChunk chunk = dram.malloc(64);
  dram.free(chunk.begin());
  CHECK(chunk.is_freed());
  expect_error(Errc::call_order, [&] { chunk.free(); });

  // Memory of others goes through its deleter; two wraps of one place cannot be told apart.
  std::array<char, 8> bytes{};
  int deleted = 0;
  const ChunkDeleter count = [&](const MemPtr&) { ++deleted; };
  const MemChunk first = host().malloc_at(MemPtr(bytes.data()), 8, count);
  {
    const MemChunk second = host().malloc_at(MemPtr(bytes.data()), 4, count);
    expect_error(Errc::bad_argument, [&] { host().free(MemPtr(bytes.data())); });
  }
  host().free(MemPtr(bytes.data()));
  CHECK(first.is_freed());
  CHECK(deleted == 2);
}

TEST_CASE("MemRegion: an address used again is another generation") {
  const auto fake = std::make_shared<FakeDevice>();
  MemChunk chunk = fake->dram().malloc(64);
  const MemPtr begin = chunk.begin();
  const std::uint64_t generation = chunk.generation();
  CHECK(generation > 0);
  CHECK(fake->dram().chunk(begin, 64)->generation() == generation);
  chunk = {};
  chunk = fake->dram().malloc(64);
  CHECK(chunk.begin() == begin);
  CHECK(chunk.generation() > generation);
  CHECK(fake->dram().malloc_at(fake->dram().pointer(1024), 8).generation() > chunk.generation());
}

TEST_CASE("MemRegion: which addresses are allocated") {
  const auto fake = std::make_shared<FakeDevice>();
  testing::FakeRegion& dram = fake->dram();
  const MemChunk chunk = dram.malloc(128);
  const MemPtr begin = chunk.begin();
  CHECK(dram.is_allocated(begin, 128));
  CHECK(dram.is_allocated(begin + 100, 28));
  CHECK_FALSE(dram.is_allocated(begin, 129));
  CHECK_FALSE(dram.is_allocated(begin + 100, ~std::uint64_t{0}));
  CHECK_FALSE(dram.is_allocated(begin + 128, 1));
  CHECK_FALSE(dram.is_allocated(MemPtr(), 1));
  const MemChunk next = dram.malloc(128);
  CHECK_FALSE(dram.is_allocated(begin, 256));  // two chunks are not one
}

TEST_CASE("MemRegion: fragmentation") {
  const auto fake = std::make_shared<FakeDevice>();
  CHECK(fake->dram().usage().fragmentation() == 0);
  MemChunk first = fake->dram().malloc(FakeDevice::region_bytes / 2);
  const MemChunk second = fake->dram().malloc(FakeDevice::region_bytes / 4);
  first.free();
  CHECK(fake->dram().usage().largest_hole_bytes == FakeDevice::region_bytes / 2);
  CHECK(fake->dram().usage().fragmentation() == Approx(1.0 / 3));  // a half of three quarters
  CHECK(host().usage().fragmentation() == 0);                      // knows no holes
}

TEST_CASE("MemRegion: writes past the ends of a chunk are found") {
  constexpr std::uint64_t redzone = 5000;  // more than is checked at a time
  testing::FakeRegion region("etm", 0x1000, 1 << 20, false, nullptr, redzone);
  const char byte = 7;
  for (const std::int64_t at :
       {std::int64_t{-1}, -std::int64_t{redzone}, std::int64_t{100}, std::int64_t{99 + redzone}}) {
    INFO(at);
    MemChunk chunk = region.malloc(100);
    const MemChunk neighbour = region.malloc(100);
    chunk.write(&byte, 99, 1);
    region.check_redzones();
    region.write(chunk.begin() + at, &byte, 1);
    expect_error(Errc::device_error, [&] { region.check_redzones(); });
    const std::string what = expect_error(Errc::device_error, [&] { chunk.free(); });
    CHECK(what.find("byte " + std::to_string(at)) != std::string::npos);
    CHECK(chunk.is_freed());  // all the same
    region.check_redzones();
    CHECK(region.used_ranges() == 1);
  }
  // The last handle has nobody to tell but the log.
  std::vector<std::string> logged;
  LogSink previous =
      set_log_sink([&](LogLevel, std::string_view text) { logged.emplace_back(text); });
  {
    const MemChunk chunk = region.malloc(100);
    region.write(chunk.begin() + 100, &byte, 1);
  }
  set_log_sink(std::move(previous));
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].find("past the ends of 100 bytes") != std::string::npos);
  CHECK(region.used_ranges() == 0);
}

TEST_CASE("MemRegion: the end of a device reports what was never freed") {
  std::vector<std::string> logged;
  LogSink previous =
      set_log_sink([&](LogLevel, std::string_view text) { logged.emplace_back(text); });
  {
    const auto fake = std::make_shared<FakeDevice>();
    for (int i = 0; i < 6; ++i) static_cast<void>(fake->dram().malloc(100, false));
    static_cast<void>(fake->xchg().malloc(100));  // frees itself
  }
  {
    const auto fake = std::make_shared<FakeDevice>();
  }
  set_log_sink(std::move(previous));
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].find("dram: 6 chunks of together 600 bytes") != std::string::npos);
}

/// A region whose memory copies itself: what overriding the copy across regions is for.
class DirectRegion : public testing::FakeRegion {
 public:
  using FakeRegion::copy;
  using FakeRegion::FakeRegion;
  void copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
            std::uint64_t size) override {
    ++direct_copies;
    FakeRegion::copy(to, source, from, size);
  }
  int direct_copies = 0;
};

TEST_CASE("MemRegion: a region may copy across by its own means") {
  DirectRegion region("etm", 0x1000, 4096, false);
  const MemChunk source = host().malloc(16);
  const MemChunk target = region.malloc(16);
  source.write("0123456789abcdef", 0, 16);
  target.copy_from(source);
  CHECK(region.direct_copies == 1);
  char byte = 0;
  target.read(&byte, 15, 1);
  CHECK(byte == 'f');
}

}  // namespace tenon
