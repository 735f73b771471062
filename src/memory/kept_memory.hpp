// CPU memory that is freed after a run, or by an op that runs at once, and allocated again by the next
// one.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon {

/// From this size on (its least M_MMAP_THRESHOLD) the C library may map and unmap memory for each
/// allocation, and clearing the pages takes longer than most kernels take to fill them. Where it
/// takes the memory from its heap, a run's results move to and fro between two places there: they
/// then lie in L2 half as often, and `add` of 8 MiB takes 1.2 times as long.
inline constexpr std::uint64_t kept_bytes_from = std::uint64_t{128} << 10;

/// From this size on (its greatest M_MMAP_THRESHOLD, including its own header) it always does, and
/// a run's results use large pages.
inline constexpr std::uint64_t mapped_bytes_from = (std::uint64_t{32} << 20) - 4096;

/// While it exists, freed blocks of these sizes are kept by the CPU's region for the next
/// allocation: one block for each size in the list, duplicates counted. Different objects may be
/// used on different threads.
class KeptMemory {
 public:
  KeptMemory() = default;
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  /// Replaces the list of sizes; only those from kept_bytes_from on count. Kept blocks of other
  /// sizes are freed.
  void keep(std::vector<std::uint64_t> sizes);

 private:
  std::vector<std::uint64_t> sizes_;
};

/// For the region: a block of std::malloc's that was kept, or null; and whether one is kept now. Of
/// blocks below kept_bytes_from the last few are kept without being asked for: aligned blocks take
/// std::malloc ten times as long. The address sanitizer sees every block freed.
void* take_kept_memory(std::uint64_t size) noexcept;
bool keep_memory(void* begin, std::uint64_t size) noexcept;

}  // namespace tenon
