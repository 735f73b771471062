// CPU memory that comes back between two runs and is asked for again.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon {

/// From this size on the C library maps memory afresh each time and unmaps it at once (its greatest
/// M_MMAP_THRESHOLD, its own header included): to clear the pages takes longer than most kernels
/// take to fill them.
inline constexpr std::uint64_t kept_bytes_from = (std::uint64_t{32} << 20) - 4096;

/// As long as it lives, memory of these sizes that is given back to the CPU's region waits there
/// for the next that is asked for: one block for each size, and several for one that stands there
/// several times. Different objects may be used on different threads.
class KeptMemory {
 public:
  KeptMemory() = default;
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  /// Sizes from kept_bytes_from on, in place of those before. What nobody wants any more is freed.
  void keep(std::vector<std::uint64_t> sizes);

 private:
  std::vector<std::uint64_t> sizes_;
};

/// For the region: a block of std::malloc's that was kept, or null; and whether one is kept now.
void* take_kept_memory(std::uint64_t size) noexcept;
bool keep_memory(void* begin, std::uint64_t size) noexcept;

}  // namespace tenon
