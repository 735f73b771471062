// Integer convolutions by AMX tiles: 32 pixels by 32 outputs, whose sums stay in tile registers for
// all of the sum. Panels of 16 outputs are tiles of the filter as they lie.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../../matmul/simd_avx512.hpp"
#include "simd.hpp"
#include "finish.hpp"
#include "kernels.hpp"
// clang-format on

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu::amx {
namespace {

constexpr std::int64_t block_pixels = 32;

// Tile registers: sums 0 to 3, pixels 4 and 5, weights 6 and 7.
struct alignas(64) Configuration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(Configuration) == 64);

/// Tiles of `quads` quads along the sum.
Configuration configuration_of(std::int64_t quads) {
  Configuration tiles;
  for (int i = 0; i < 8; ++i) {
    tiles.row_bytes[i] = i == 4 || i == 5 ? static_cast<std::uint16_t>(4 * quads) : 64;
    tiles.rows[i] = i >= 6 ? static_cast<std::uint8_t>(quads) : 16;
  }
  return tiles;
}

/// How many quads a tile takes, so that a run is a whole number of tiles.
std::int64_t quads_at_once(std::int64_t quads) {
  for (std::int64_t count = 16; count > 1; --count) {
    if (quads % count == 0) return count;
  }
  return 1;
}

// GCC's tile intrinsics do not tell the compiler that they read memory.
TENON_INLINE void finish_writes() { asm volatile("" ::: "memory"); }

/// Where 32 pixels are read: row p of the tiles' begins p * step behind `at`.
struct Pixels {
  const std::uint8_t* at;
  std::int64_t step;
};

/// Has two tiles of the filter brought near, into a core's own cache.
TENON_INLINE void fetch(const std::int8_t* w, std::int64_t panel, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(w + i, 0, 2);
    __builtin_prefetch(w + panel + i, 0, 2);
  }
}

/// sums[32][32] = pixels times two panels, over `tiles` tiles of `quads` quads. `ahead`: two panels
/// to be fetched meanwhile, or null.
template <bool two_panels, bool two_rows>
TENON_INLINE void multiply(const Pixels& x, const std::int8_t* w, std::int64_t panel,
                           std::int64_t tiles, std::int64_t quads, const std::int8_t* ahead,
                           std::int32_t* sums) {
  finish_writes();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::uint8_t* upper = x.at;
  const std::uint8_t* lower = x.at + 16 * x.step;
  for (std::int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(4, upper, x.step);
    _tile_loadd(6, w, 64);
    _tile_dpbusd(0, 4, 6);
    if constexpr (two_panels) {
      _tile_loadd(7, w + panel, 64);
      _tile_dpbusd(1, 4, 7);
    }
    if constexpr (two_rows) {
      _tile_loadd(5, lower, x.step);
      _tile_dpbusd(2, 5, 6);
      if constexpr (two_panels) _tile_dpbusd(3, 5, 7);
    }
    upper += 4 * quads;
    lower += 4 * quads;
    w += 64 * quads;
    if (ahead != nullptr) {
      fetch(ahead, panel, 64 * quads);
      ahead += 64 * quads;
    }
  }
  _tile_stored(0, sums, 128);
  if constexpr (two_panels) _tile_stored(1, sums + 16, 128);
  if constexpr (two_rows) _tile_stored(2, sums + 16 * 32, 128);
  if constexpr (two_panels && two_rows) _tile_stored(3, sums + 16 * 32 + 16, 128);
}

TENON_INLINE void copy_codes(std::uint8_t* to, const std::uint8_t* from, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
  if (i == count) return;
  const __mmask64 mask = (std::uint64_t{1} << (count - i)) - 1;
  _mm512_mask_storeu_epi8(to + i, mask, _mm512_maskz_loadu_epi8(mask, from + i));
}

/// All that one output pixel sees, run after run.
void gather(const Int8ProductJob& job, std::int64_t row, std::int64_t column, std::uint8_t* to) {
  const WindowAxis& columns = job.columns;
  const std::int64_t left = column * columns.stride - columns.before;
  const std::int64_t bytes = job.quads * 4;
  for (std::int64_t r = 0; r < job.rows.taps; ++r) {
    const std::int64_t i = row * job.rows.stride + r * job.rows.dilation - job.rows.before;
    const bool row_inside = i >= 0 && i < job.rows.inputs;
    for (std::int64_t s = 0; s < job.runs; ++s, to += bytes) {
      const std::int64_t j = left + s * columns.dilation;
      const bool is_inside = row_inside && j >= 0 && j < columns.inputs;
      copy_codes(to, is_inside ? job.x.at + i * job.x.row + j * job.x.column : job.outside, bytes);
    }
  }
}

