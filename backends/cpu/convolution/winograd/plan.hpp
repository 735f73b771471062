#pragma once

#include "../../cache_sizes.hpp"
#include "../../thread_pool.hpp"
#include "../convolution.hpp"
#include "winograd.hpp"

#include <algorithm>
#include <cstdint>

namespace tenon::cpu::winograd {

/// Tiles of a batch from which on it is faster: with fewer, reading the filter dominates, which is
/// four times as large when transformed; more where it is transformed in every run.
inline constexpr std::int64_t min_tiles = 16, min_tiles_of_run = 32;

/// Sizes of a convolution, or of its gradient by the filter.
struct Sizes {
  static Sizes of(const Convolution& conv) noexcept;

  /// Whether Winograd's filtering applies.
  bool can_run() const noexcept;
  /// Whether it is faster than the direct kernel, from `min_count` tiles of a batch on. Depends on
  /// sizes alone, never on threads.
  bool is_profitable(std::int64_t min_count) const noexcept;

  std::int64_t images, channels, outputs, groups;
  WindowAxis rows, columns;
};

/// The 4 by 4 tiles of a batch, counted through the images, row by row.
class Tiles {
 public:
  explicit Tiles(const Sizes& sizes) noexcept;

  std::int64_t count() const noexcept { return count_; }
  /// Tiles of one row from tile `first` on, not beyond `last`.
  struct Run {
    std::int64_t image;
    TileRun tiles;
  };
  Run run(std::int64_t first, std::int64_t last) const noexcept;
  /// Calls function(run, its first tile's distance from `range.begin`) for the tiles of a range.
  template <class Function>
  void for_runs(const Range& range, const Function& function) const {
    for (std::int64_t first = range.begin; first < range.end;) {
      const Run run = this->run(first, range.end);
      function(run, first - range.begin);
      first += run.tiles.count;
    }
  }

 private:
  std::int64_t rows_, columns_;  // of tiles in an image
  std::int64_t count_;
};

/// The division of a convolution's work: items are blocks of tiles by parts of the output's
/// channels.
class Plan {
 public:
  static constexpr std::int64_t band = 32;  ///< channels of the output at a time

  Plan(const Convolution& conv, std::int64_t threads, const CacheSizes& caches);

  std::int64_t items() const noexcept { return blocks_ * parts_; }
  Range tiles(std::int64_t item) const noexcept {
    return split(tiles_.count(), static_cast<int>(item % blocks_), static_cast<int>(blocks_));
  }
  Range bands(std::int64_t item) const noexcept {
    return split(bands_, static_cast<int>(item / blocks_), static_cast<int>(parts_));
  }

  const Tiles& all() const noexcept { return tiles_; }

  /// A thread's memory while it works on an item: steps from one of a tile's numbers to the next,
  /// in elements, of the inputs and of a band of the outputs; inputs lie first.
  std::int64_t channels() const noexcept { return channels_; }  ///< filled up to 16
  std::int64_t input_number() const noexcept { return block_ * channels_; }
  std::int64_t output_number() const noexcept { return block_ * band; }
  std::int64_t working_bytes() const noexcept {
    return numbers * (input_number() + output_number()) * 4;
  }

 private:
  Tiles tiles_;
  std::int64_t bands_, channels_;
  std::int64_t blocks_ = 1, parts_ = 1;
  std::int64_t block_ = 0;  // tiles in the largest
};

}  // namespace tenon::cpu::winograd
