#pragma once

#include <cstdint>

namespace tenon::cpu {

/// Bytes of the caches that one core of this machine reads data through.
struct CacheSizes {
  std::int64_t level1;
  std::int64_t level2;
};

/// Read once from CPUID's cache parameters; where these are missing or implausible, 32 KiB and 512
/// KiB. Kernels derive block sizes from them; no result depends on them.
CacheSizes cache_sizes() noexcept;

}  // namespace tenon::cpu
