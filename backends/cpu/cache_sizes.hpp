#pragma once

#include <cstdint>

namespace tenon::cpu {

/// Bytes of the caches that one core of this machine reads data through.
struct CacheSizes {
  std::int64_t level1;
  std::int64_t level2;
};

/// Asked of the CPU once (CPUID's cache parameters); where it does not say, or says something no
/// machine has, 32 KiB and 512 KiB. Kernels size their blocks by these; no result depends on them.
CacheSizes cache_sizes() noexcept;

}  // namespace tenon::cpu
