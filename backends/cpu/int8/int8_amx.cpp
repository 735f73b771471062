// Integer convolutions by AMX tiles: 32 pixels by 32 outputs, whose sums stay in tile registers.
// Panels of 16 outputs are stored as tiles of the filter; pixels are read in place or from a padded
// copy.

// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"

#include "../built_kernels.hpp"
#include "int8_simd.hpp"
#include "finish.hpp"
#include "int8_kernels.hpp"
#include "finish_pairs_amx.hpp"
#include "tile_multiply_amx.hpp"
#include "tile_pixels_amx.hpp"
#include "../integer_math.hpp"
// clang-format on

#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu::amx {
namespace {

constexpr std::int64_t offset_bytes = 40960;  // of a band: offsets of the steps along the sum

/// Outputs whose pixels are one line, a step apart: a row, or consecutive rows with some unused
/// pixels between them.
struct Line {
  const std::uint8_t* at;
  std::int64_t row;  ///< its first output's
  Taps taps;         ///< tap rows inside the image
};

class Product {
 public:
  /// `part` may have fewer rows and columns than the kernel was called for.
  /// `offsets`: memory for `steps_of` numbers.
  Product(const Int8ProductJob& job, const Part& part, const TilePixels& x, std::int64_t* offsets)
      : job_(job),
        part_(part),
        x_(x),
        columns_(part.last_column - part.first_column),
        quads_(quads_at_once(job.quads)),
        steps_(steps_of(job)),
        row_steps_(steps_ / job.rows.taps),
        pairs_((16 + steps_ + 2) / (steps_ + 3)),
        offsets_(offsets) {
    find_lines();
    for (std::int64_t r = 0; r < job.rows.taps; ++r) {
      for (std::int64_t s = 0; s < job.runs; ++s) {
        for (std::int64_t q = 0; q < job.quads; q += quads_) {
          *offsets++ = x.rows[r] + x.columns[s] + q * 4;
        }
      }
    }
  }
  static std::int64_t steps_of(const Int8ProductJob& job) {
    return job.rows.taps * job.runs * (job.quads / quads_at_once(job.quads));
  }

  /// The ratio of pixels that tiles compute to pixels that are needed.
  double waste() const {
    return static_cast<double>(lines_ * tiles(length_) * 16) /
           static_cast<double>((part_.last_row - part_.first_row) * columns_);
  }
  /// Whether tiles do not read behind a line.
  bool has_whole_tiles() const { return length_ >= 16; }

  /// All lines for channels [first, last).
  void run(std::int64_t first, std::int64_t last) {
    is_first_ = true;
    scaling_.prepare(job_.finish, first, last, job_.outputs);
    stores_pairs_ = stores_dense_codes(job_.finish) && scaling_.is_tame();
    for (std::int64_t i = 0; i < lines_; ++i) {
      const std::int64_t row = part_.first_row + i;
      run_line({x_.at + i * x_.row, row, taps_of(row)}, first, last);
    }
    PairStore(before_).store(16);
    before_.pixels = nullptr;
  }

 private:
  static std::int64_t tiles(std::int64_t pixels) { return ceil_div(pixels, 16); }

  /// Consecutive rows are one line where that saves tiles.
  void find_lines() {
    const std::int64_t rows = part_.last_row - part_.first_row, width = x_.line_width();
    const bool is_inside =
        taps_of(part_.first_row).begin == 0 && taps_of(part_.last_row - 1).end == job_.rows.taps;
    const std::int64_t whole = (rows - 1) * width + columns_;
    const bool is_one = is_inside && width >= columns_ && tiles(whole) <= rows * tiles(columns_);
    lines_ = is_one ? 1 : rows;
    length_ = is_one ? whole : columns_;
    width_ = is_one ? width : columns_;
    const auto follow = [&](const auto& image) { return image.row == columns_ * image.column; };
    rows_follow_ = width_ == columns_ && follow(job_.finish.codes) &&
                   (job_.finish.residual_codes.at == nullptr || follow(job_.finish.residual_codes));
  }

  void run_line(const Line& line, std::int64_t first, std::int64_t last) {
    for (std::int64_t p = 0; p < length_;) {
      // No tile reads behind the line: the last one overlaps the one before.
      const std::int64_t left = length_ - p;
      const std::int64_t size = left > 16 && length_ >= 32 ? 32 : 16;
      const std::int64_t begin = left >= size ? p : length_ - size > 0 ? length_ - size : 0;
      const std::int64_t end = begin + size < length_ ? begin + size : length_;
      BlockPixels& pixels = pixels_[turn_pixels_ ^= 1];
      place(line, begin, p, end, pixels);
      p = end;
      for (std::int64_t c = first; c < last; c += 32) run_block(line, begin, size, c, last, pixels);
      is_first_ = false;
    }
  }

