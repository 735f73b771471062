#include "host_region.hpp"
#include "support/catch_chunk.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"

#include <tenon/device.hpp>
#include <tenon/log.hpp>
#include <tenon/memory.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;
using testing::FakeDevice;

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  return bytes;
}

}  // namespace

TEST_CASE("MemPtr: null is the null of the CPU only") {
  CHECK(MemPtr().is_null());
  CHECK(MemPtr(nullptr).is_null());
  CHECK_FALSE(MemPtr(std::uint64_t{0}).is_null());
  CHECK_FALSE(MemPtr(nullptr, 0).is_null());
}

TEST_CASE("MemPtr: three kinds") {
  char bytes[8];
  const std::uint64_t address = 0x40000000;

  const MemPtr c(bytes);
  CHECK(c.kind() == MemPtr::Kind::cptr);
  CHECK(c.cptr() == reinterpret_cast<std::byte*>(bytes));
  CHECK_FALSE(c.is_null());
  expect_error(Errc::bad_argument, [&] { c.addr(); });

  const MemPtr a(address);
  CHECK(a.kind() == MemPtr::Kind::addr);
  CHECK(a.addr() == address);
  CHECK(to_string(a) == "addr 0x40000000");
  expect_error(Errc::bad_argument, [&] { a.cptr(); });

  const MemPtr both(bytes, address);
  CHECK(both.kind() == MemPtr::Kind::both);
  CHECK(both.cptr() == reinterpret_cast<std::byte*>(bytes));
  CHECK(both.addr() == address);
}

TEST_CASE("MemPtr: arithmetic and order") {
  char bytes[64];
  for (const MemPtr& p :
       {MemPtr(bytes), MemPtr(std::uint64_t{0x40000000}), MemPtr(bytes, 0x40000000)}) {
    const MemPtr q = 40 + p;
    CHECK(q.kind() == p.kind());
    CHECK(q - p == 40);
    CHECK(p - q == -40);
    CHECK(q - 40 == p);
    CHECK(q + -40 == p);
    CHECK(p < q);
    CHECK(p <= q);
    CHECK(q > p);
    CHECK(q >= p);
    CHECK(p != q);
    CHECK_FALSE(p < p);
  }
}

