#include "cache_sizes.hpp"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tenon::cpu {
namespace {

constexpr CacheSizes usual{32 << 10, 512 << 10};

#if defined(__x86_64__)

// Leaf 4 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID) and AMD's
// 0x8000001D have one layout: a cache per subleaf until the type is 0.
CacheSizes read_leaf(unsigned leaf) {
  CacheSizes sizes{};
  for (unsigned subleaf = 0; subleaf < 16; ++subleaf) {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx) == 0) break;
    constexpr unsigned none = 0, instructions = 2;
    const unsigned type = eax & 31u, level = eax >> 5 & 7u;
    if (type == none) break;
    if (type == instructions) continue;
    const std::int64_t line = (ebx & 0xFFFu) + 1, partitions = (ebx >> 12 & 0x3FFu) + 1;
    const std::int64_t ways = (ebx >> 22) + 1, sets = std::int64_t{ecx} + 1;
    const std::int64_t bytes = line * partitions * ways * sets;
    if (level == 1) sizes.level1 = bytes;
    if (level == 2) sizes.level2 = bytes;
  }
  return sizes;
}

bool plausible(const CacheSizes& sizes) {
  return sizes.level1 >= 8 << 10 && sizes.level1 <= 1 << 20 && sizes.level2 >= sizes.level1 &&
         sizes.level2 <= 64 << 20;
}

CacheSizes read() {
  if (const CacheSizes sizes = read_leaf(4); plausible(sizes)) return sizes;
  constexpr unsigned extended_topology = 1u << 22;  // leaf 0x8000001D exists
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) != 0 && (ecx & extended_topology) != 0) {
    if (const CacheSizes sizes = read_leaf(0x8000001Du); plausible(sizes)) return sizes;
  }
  return usual;
}

#else

CacheSizes read() { return usual; }

#endif

}  // namespace

// No static local: its lock would stay locked in the child of a fork() in the middle.
CacheSizes cache_sizes() noexcept {
  static constinit std::atomic<std::int64_t> level1{0}, level2{0};  // 0: not known yet
  CacheSizes sizes{level1.load(std::memory_order_acquire), level2.load(std::memory_order_relaxed)};
  if (sizes.level1 != 0) return sizes;
  sizes = read();
  level2.store(sizes.level2, std::memory_order_relaxed);
  level1.store(sizes.level1, std::memory_order_release);
  return sizes;
}

}  // namespace tenon::cpu
