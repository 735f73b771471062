// Linear layers on bf16 rows by AMX tiles: y = x W^T, bf16 factors, f32 sums.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "panel_body.hpp"
#include "tile_kernels.hpp"
#include "tiles_amx.hpp"
#include "tile_weights_amx.hpp"
#include "../integer_math.hpp"
// clang-format on

namespace tenon::cpu::amx {
namespace {

/// What a call of linear_tiles needs beside its job.
struct TileScratch {
  alignas(64) std::uint16_t weights[2 * max_panel_elements];
  alignas(64) float sums[max_tile_rows * 32];  ///< so far, of every row by two panels
  alignas(64) float done[2][32 * 32];          ///< of 32 rows, to be written to y
};

/// 32 numbers as a line of a tile.
TENON_INLINE __m512i rounded_line(const float* x) {
  return rounded(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
}

/// Prefetches a range of bytes, evenly over the steps of a loop.
class Prefetcher {
 public:
  /// [begin, end), within `steps` steps.
  Prefetcher(const std::byte* begin, const std::byte* end, std::int64_t steps)
      : next_(begin), end_(end), at_once_(64 * ceil_div(end - begin, 64 * steps)) {}

  TENON_INLINE void operator()() {
    if (next_ >= end_) return;
    for (const std::byte* stop = next_ + at_once_; next_ < stop; next_ += 64) {
      __builtin_prefetch(next_, 0, 2);
    }
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
  std::int64_t at_once_;
};

/// The same for the lines of y that two panels of each row are written to.
class RowPrefetcher {
 public:
  RowPrefetcher(float* y, std::int64_t stride, std::int64_t rows, std::int64_t steps)
      : next_(y), stride_(stride), left_(rows), at_once_(ceil_div(rows, steps)) {}

  TENON_INLINE void operator()() {
    for (std::int64_t i = 0; i < at_once_ && left_ > 0; ++i, --left_, next_ += stride_) {
      __builtin_prefetch(next_, 1);
      __builtin_prefetch(next_ + 16, 1);
    }
  }

 private:
  float* next_;
  std::int64_t stride_, left_, at_once_;
};

/// Two panels, or the last one.
struct PanelPair {
  std::int64_t first;
  bool two, whole;  ///< whole: 32 columns
};

/// Multiplies rows by pairs of panels and writes the results.
class TileProducts {
 public:
  TileProducts(const TileJob& job, TileScratch& scratch)
      : job_(job), without_bias_(job), scratch_(scratch) {
    without_bias_.bias = nullptr;
  }

  /// Up to 32 rows by elements [first, last) of k; `sums` hold the sums of earlier elements and,
  /// before the end of k, receive the new ones.
  template <class EachStep>
  void multiply(std::int64_t row, std::int64_t count, const PanelPair& panels, std::int64_t first,
                std::int64_t last, const Tiles& w, float* sums, const EachStep& each_step) {
    const std::int64_t row_block = job_.inputs / 32 * tile_elements;
    const std::int64_t steps = (last - first) / 32;
    const Tiles x{job_.x + row / 16 * row_block + first / 32 * tile_elements, row_block};
    const bool done = last == job_.inputs;
    const bool plain = panels.whole && count % 16 == 0 && job_.residual == nullptr &&
                       job_.activation.run == nullptr && job_.y_tiles == nullptr;
    float* y = job_.y_tiles != nullptr ? nullptr : job_.y + row * job_.y_stride + 16 * panels.first;
    SumsPlace place{sums, 32, sums, 32};
    if (first == 0) place.from = nullptr;
    if (first == 0 && panels.whole && job_.bias != nullptr) {
      place.from = job_.bias + 16 * panels.first;
      place.from_stride = 0;
    }
    if (done && plain) {
      place.to = y;
      place.to_stride = job_.y_stride;
    } else if (done) {
      place.to = scratch_.done[turn_];
    }
    RowPrefetcher prefetch_rows(y, job_.y_stride, done && y != nullptr ? count : 0, steps + 1);
    const auto step = [&] {
      each_step();
      prefetch_rows();
    };
    if (count > 16) {
      tile_product<2>(x, w, steps, place, step);
    } else {
      tile_product<1>(x, w, steps, place, step);
    }
    if (!done) return;
    finish();
    if (!plain) {
      waiting_ = {row, count, panels};
      turn_ = 1 - turn_;
    }
  }

  /// Writes pending sums to y, with bias, residual and activation. Sums stay pending until the next
  /// tile is multiplied: vectors that a tile has just stored cannot be loaded before they reach the
  /// cache (no store forwarding).
  void finish() {
    const auto [row, count, panels] = waiting_;
    if (count == 0) return;
    float* sums = scratch_.done[1 - turn_];
    waiting_.count = 0;
    if (job_.y_tiles != nullptr) return finish_tiles(row, count, panels, sums);
    const TileJob& job = panels.whole ? without_bias_ : job_;
    write_rows(job, panels.first, row, count, sums, 32);
    if (panels.two) write_rows(job, panels.first + 1, row, count, sums + 16, 32);
    activate(job, panels.first, panels.two ? 2 : 1, row, count);
  }

 private:
  /// The same where y is tiles: two panels are the width of one.
  void finish_tiles(std::int64_t row, std::int64_t count, const PanelPair& panels, float* sums) {
    const Activation& f = job_.activation;
    if (f.run != nullptr) f.run(f.function, sums, 32, count, 32, f.parameters);
    for (std::int64_t r = 0; r < count; ++r) {
      Simd::store(line_of(job_.y_tiles, job_.outputs / 32, row + r, panels.first / 2),
                  rounded_line(sums + 32 * r));
    }
  }

  struct Waiting {
    std::int64_t row, count;
    PanelPair panels;
  };

  const TileJob& job_;
  TileJob without_bias_;
  TileScratch& scratch_;
  Waiting waiting_{};
  int turn_ = 0;  ///< the next of scratch_.done
};

}  // namespace

void linear_tiles(const TileJob& job, const LinearBlock& block) noexcept {
  TileScratch scratch;
  TileProducts products(job, scratch);
  _tile_loadconfig(&tile_configuration);
  const std::int64_t rows = block.last_row - block.first_row;
  const std::int64_t panels = ceil_div(job.outputs, 16);
  // Without further rows the sums can stay in tiles for all of k.
  const bool is_single = job.dtype == DType::bf16 && rows <= 32;
  const bool stays = is_single || job.inputs <= max_tile_depth;
  const std::int64_t at_once = stays && job.inputs > 0 ? job.inputs : tile_depth;
  for (std::int64_t p = block.first_panel; p < block.last_panel; p += 2) {
    const std::byte* panel = job.panels + static_cast<std::size_t>(p) * job.panel_bytes;
    const bool two = p + 1 < block.last_panel;
    const PanelPair pair{p, two, two && 16 * p + 32 <= job.outputs};
    // The next panels are prefetched meanwhile, also those of the next block, which most likely is
    // this thread's.
    const std::int64_t next = smaller(p + 2, panels), after = smaller(p + 4, panels);
    Prefetcher prefetch(job.panels + static_cast<std::size_t>(next) * job.panel_bytes,
                        job.panels + static_cast<std::size_t>(after) * job.panel_bytes,
                        job.inputs / 32 * ceil_div(rows, 32) + 1);
    for (std::int64_t k = 0; k == 0 || k < job.inputs; k += at_once) {
      const std::int64_t last = smaller(k + at_once, job.inputs);
      // A single panel is multiplied twice; its second result is not read.
      const Tiles w = weight_tiles(job, panel, two, k, last, scratch.weights);
      for (std::int64_t r = 0; r < rows; r += 32) {
        products.multiply(block.first_row + r, smaller(32, rows - r), pair, k, last, w,
                          scratch.sums + r * 32, [&] { prefetch(); });
      }
    }
  }
  products.finish();
  _tile_release();
}

void round_rows(const RoundingJob& job, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t ahead = last - first;  // most likely the next range
  for (std::int64_t r = 0; r < 16; ++r) {
    const float* row = job.x + r * job.stride;
    std::uint16_t* to = job.tiles + first / 32 * tile_elements + r * 32;
    for (std::int64_t k = first; k < last; k += 32, to += tile_elements) {
      __m512i line = _mm512_setzero_si512();
      if (r < job.rows) {
        __builtin_prefetch(row + k + ahead);
        __builtin_prefetch(row + k + ahead + 16);
        line = rounded_line(row + k);
      }
      Simd::store(to, line);
    }
  }
}

void round_row(const float* x, std::int64_t count, std::uint16_t* line) noexcept {
  for (std::int64_t k = 0; k < count; k += 32, line += tile_elements) {
    Simd::store(line, rounded_line(x + k));
  }
}

}  // namespace tenon::cpu::amx