TEST_CASE("MemPtr: what cannot be computed") {
  char bytes[8];
  const MemPtr c(bytes), a(std::uint64_t{0x1000});
  expect_error(Errc::bad_argument, [&] { static_cast<void>(c - a); });
  expect_error(Errc::bad_argument, [&] { static_cast<void>(c < MemPtr(bytes, 0x1000)); });
  // Two of kind both from different mappings.
  expect_error(Errc::bad_argument,
               [&] { static_cast<void>(MemPtr(bytes + 4, 0x1000) - MemPtr(bytes, 0x1000)); });
  // No wrapping, no offset from null, no negation of the least number.
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  expect_error(Errc::bad_argument, [&] { a - 0x1001; });
  expect_error(Errc::bad_argument, [&] { MemPtr(~std::uint64_t{0}) + 1; });
  expect_error(Errc::bad_argument, [&] { a + least; });
  CHECK((a - least).addr() == 0x8000'0000'0000'1000);
  expect_error(Errc::bad_argument, [&] { MemPtr() + 8; });
  CHECK((MemPtr() + 0).is_null());
  expect_error(Errc::bad_argument, [&] { static_cast<void>(MemPtr(~std::uint64_t{0}) - a); });
}

TEST_CASE("MemChunk: bytes in, bytes out") {
  const auto fake = std::make_shared<FakeDevice>();
  const auto in = counting(100);
  for (MemRegion* region : {&host(), &fake->default_mem_region(), &fake->mem_region("xchg")}) {
    INFO(region->name());
    const MemChunk chunk = region->malloc(100);
    CHECK(chunk.size_bytes() == 100);
    CHECK(chunk.is_on(*region));
    CHECK(&chunk.region() == region);
    chunk.write(in.data(), 0, 100);
    std::vector<std::uint8_t> out(10);
    chunk.read(out.data(), 90, 10);
    CHECK(out == std::vector<std::uint8_t>(in.begin() + 90, in.end()));
    chunk.read(nullptr, 100, 0);  // nothing, at the very end

    expect_error(Errc::out_of_range, [&] { chunk.read(out.data(), 91, 10); });
    expect_error(Errc::out_of_range, [&] { chunk.write(in.data(), 101, 0); });
    expect_error(Errc::out_of_range, [&] { chunk.read(out.data(), ~std::uint64_t{0}, 2); });
  }
}

TEST_CASE("MemChunk: copies within and across regions") {
  const auto fake = std::make_shared<FakeDevice>();
  const std::size_t size = (std::size_t{1} << 20) + 12345;  // more than one staging piece
  const auto in = counting(size);
  const std::array<MemRegion*, 3> regions{&host(), &fake->dram(), &fake->xchg()};
  for (MemRegion* from : regions) {
    for (MemRegion* to : regions) {
      INFO(from->name() << " to " << to->name());
      const MemChunk source = from->malloc(size);
      const MemChunk target = to->malloc(size + 7);
      source.write(in.data(), 0, size);
      target.copy_from(source);
      std::vector<std::uint8_t> out(size);
      target.read(out.data(), 0, size);
      CHECK(out == in);
      expect_error(Errc::out_of_range, [&] { source.copy_from(target); });
    }
  }
}

TEST_CASE("MemChunk: the memory goes back with the last handle") {
  const auto fake = std::make_shared<FakeDevice>();
  MemChunk a = fake->dram().malloc(64);
  CHECK(a.use_count() == 1);
  MemChunk b = a;
  CHECK(a == b);
  CHECK(b.use_count() == 2);
  a = {};
  CHECK_FALSE(a);
  CHECK(fake->dram().used_ranges() == 1);
  b = {};
  CHECK(fake->dram().used_ranges() == 0);
  CHECK(fake->dram().usage().used_bytes == 0);
  CHECK(fake->dram().usage().peak_bytes == 64);
}

TEST_CASE("MemChunk: a deleter is called once, with the last handle") {
  char bytes[8];
  int deleted = 0;
  {
    MemChunk outer;
    {
      const MemChunk chunk = host().malloc_at(MemPtr(bytes), 8, [&](const MemPtr& begin) {
        CHECK(begin == MemPtr(bytes));
        ++deleted;
      });
      CHECK(chunk.is_placed());
      outer = chunk;
    }
    CHECK(deleted == 0);
  }
  CHECK(deleted == 1);
}

TEST_CASE("MemChunk: free gives back at once, and only once") {
  const auto fake = std::make_shared<FakeDevice>();
  MemChunk chunk = fake->dram().malloc(64);
  const MemChunk other = chunk;
  chunk.free();
  CHECK(chunk.is_freed());
  CHECK(other.is_freed());
  CHECK(fake->dram().used_ranges() == 0);
  expect_error(Errc::call_order, [&] { chunk.free(); });
  char byte = 0;
  expect_error(Errc::stale_handle, [&] { other.read(&byte, 0, 1); });
  expect_error(Errc::stale_handle, [&] { other.write(&byte, 0, 1); });
  expect_error(Errc::stale_handle, [&] { fake->dram().malloc(64).copy_from(other); });
}

TEST_CASE("MemChunk: without auto_free the memory stays, and the region finds it again") {
  const auto fake = std::make_shared<FakeDevice>();
  const MemPtr begin = fake->dram().malloc(64, false).begin();
  CHECK(fake->dram().used_ranges() == 1);
  CHECK(fake->dram().usage().used_bytes == 64);

  std::optional<MemChunk> again = fake->dram().chunk(begin, 64);
  REQUIRE(again);
  CHECK_FALSE(again->auto_free());
  CHECK(fake->dram().all_chunks().size() == 1);
  CHECK(fake->dram().all_chunks()[0] == *again);
  again->free();
  CHECK(fake->dram().used_ranges() == 0);
  CHECK_FALSE(fake->dram().chunk(begin, 64));
}

TEST_CASE("MemChunk: what a deleter throws") {
  std::string logged;
  LogSink previous = set_log_sink([&](LogLevel, std::string_view text) { logged = text; });
  char bytes[8];
  const auto deleter = [](const MemPtr&) { throw std::runtime_error("deleter failed"); };
  MemChunk freed = host().malloc_at(MemPtr(bytes), 8, deleter);
  CHECK_THROWS_WITH(freed.free(), "deleter failed");
  CHECK(logged.empty());
  host().malloc_at(MemPtr(bytes), 8, deleter);  // its handle ends here
  CHECK(logged == "deleter failed");
  set_log_sink(std::move(previous));
}

TEST_CASE("MemChunk: no chunk") {
  const MemChunk none;
  CHECK_FALSE(none);
  CHECK(none.use_count() == 0);
  CHECK_FALSE(none.is_on(host()));
  expect_error(Errc::call_order, [&] { none.begin(); });
  expect_error(Errc::call_order, [&] { MemChunk().free(); });
}

TEST_CASE("MemRegion: requests that cannot be met") {
  const auto fake = std::make_shared<FakeDevice>();
  const auto all = ~std::uint64_t{0};
  for (MemRegion* region : {&host(), static_cast<MemRegion*>(&fake->dram())}) {
    INFO(region->name());
    const Errc none = region->is_host() ? Errc::out_of_memory : Errc::out_of_device_memory;
    expect_error(Errc::bad_argument, [&] { region->malloc(0); });
    expect_error(Errc::bad_argument, [&] { region->malloc(16, true, 0); });
    expect_error(Errc::bad_argument, [&] { region->malloc(16, true, 3); });
    expect_error(none, [&] { region->malloc(all); });
    expect_error(none, [&] { region->malloc(all - 63, true, 64); });
    expect_error(none, [&] { region->malloc(std::uint64_t{1} << 62); });
    expect_error(none, [&] { region->malloc(16, true, std::uint64_t{1} << 63); });
  }
  expect_error(Errc::out_of_memory, [&] { host().malloc(16, true, std::uint64_t{1} << 40); });
}

TEST_CASE("MemRegion: alignment") {
  const auto fake = std::make_shared<FakeDevice>();
  const MemChunk odd = fake->dram().malloc(3, true, 1);
  for (const std::uint64_t alignment : {1u, 2u, 64u, 4096u}) {
    const MemChunk on_host = host().malloc(100, true, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(on_host.begin().cptr()) % alignment == 0);
    const MemChunk on_device = fake->dram().malloc(100, true, alignment);
    CHECK(on_device.begin().addr() % alignment == 0);
  }
}

TEST_CASE("MemRegion: chunks at a given place") {
  const auto fake = std::make_shared<FakeDevice>();
  testing::FakeRegion& dram = fake->dram();
  int deleted = 0;
  {
    const MemChunk placed =
        dram.malloc_at(dram.pointer(0), 4096, [&](const MemPtr&) { ++deleted; });
    CHECK(dram.malloc(64).begin() >= dram.pointer(4096));  // the region keeps off the range
    expect_error(Errc::overlap, [&] { dram.malloc_at(dram.pointer(4095), 1); });
    expect_error(Errc::overlap,
                 [&] { dram.malloc_at(dram.pointer(100), 8, [](const MemPtr&) {}); });
    const MemChunk next = dram.malloc_at(dram.pointer(4096), 64);
    CHECK(dram.used_ranges() == 2);
  }
  CHECK(deleted == 1);
  CHECK(dram.used_ranges() == 0);
  expect_error(Errc::out_of_range,
               [&] { dram.malloc_at(dram.pointer(FakeDevice::region_bytes - 4), 8); });
  expect_error(Errc::bad_argument, [&] { dram.malloc_at(dram.pointer(0), 0); });
  expect_error(Errc::bad_argument, [&] { dram.malloc_at(MemPtr(), 8); });
  expect_error(Errc::bad_argument, [&] { dram.malloc_at(MemPtr(~std::uint64_t{0} - 3), 8); });
}

TEST_CASE("MemRegion: wrapped CPU memory may overlap, and does not count as used") {
  std::array<char, 64> bytes{};
  const std::uint64_t used = host().usage().used_bytes;
  const std::size_t chunks = host().all_chunks().size();
  const ChunkDeleter keep = [](const MemPtr&) {};
  const MemChunk a = host().malloc_at(MemPtr(bytes.data()), 64, keep);
  const MemChunk b = host().malloc_at(MemPtr(bytes.data()), 64, keep);
  const MemChunk c = host().malloc_at(MemPtr(bytes.data() + 16), 16, keep);
  CHECK(host().usage().used_bytes == used);
  CHECK(host().all_chunks().size() == chunks + 3);
  CHECK(host().chunk(c.begin(), 16) == c);
  CHECK_FALSE(host().chunk(c.begin(), 17));
  CHECK(a != b);
}

TEST_CASE("MemRegion: CPU memory without a deleter is borrowed, and must not overlap") {
  std::array<char, 64> bytes{};
  {
    const MemChunk chunk = host().malloc_at(MemPtr(bytes.data() + 8), 16);
    for (const auto& [offset, size] : {std::pair{0, 9}, {8, 16}, {10, 2}, {23, 8}, {0, 64}}) {
      INFO(offset << " " << size);
      expect_error(Errc::overlap, [&, at = offset, n = size] {
        host().malloc_at(MemPtr(bytes.data() + at), static_cast<std::uint64_t>(n));
      });
    }
    const MemChunk before = host().malloc_at(MemPtr(bytes.data()), 8);
    const MemChunk after = host().malloc_at(MemPtr(bytes.data() + 24), 40);
  }
  const MemChunk whole = host().malloc_at(MemPtr(bytes.data()), 64);  // all were given back
}

TEST_CASE("MemRegion: chunks are listed by address") {
  const auto fake = std::make_shared<FakeDevice>();
  std::vector<MemChunk> chunks;
  for (int i = 0; i < 5; ++i) chunks.push_back(fake->dram().malloc(100));
  std::vector<MemChunk> listed = fake->dram().all_chunks();
  REQUIRE(listed.size() == 5);
  for (std::size_t i = 1; i < 5; ++i) CHECK(listed[i - 1].begin() < listed[i].begin());
  listed.clear();
  chunks.erase(chunks.begin() + 2);
  CHECK(fake->dram().all_chunks().size() == 4);
  // The hole is used again.
  CHECK(fake->dram().malloc(100).begin() == fake->dram().pointer(2 * 128));
}

TEST_CASE("MemRegion: a full device says so and stays usable") {
  const auto fake = std::make_shared<FakeDevice>();
  MemChunk all = fake->dram().malloc(FakeDevice::region_bytes);
  expect_error(Errc::out_of_device_memory, [&] { fake->dram().malloc(1); });
  all.free();
  CHECK(fake->dram().malloc(FakeDevice::region_bytes));
}

TEST_CASE("MemRegion: threads allocate, list and free") {
  const auto fake = std::make_shared<FakeDevice>();
  testing::FakeRegion& dram = fake->dram();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&dram] {
      std::vector<MemChunk> mine;
      for (int i = 0; i < 300; ++i) {
        mine.push_back(dram.malloc(64, i % 5 != 0));
        if (i % 3 == 0) {
          if (!mine.front().auto_free()) mine.front().free();
          mine.erase(mine.begin());
        }
        if (i % 50 == 0) static_cast<void>(dram.all_chunks());
      }
      for (MemChunk& chunk : mine) {
        if (!chunk.auto_free()) chunk.free();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(dram.used_ranges() == 0);
  CHECK(dram.usage().used_bytes == 0);
  CHECK(dram.all_chunks().empty());
}

}  // namespace tenon
