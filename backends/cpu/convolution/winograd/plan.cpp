#include "plan.hpp"

#include "../../integer_math.hpp"
#include "../../tasks/image_task.hpp"

namespace tenon::cpu::winograd {
namespace {

/// As many tiles as keep their inputs and a band of their outputs in half of L2, but enough to
/// amortise reading the filter.
std::int64_t max_tiles(std::int64_t channels, const CacheSizes& caches) {
  const std::int64_t tile_bytes = numbers * (channels + Plan::band) * 4;
  return std::clamp<std::int64_t>(caches.level2 / 2 / tile_bytes, 42, 84);
}

}  // namespace

bool can_run(const Convolution& conv) noexcept {
  const auto fits = [](const WindowAxis& axis) {
    return axis.taps == 3 && axis.stride == 1 && axis.dilation == 1;
  };
  return fits(conv.rows) && fits(conv.columns) && conv.filter.groups == 1;
}

bool is_profitable(const Convolution& conv) noexcept {
  // With fewer tiles, reading the filter dominates, which is four times as large when transformed;
  // with fewer channels, the transforms cost as much as the GEMM saves (docs/kernels.md).
  constexpr std::int64_t min_tiles = 16, min_channels = 16;
  const std::int64_t tiles =
      conv.y.shape[0] * ceil_div(conv.rows.outputs, tile) * ceil_div(conv.columns.outputs, tile);
  return conv.filter.channels >= min_channels && conv.filter.outputs >= min_channels &&
         tiles >= min_tiles;
}

Plan::Plan(const Convolution& conv, std::int64_t threads, const CacheSizes& caches)
    : rows_(ceil_div(conv.rows.outputs, tile)),
      columns_(ceil_div(conv.columns.outputs, tile)),
      tiles_(conv.y.shape[0] * rows_ * columns_),
      bands_(ceil_div(conv.filter.outputs, band)),
      channels_(round_up(conv.filter.channels, 16)) {
  const std::int64_t least = ceil_div(tiles_, max_tiles(channels_, caches));
  const std::int64_t filter_bytes = numbers * channels_ * bands_ * band * 4;
  // Divided by tiles, every thread reads the whole filter; divided by channels, every thread
  // transforms the whole image. A thread's share of the filter should stay in its cache or be used
  // for enough tiles each time it is read.
  constexpr std::int64_t enough_tiles = 20;
  const bool by_channels = threads > 1 && bands_ >= 2 * threads && filter_bytes > caches.level2 &&
                           tiles_ < enough_tiles * threads;
  if (by_channels) {
    parts_ = threads;
    blocks_ = least;
  } else {
    blocks_ = std::min(round_up(least, threads), tiles_);
  }
  blocks_ = std::max<std::int64_t>(blocks_, 1);
  block_ = ceil_div(tiles_, blocks_);
}

Plan::Run Plan::run(std::int64_t first, std::int64_t last) const noexcept {
  const std::int64_t column = first % columns_, line = first / columns_;
  return {line / rows_,
          {line % rows_ * tile, column * tile, std::min(columns_ - column, last - first)}};
}

}  // namespace tenon::cpu::winograd