class Product {
 public:
  Product(const Int8ProductJob& job, const Part& part)
      : job_(job),
        part_(part),
        width_(part.last_column - part.first_column),
        quads_(quads_at_once(job.quads)),
        bytes_(job.rows.taps * job.runs * job.quads * 4),
        tiles_(bytes_ / (4 * quads_)) {}

  void run(std::int64_t first_channel, std::int64_t last_channel) const {
    const std::int64_t pixels = (part_.last_row - part_.first_row) * width_;
    for (std::int64_t p = 0; p < pixels; p += block_pixels) {
      const std::int64_t count = pixels - p < block_pixels ? pixels - p : block_pixels;
      const Pixels x = pixels_of(p, count);
      for (std::int64_t c = first_channel; c < last_channel; c += 32) {
        alignas(64) std::int32_t sums[block_pixels * 32];
        const std::int8_t* w = job_.filter + c / 16 * job_.panel;
        const bool two_panels = last_channel - c > 16;
        // The first pixels meet a filter that no cache of the core's own holds.
        const bool is_first = p == 0 && c + 64 <= last_channel;
        const std::int8_t* ahead = is_first ? w + 2 * job_.panel : nullptr;
        if (count > 16) {
          two_panels ? multiply<true, true>(x, w, job_.panel, tiles_, quads_, ahead, sums)
                     : multiply<false, true>(x, w, job_.panel, tiles_, quads_, ahead, sums);
        } else {
          two_panels ? multiply<true, false>(x, w, job_.panel, tiles_, quads_, ahead, sums)
                     : multiply<false, false>(x, w, job_.panel, tiles_, quads_, ahead, sums);
        }
        finish_writes();
        store(p, count, c, sums);
      }
    }
  }

  std::int64_t quads() const { return quads_; }

 private:
  /// In place where a tile's rows lie evenly and apart in the cache; else gathered.
  Pixels pixels_of(std::int64_t p, std::int64_t count) const {
    const std::int64_t step = job_.columns.stride * job_.x.column;
    const std::int64_t row = part_.first_row + p / width_, column = part_.first_column + p % width_;
    const bool is_point = job_.rows.taps == 1 && job_.columns.taps == 1 && job_.columns.before == 0;
    if (is_point && count == block_pixels && p % width_ + count <= width_ && step % 1024 != 0) {
      return {job_.x.at + (row * job_.rows.stride - job_.rows.before) * job_.x.row + column * step,
              step};
    }
    // Rows of a tile that fall into the same lines of the level-one cache would drive each other
    // out.
    const std::int64_t padded = bytes_ + (bytes_ % 512 == 0 ? 64 : 0);
    for (std::int64_t i = 0; i < count; ++i) {
      gather(job_, part_.first_row + (p + i) / width_, part_.first_column + (p + i) % width_,
             job_.patches + i * padded);
    }
    return {job_.patches, padded};
  }

  /// Stretches of pixels that share a row.
  void store(std::int64_t p, std::int64_t count, std::int64_t channel,
             const std::int32_t* sums) const {
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t column = (p + i) % width_;
      const std::int64_t stretch = width_ - column < count - i ? width_ - column : count - i;
      store_sums(job_.finish, part_.first_row + (p + i) / width_, part_.first_column + column,
                 channel, sums + i * 32, stretch, 32, job_.outputs - channel);
      i += stretch;
    }
  }

  const Int8ProductJob& job_;
  const Part& part_;
  std::int64_t width_, quads_, bytes_, tiles_;
};

}  // namespace

void int8_product(const Int8ProductJob& job, const Part& part) noexcept {
  if (part.first_column >= part.last_column) return;
  // Of few quads a tile would be mostly empty.
  if (quads_at_once(job.quads) < 4) return avx512_vnni::int8.product(job, part);
  const Product product(job, part);
  const Configuration tiles = configuration_of(product.quads());
  _tile_loadconfig(&tiles);
  // Bands of channels whose filters stay in a core's own cache.
  constexpr std::int64_t cached_bytes = 3 << 18;
  const std::int64_t panels = cached_bytes / (job.panel > 0 ? job.panel : 1);
  const std::int64_t step = panels / 2 * 32 > 0 ? panels / 2 * 32 : 32;
  for (std::int64_t c = part.first_channel; c < part.last_channel; c += step) {
    product.run(c, c + step < part.last_channel ? c + step : part.last_channel);
  }
  _tile_release();
}

}  // namespace tenon::cpu::amx