  /// The pixels [first, last) of a block that begins at `begin`.
  void place(const Line& line, std::int64_t begin, std::int64_t first, std::int64_t last,
             BlockPixels& pixels) const {
    const auto place = [&](const auto& image, std::int64_t row, std::int64_t column) {
      return row * image.row + column * image.column;
    };
    const Int8Finish& finish = job_.finish;
    pixels.count = 0;
    pixels.is_even =
        (last - first) % 2 == 0 && (rows_follow_ || first % width_ + last - first <= columns_);
    std::int64_t row = line.row + first / width_, column = first % width_;
    for (std::int64_t p = first; p < last;) {
      const std::int64_t rest = width_ - column, end = p + rest < last ? p + rest : last;
      const std::int64_t at = part_.first_column + column;
      std::int64_t code = place(finish.codes, row, at);
      std::int64_t residual = place(finish.residual_codes, row, at);
      const std::int64_t needed = columns_ - column;
      for (std::int64_t i = 0; i < end - p && i < needed; ++i) {
        pixels.at[pixels.count++] = {(p + i - begin) * 32, code, residual, row, at + i};
        if (stores_pairs_) {
          __builtin_prefetch(finish.codes.at + code, 1, 3);
          if (finish.residual_codes.at != nullptr) {
            __builtin_prefetch(finish.residual_codes.at + residual, 0, 3);
          }
        }
        code += finish.codes.column;
        residual += finish.residual_codes.column;
      }
      p = end;
      column = 0;
      ++row;
    }
  }

  void run_block(const Line& line, std::int64_t begin, std::int64_t size, std::int64_t channel,
                 std::int64_t last_channel, const BlockPixels& pixels) {
    const std::int64_t channels = last_channel - channel;
    const std::int8_t* filter = job_.filter + channel / 16 * job_.panel;
    std::int32_t* sums = sums_[turn_sums_ ^= 1];
    // For the first pixels the filter is not in L2 yet: its next panels are prefetched.
    const bool has_next = is_first_ && channels >= 64;
    const Block block{filter,  job_.panel, quads_, has_next ? filter + 2 * job_.panel : nullptr,
                      before_, pairs_,     sums};
    const std::uint8_t* at = line.at + begin * x_.step;
    const Steps steps[] = {
        {job_.outside, 0, nullptr, line.taps.begin * row_steps_},
        {at, x_.step, offsets_ + line.taps.begin * row_steps_,
         (line.taps.end - line.taps.begin) * row_steps_},
        {job_.outside, 0, nullptr, (job_.rows.taps - line.taps.end) * row_steps_}};
    if (size == 32) {
      channels > 16 ? multiply_all<true, true>(block, steps)
                    : multiply_all<false, true>(block, steps);
    } else {
      channels > 16 ? multiply_all<true, false>(block, steps)
                    : multiply_all<false, false>(block, steps);
    }
    if (stores_pairs_ && channels >= 32) {
      before_ = {&job_.finish, &scaling_, &pixels, sums, channel};
    } else {
      before_.pixels = nullptr;
      store_block(job_.finish, pixels, sums, channel, job_.outputs);
    }
  }

  template <bool two_panels, bool two_rows>
  void multiply_all(const Block& block, const Steps (&steps)[3]) const {
    if constexpr (two_panels && two_rows) {
      if (before_.pixels != nullptr && before_.pixels->is_even) {
        return (this->*multiply_even_)(block, steps);
      }
    }
    multiply_beside<two_panels, two_rows, PairStore>(block, steps);
  }

  template <bool two_panels, bool two_rows, class Store>
  void multiply_beside(const Block& block, const Steps (&steps)[3]) const {
    // Where pixels fill L1, loads of the filter must not evict them.
    constexpr std::int64_t max_cached = 768;
    steps_* quads_ * 4 > max_cached ? multiply<two_panels, two_rows, true, Store>(block, steps)
                                    : multiply<two_panels, two_rows, false, Store>(block, steps);
  }

  using MultiplyEven = void (Product::*)(const Block&, const Steps (&)[3]) const;
  template <bool has_residual, bool has_limits>
  static constexpr MultiplyEven even =
      &Product::multiply_beside<true, true, EvenStore<has_residual, has_limits>>;

