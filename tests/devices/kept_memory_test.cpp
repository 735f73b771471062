#include "memory/kept_memory.hpp"

#include "host_region.hpp"
#include "support/catch_chunk.hpp"

#include <tenon/device.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

constexpr std::uint64_t size = kept_bytes_from;

std::byte* begin_of(const MemChunk& chunk) { return chunk.begin().cptr(); }

}  // namespace

TEST_CASE("KeptMemory: what comes back is given out again, as any chunk is") {
  const auto used = host().usage().used_bytes;
  KeptMemory memory;
  memory.keep({size});
  MemChunk chunk = host().malloc(size);
  std::byte* const place = begin_of(chunk);
  chunk = {};
  CHECK(host().usage().used_bytes == used);
  CHECK_FALSE(host().is_allocated(MemPtr(place), 1));
  // Nobody else gets the place meanwhile.
  const MemChunk larger = host().malloc(size + 64), aligned = host().malloc(size, true, 4096);
  CHECK(begin_of(larger) != place);
  CHECK(begin_of(aligned) != place);
  chunk = host().malloc(size);
  CHECK(begin_of(chunk) == place);
  CHECK(host().is_allocated(chunk.begin(), size));
}

TEST_CASE("KeptMemory: as many blocks of a size as are wanted, by all who want some") {
  const std::uint64_t other = size + 4096;
  auto first = std::make_unique<KeptMemory>();
  KeptMemory second;
  first->keep({size, other});
  second.keep({size});
  std::vector<MemChunk> chunks;
  for (int i = 0; i < 3; ++i) chunks.push_back(host().malloc(size));
  std::byte* const a = begin_of(chunks[0]);
  std::byte* const b = begin_of(chunks[1]);
  chunks.clear();
  CHECK(take_kept_memory(other) == nullptr);
  void* const places[] = {take_kept_memory(size), take_kept_memory(size), take_kept_memory(size)};
  CHECK(((places[0] == a && places[1] == b) || (places[0] == b && places[1] == a)));
  CHECK(places[2] == nullptr);
  CHECK(keep_memory(a, size));
  CHECK(keep_memory(b, size));

  first.reset();  // and with it one block
  void* const left = take_kept_memory(size);
  REQUIRE(left != nullptr);
  CHECK(take_kept_memory(size) == nullptr);
  CHECK_FALSE(keep_memory(left, other));
  CHECK(keep_memory(left, size));
  second.keep({});
  CHECK(take_kept_memory(size) == nullptr);
}

TEST_CASE("KeptMemory: the last small blocks are kept, each for its size") {
  void* const block = std::malloc(64);
  if (!keep_memory(block, 64)) {
    std::free(block);
    WARN("not under the address sanitizer");
    return;
  }
  constexpr std::uint64_t small = 4096 + 64;
  std::byte* const place = begin_of(host().malloc(small));
  CHECK(begin_of(host().malloc(small)) == place);
  std::vector<MemChunk> chunks;
  chunks.push_back(host().malloc(small + 64));
  chunks.push_back(host().malloc(small, true, 4096));
  CHECK(begin_of(chunks[0]) != place);
  CHECK(reinterpret_cast<std::uintptr_t>(begin_of(chunks[1])) % 4096 == 0);
  for (int i = 0; i < 100; ++i) chunks.push_back(host().malloc(small));
  chunks.clear();
  std::vector<void*> kept;
  while (void* const one = take_kept_memory(small)) kept.push_back(one);
  CHECK(kept.size() >= 2);
  CHECK(kept.size() <= 16);
  for (void* const one : kept) std::free(one);
}

TEST_CASE("KeptMemory: on many threads") {
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([i] {
      KeptMemory memory;
      for (int n = 0; n < 100; ++n) {
        if (n % 10 == i)
          memory.keep(std::vector<std::uint64_t>(static_cast<unsigned>(n % 4), size));
        const MemChunk mine = host().malloc(size);
        begin_of(mine)[n] = std::byte{1};
        begin_of(mine)[size - 1] = std::byte{2};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(take_kept_memory(size) == nullptr);  // nobody wants any now
}

}  // namespace tenon
