#pragma once

// Multiplication of codes and weights by AMX tiles, interleaved with vector work. Included after
// finish_pairs.hpp, by AMX sources only.
#include "../simd/amx_tiles.hpp"
#include "finish_pairs_amx.hpp"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

/// Tiles of `quads` quads along the sum: pixels in 4 and 5, weights in 6 and 7.
TileConfiguration configuration_of(std::int64_t quads) {
  TileConfiguration tiles;
  tiles.row_bytes[4] = tiles.row_bytes[5] = static_cast<std::uint16_t>(4 * quads);
  tiles.rows[6] = tiles.rows[7] = static_cast<std::uint8_t>(quads);
  return tiles;
}

/// Quads per tile, such that a run is a whole number of tiles.
std::int64_t quads_at_once(std::int64_t quads) {
  for (std::int64_t count = 16; count > 1; --count) {
    if (quads % count == 0) return count;
  }
  return 1;
}

/// The sums of a block of pixels and two panels of outputs, and the interleaved work: pixels of the
/// previous block are stored and the next two panels are prefetched, a portion with every step
/// along the sum.
struct Block {
  const std::int8_t* filter;
  std::int64_t panel;
  std::int64_t quads;        ///< of a step
  const std::int8_t* ahead;  ///< panels to prefetch, or null
  const SummedBlock& before;
  std::int64_t pairs;  ///< of its pixels, to be stored at each step
  std::int32_t* sums;  ///< [32][32]
};

/// Steps along the sum that read one range of tap rows.
struct Steps {
  const std::uint8_t* at;
  std::int64_t step;            ///< from a pixel to the next
  const std::int64_t* offsets;  ///< of each step's input behind `at`; null: all 0
  std::int64_t count;
};

/// Prefetches a step's tiles of two panels to L2.
TENON_INLINE void fetch(const std::int8_t* w, std::int64_t panel, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(w + i, 0, 2);
    __builtin_prefetch(w + panel + i, 0, 2);
  }
}

template <bool two_panels, bool two_rows, bool streams, class Store>
[[gnu::noinline]] void multiply(const Block& block, const Steps (&ranges)[3]) {
  const std::int8_t* w = block.filter;
  const std::int8_t* ahead = block.ahead;
  const std::int64_t panel = block.panel, tile_bytes = 64 * block.quads, pairs = block.pairs;
  Store stores(block.before);
  finish_writes();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (const Steps& steps : ranges) {
    const std::int64_t step = steps.step, lower = 16 * step;
    for (std::int64_t i = 0; i < steps.count; ++i) {
      const std::uint8_t* x = steps.at + (steps.offsets == nullptr ? 0 : steps.offsets[i]);
      _tile_loadd(4, x, step);
      if constexpr (streams) {
        _tile_stream_loadd(6, w, 64);
      } else {
        _tile_loadd(6, w, 64);
      }
      _tile_dpbusd(0, 4, 6);
      if constexpr (two_panels) {
        if constexpr (streams) {
          _tile_stream_loadd(7, w + panel, 64);
        } else {
          _tile_loadd(7, w + panel, 64);
        }
        _tile_dpbusd(1, 4, 7);
      }
      if constexpr (two_rows) {
        _tile_loadd(5, x + lower, step);
        _tile_dpbusd(2, 5, 6);
        if constexpr (two_panels) _tile_dpbusd(3, 5, 7);
      }
      stores.store(pairs);
      w += tile_bytes;
      if (ahead != nullptr) {
        fetch(ahead, panel, tile_bytes);
        ahead += tile_bytes;
      }
    }
  }
  // Storing a tile takes its time, too.
  _tile_stored(0, block.sums, 128);
  stores.store(pairs);
  if constexpr (two_panels) _tile_stored(1, block.sums + 16, 128);
  stores.store(pairs);
  if constexpr (two_rows) _tile_stored(2, block.sums + 16 * 32, 128);
  stores.store(pairs);
  if constexpr (two_panels && two_rows) _tile_stored(3, block.sums + 16 * 32 + 16, 128);
  stores.store(16);
  finish_writes();
}

}  // namespace
}  // namespace tenon::cpu