  static MultiplyEven choose_even(const Int8Finish& finish) {
    const bool has_limits = finish.low > 0.25f || finish.high < 254.75f;
    if (finish.residual_codes.at == nullptr) {
      return has_limits ? even<false, true> : even<false, false>;
    }
    return has_limits ? even<true, true> : even<true, false>;
  }

  Taps taps_of(std::int64_t row) const {
    return x_.is_copied ? Taps{0, job_.rows.taps} : taps_inside(job_.rows, row);
  }

  const Int8ProductJob& job_;
  const Part& part_;
  const TilePixels x_;
  const std::int64_t columns_, quads_, steps_;
  const std::int64_t row_steps_;  ///< of a tap row
  const std::int64_t pairs_;      ///< of pixels that are stored at each step, to end with the last
  bool stores_pairs_ = false;
  const std::int64_t* const offsets_;
  std::int64_t lines_ = 0;
  std::int64_t length_ = 0;   ///< of a line
  std::int64_t width_ = 0;    ///< pixels from a row's first to the next one's
  bool rows_follow_ = false;  ///< the outputs of consecutive rows are contiguous
  bool is_first_ = true;
  int turn_pixels_ = 0, turn_sums_ = 0;
  BlockPixels pixels_[2];
  BandScaling scaling_;
  SummedBlock before_{};
  const MultiplyEven multiply_even_ = choose_even(job_.finish);
  alignas(64) std::int32_t sums_[2][32 * 32];
};

/// Bands of channels whose filters stay in L2.
void run_bands(const Int8ProductJob& job, const Part& part, Product& product) {
  constexpr std::int64_t cached_bytes = 3 << 18;
  const std::int64_t panels = cached_bytes / (job.panel > 0 ? job.panel : 1);
  const std::int64_t cached = panels / 2 * 32 > 0 ? panels / 2 * 32 : 32;
  const std::int64_t step = cached < BandScaling::most ? cached : BandScaling::most;
  for (std::int64_t c = part.first_channel; c < part.last_channel; c += step) {
    product.run(c, c + step < part.last_channel ? c + step : part.last_channel);
  }
}

}  // namespace

void int8_product(const Int8ProductJob& job, const Part& part) noexcept {
  if (part.first_column >= part.last_column || part.first_row >= part.last_row) return;
  const std::int64_t quads = quads_at_once(job.quads);
  auto* const offsets = reinterpret_cast<std::int64_t*>(job.band);
  if (Product::steps_of(job) * 8 > offset_bytes) return built::avx512_vnni::int8.product(job, part);
  // Rows and columns of the part in a padded copy at a time.
  const std::int64_t room = int8_band_bytes - offset_bytes;
  std::int64_t rows = part.last_row - part.first_row;
  std::int64_t columns = part.last_column - part.first_column;
  while (columns > 1 && padded_bytes(job, 1, columns) > room) columns = ceil_div(columns, 2);
  while (rows > 1 && padded_bytes(job, rows, columns) > room) rows = ceil_div(rows, 2);
  const bool can_copy = job.runs == job.columns.taps && padded_bytes(job, rows, columns) <= room;
  const TileConfiguration tiles = configuration_of(quads);
  if (quads >= 4 && columns_are_inside(job.columns)) {
    Product product(job, part, pixels_in_place(job, part), offsets);
    if (product.has_whole_tiles() && (!can_copy || product.waste() < 1.1)) {
      _tile_loadconfig(&tiles);
      run_bands(job, part, product);
      _tile_release();
      return;
    }
  }
  // With few quads a tile would be mostly empty.
  if (quads < 4 || !can_copy) return built::avx512_vnni::int8.product(job, part);
  _tile_loadconfig(&tiles);
  Part some = part;
  for (some.first_row = part.first_row; some.first_row < part.last_row; some.first_row += rows) {
    some.last_row = some.first_row + rows < part.last_row ? some.first_row + rows : part.last_row;
    for (some.first_column = part.first_column; some.first_column < part.last_column;
         some.first_column += columns) {
      const std::int64_t end = some.first_column + columns;
      some.last_column = end < part.last_column ? end : part.last_column;
      const TilePixels x = copy_pixels(job, some, job.band + offset_bytes);
      Product product(job, some, x, offsets);
      run_bands(job, some, product);
    }
  }
  _tile_release();
}

}  // namespace tenon::cpu::amx
