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

Sizes Sizes::of(const Convolution& conv) noexcept {
  return {conv.y.shape[0], conv.filter.channels, conv.filter.outputs, conv.filter.groups,
          conv.rows,       conv.columns};
}

bool Sizes::can_run() const noexcept {
  const auto fits = [](const WindowAxis& axis) {
    return axis.taps == 3 && axis.stride == 1 && axis.dilation == 1;
  };
  return fits(rows) && fits(columns) && groups == 1;
}

bool Sizes::is_profitable(std::int64_t min_count) const noexcept {
  // With fewer channels, the transforms cost as much as the GEMM saves (docs/kernels.md). A tile
  // takes 36 multiplications, however few of its outputs are in the image, of which each takes 9.
  constexpr std::int64_t min_channels = 16, min_outputs = 6;
  const std::int64_t tiles = Tiles(*this).count();
  return channels >= min_channels && outputs >= min_channels && tiles >= min_count &&
         images * rows.outputs * columns.outputs >= min_outputs * tiles;
}

Tiles::Tiles(const Sizes& sizes) noexcept
    : rows_(ceil_div(sizes.rows.outputs, tile)),
      columns_(ceil_div(sizes.columns.outputs, tile)),
      count_(sizes.images * rows_ * columns_) {}

Tiles::Run Tiles::run(std::int64_t first, std::int64_t last) const noexcept {
  const std::int64_t column = first % columns_, line = first / columns_;
  return {line / rows_,
          {line % rows_ * tile, column * tile, std::min(columns_ - column, last - first)}};
}

Plan::Plan(const Convolution& conv, std::int64_t threads, const CacheSizes& caches)
    : tiles_(Sizes::of(conv)),
      bands_(ceil_div(conv.filter.outputs, band)),
      channels_(round_up(conv.filter.channels, 16)) {
  const std::int64_t least = ceil_div(tiles_.count(), max_tiles(channels_, caches));
  const std::int64_t filter_bytes = numbers * channels_ * bands_ * band * 4;
  // Divided by tiles, every thread reads the whole filter; divided by channels, every thread
  // transforms the whole image. A thread's share of the filter should stay in its cache or be used
  // for enough tiles each time it is read.
  constexpr std::int64_t enough_tiles = 20;
  const bool by_channels = threads > 1 && bands_ >= 2 * threads && filter_bytes > caches.level2 &&
                           tiles_.count() < enough_tiles * threads;
  if (by_channels) {
    parts_ = threads;
    blocks_ = least;
  } else {
    blocks_ = std::min(round_up(least, threads), tiles_.count());
  }
  blocks_ = std::max<std::int64_t>(blocks_, 1);
  block_ = ceil_div(tiles_.count(), blocks_);
}

}  // namespace tenon::cpu::winograd
