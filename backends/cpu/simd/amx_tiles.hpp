#pragma once

// What all uses of AMX tiles share. Included after a header of simd/, by AMX sources only.
#include <cstdint>

namespace tenon::cpu {
namespace {

/// What _tile_loadconfig reads: sums 0 to 3, the left factor 4 and 5, the right one 6 and 7; all 16
/// rows of 64 bytes unless a kernel changes that.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

// GCC's tile intrinsics do not tell the compiler that they read memory: what was written there must
// be made to happen before them.
TENON_INLINE void finish_writes() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace tenon::cpu
