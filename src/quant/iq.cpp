// The iq1, iq2 and iq3 types: elements come in fours or eights from a lattice, under integer scales
// that are odd numbers. Types with signs of their own for every element are encoded here where all
// elements count alike, and all of them with importances in iq_importance.cpp.

#include "base/half_bits.hpp"
#include "codecs.hpp"
#include "iq_importance.hpp"
#include "levels.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace tenon::quant {
namespace {

constexpr int super_block = 256;

template <class Block>
void decode_level_block(const Block& block, float* out) noexcept {
  constexpr const Levels& levels = levels_of(Block{});
  LevelCodes block_codes;
  unpack(block, block_codes);
  const float d = widen_half(block_codes.d) * levels.unit;
  for (int b = 0; b < 16; ++b) {
    const float scale = d * static_cast<float>(block_codes.scales[b]);
    for (int i = 16 * b; i < 16 * b + 16; ++i) {
      out[i] = scale * static_cast<float>(levels.at[block_codes.codes[i]]);
    }
  }
}

/// A lattice of `count` points of `width` magnitudes, by component, in the order of their squares.
/// Points of equal square are a class: under one scale, the one with the largest dot product is
/// the nearest of its class, whatever the scale.
template <std::size_t width, std::size_t count>
struct Lattice {
  static constexpr std::size_t max_classes = 128;

  float points[width][count];
  std::uint16_t entries[count];  ///< their numbers in the format
  float squares[max_classes];
  std::size_t starts[max_classes + 1];
  std::size_t classes = 0;

  Lattice(const std::array<std::uint16_t, count>& grid, const Levels& levels, unsigned bits) {
    const auto magnitude = [&](std::size_t k, std::size_t i) {
      return static_cast<float>(levels.at[(unsigned{grid[k]} >> (bits * i)) & ((1u << bits) - 1u)]);
    };
    std::array<float, count> square_of{};
    for (std::size_t k = 0; k < count; ++k) {
      entries[k] = static_cast<std::uint16_t>(k);
      for (std::size_t i = 0; i < width; ++i) square_of[k] += magnitude(k, i) * magnitude(k, i);
    }
    std::sort(entries, entries + count, [&](std::size_t a, std::size_t b) {
      return std::pair(square_of[a], a) < std::pair(square_of[b], b);
    });
    for (std::size_t k = 0; k < count; ++k) {
      const float square = square_of[entries[k]];
      if (k == 0 || square != squares[classes - 1]) {
        assert(classes < max_classes);
        starts[classes] = k;
        squares[classes++] = square;
      }
      for (std::size_t i = 0; i < width; ++i) points[i][k] = magnitude(entries[k], i);
    }
    starts[classes] = count;
  }
};

/// Magnitudes of a block with their nearest point of each class. The squared error of some elements
/// x under a scale s and a point p is x^2 - 2 s x p + s^2 p^2.
template <std::size_t width, std::size_t count>
class Fit {
 public:
  static constexpr std::size_t groups = super_block / width;

  Fit(const Lattice<width, count>& lattice, const float* magnitudes) : lattice_(lattice) {
    float dots[count];
    for (std::size_t g = 0; g < groups; ++g) {
      const float* const x = magnitudes + g * width;
      for (std::size_t k = 0; k < count; ++k) {
        float sum = 0;
        for (std::size_t i = 0; i < width; ++i) sum += x[i] * lattice.points[i][k];
        dots[k] = sum;
      }
      for (std::size_t c = 0; c < lattice.classes; ++c) {
        const auto best = std::max_element(dots + lattice.starts[c], dots + lattice.starts[c + 1]);
        dots_[g][c] = *best;
        points_[g][c] = static_cast<std::uint16_t>(best - dots);
      }
    }
  }

  /// The class whose point leaves the least error of group g under `scale` > 0.
  std::size_t nearest(std::size_t g, float scale) const noexcept {
    std::size_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (std::size_t c = 0; c < lattice_.classes; ++c) {
      const float x = scale * lattice_.squares[c] - 2 * dots_[g][c];
      if (x < least) {
        least = x;
        best = c;
      }
    }
    return best;
  }

  /// The least error of groups [first, last), less x^2.
  float error(std::size_t first, std::size_t last, float scale) const noexcept {
    float sum = 0;
    for (std::size_t g = first; g < last; ++g) {
      const std::size_t c = nearest(g, scale);
      sum += scale * (scale * lattice_.squares[c] - 2 * dots_[g][c]);
    }
    return sum;
  }

  float dot(std::size_t g, std::size_t c) const noexcept { return dots_[g][c]; }
  float square(std::size_t c) const noexcept { return lattice_.squares[c]; }

  /// The number in the format of the nearest point of group g.
  std::size_t entry(std::size_t g, float scale) const noexcept {
    return lattice_.entries[points_[g][nearest(g, scale)]];
  }

 private:
  static constexpr std::size_t max_classes = Lattice<width, count>::max_classes;
  const Lattice<width, count>& lattice_;
  float dots_[groups][max_classes];
  std::uint16_t points_[groups][max_classes];
};

/// Scales of a block's sub-blocks: widen_half(d) unit (2 codes[b] + 1).
template <std::size_t subs>
struct OddScales {
  std::uint16_t d = 0;
  unsigned codes[subs] = {};
};

/// The scale of groups [first, last) with the least error found; `largest` is their largest
/// magnitude and `top` the largest of a level.
template <class AFit>
float best_scale(const AFit& fit, std::size_t first, std::size_t last, float largest, float top) {
  float best = largest / top, least = fit.error(first, last, best);
  for (int step = 1; step <= 12; ++step) {
    const float scale = largest / (top * (1.12f - 0.06f * static_cast<float>(step)));
    const float error = fit.error(first, last, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  for (int round = 0; round < 2; ++round) {  // least squares for these points
    float product = 0, square = 0;
    for (std::size_t g = first; g < last; ++g) {
      const std::size_t c = fit.nearest(g, best);
      product += fit.dot(g, c);
      square += fit.square(c);
    }
    if (!(product > 0)) break;
    best = product / square;
  }
  return best;
}

/// Codes for the scales of a block under d, and the error they leave.
template <std::size_t subs, class AFit>
float choose_codes(const AFit& fit, float unit, const float (&wanted)[subs],
                   OddScales<subs>& scales) {
  constexpr std::size_t length = AFit::groups / subs;
  const float d = widen_half(scales.d) * unit;
  float sum = 0;
  for (std::size_t b = 0; b < subs; ++b) {
    const float ratio = d > 0 ? wanted[b] / d : 0;
    const int middle = ratio < 31 ? static_cast<int>(0.5f * ratio) : 15;
    float least = std::numeric_limits<float>::infinity();
    for (int code = std::max(middle - 1, 0); code <= std::min(middle + 1, 15); ++code) {
      const float error =
          fit.error(b * length, (b + 1) * length, d * static_cast<float>(2 * code + 1));
      if (error < least) {
        least = error;
        scales.codes[b] = static_cast<unsigned>(code);
      }
    }
    sum += least;
  }
  return sum;
}

template <std::size_t subs, class AFit>
OddScales<subs> fit_odd_scales(const AFit& fit, const float* magnitudes, const Levels& levels,
                               float top) {
  constexpr std::size_t length = AFit::groups / subs, elements = super_block / subs;
  float wanted[subs] = {};
  float largest_scale = 0;
  for (std::size_t b = 0; b < subs; ++b) {
    const float* part = magnitudes + b * elements;
    const float largest = *std::max_element(part, part + elements);
    if (largest > 0) wanted[b] = best_scale(fit, b * length, (b + 1) * length, largest, top);
    largest_scale = std::max(largest_scale, wanted[b]);
  }
  OddScales<subs> best;
  if (largest_scale == 0) return best;
  // Stays where no error below is finite: it is infinite then, and so is what is decoded.
  best.d = to_half(largest_scale / (levels.unit * 31.0f)).bits;
  float least = std::numeric_limits<float>::infinity();
  for (const float target : {31.0f, 29.5f, 32.5f}) {
    OddScales<subs> scales;
    scales.d = to_half(largest_scale / (levels.unit * target)).bits;
    for (int round = 0; round < 2; ++round) {
      const float error = choose_codes(fit, levels.unit, wanted, scales);
      if (error < least) {
        least = error;
        best = scales;
      }
      // Least squares for d with these points and codes.
      float product = 0, square = 0;
      const float d = widen_half(scales.d) * levels.unit;
      for (std::size_t g = 0; g < AFit::groups; ++g) {
        const float factor = static_cast<float>(2 * scales.codes[g / length] + 1);
        const std::size_t c = fit.nearest(g, d * factor);
        product += fit.dot(g, c) * factor;
        square += fit.square(c) * factor * factor;
      }
      if (!(product > 0)) break;
      const std::uint16_t refined = to_half(product / square / levels.unit).bits;
      if (refined == scales.d) break;
      scales.d = refined;
    }
  }
  return best;
}

/// Magnitudes of a block, and the signs of eight elements a byte.
struct Magnitudes {
  float at[super_block];
  std::uint8_t signs[32] = {};

  explicit Magnitudes(const float* in) noexcept {
    for (int i = 0; i < super_block; ++i) {
      at[i] = std::fabs(in[i]);
      const unsigned sign = std::signbit(in[i]) ? 1u << (i % 8) : 0u;
      signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | sign);
    }
  }

  /// Makes the number of signs of each eight elements even, at the smallest one.
  void make_even() noexcept {
    for (int byte = 0; byte < 32; ++byte) {
      if (std::popcount(unsigned{signs[byte]}) % 2 == 0) continue;
      float* const eight = at + 8 * byte;
      const auto i = std::min_element(eight, eight + 8) - eight;
      eight[i] = -eight[i];
      signs[byte] = static_cast<std::uint8_t>(signs[byte] ^ (1u << i));
    }
  }
};

/// Sets nibble i of zeroed ones.
void put_nibble(std::uint8_t* nibbles, std::size_t i, unsigned code) noexcept {
  nibbles[i / 2] = static_cast<std::uint8_t>(nibbles[i / 2] | code << (i % 2 * 4));
}

template <std::size_t subs>
float scale_of(const OddScales<subs>& scales, const Levels& levels, std::size_t b) noexcept {
  return widen_half(scales.d) * levels.unit * static_cast<float>(2 * scales.codes[b] + 1);
}

}  // namespace
void decode(const BlockIQ1S& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ1M& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ2XXS& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ2XS& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ2S& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ3XXS& block, float* out) noexcept { decode_level_block(block, out); }
void decode(const BlockIQ3S& block, float* out) noexcept { decode_level_block(block, out); }

void encode(const Elements& in, BlockIQ1S& block) noexcept { encode_by_importance(in, block); }
void encode(const Elements& in, BlockIQ1M& block) noexcept { encode_by_importance(in, block); }
void encode(const Elements& in, BlockIQ2XXS& block) noexcept { encode_by_importance(in, block); }
void encode(const Elements& in, BlockIQ2XS& block) noexcept { encode_by_importance(in, block); }

void encode(const Elements& in, BlockIQ2S& block) noexcept {
  if (in.importance != nullptr) return encode_by_importance(in, block);
  static const Lattice<8, 1024> lattice(iq2_s_grid, iq2_levels, 2);
  const Magnitudes x(in.x.data());
  const Fit<8, 1024> fit(lattice, x.at);
  const auto scales = fit_odd_scales<16>(fit, x.at, iq2_levels, 43);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 16; ++b) put_nibble(block.scales, b, scales.codes[b]);
  std::memcpy(block.signs, x.signs, sizeof block.signs);
  for (std::size_t e = 0; e < 32; ++e) {
    const std::size_t k = fit.entry(e, scale_of(scales, iq2_levels, e / 2));
    block.codes[e] = static_cast<std::uint8_t>(k);
    block.high[e / 4] = static_cast<std::uint8_t>(block.high[e / 4] | k >> 8 << (e % 4 * 2));
  }
}

void encode(const Elements& in, BlockIQ3XXS& block) noexcept {
  if (in.importance != nullptr) return encode_by_importance(in, block);
  static const Lattice<4, 256> lattice(iq3_xxs_grid, iq3_xxs_levels, 3);
  Magnitudes x(in.x.data());
  x.make_even();
  const Fit<4, 256> fit(lattice, x.at);
  const auto scales = fit_odd_scales<8>(fit, x.at, iq3_xxs_levels, 62);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 8; ++b) {
    std::uint32_t word = scales.codes[b] << 28;
    for (std::size_t i = 0; i < 4; ++i) word |= (x.signs[4 * b + i] & 127u) << (7 * i);
    std::memcpy(block.signs + 4 * b, &word, 4);
  }
  for (std::size_t e = 0; e < 64; ++e) {
    block.codes[e] =
        static_cast<std::uint8_t>(fit.entry(e, scale_of(scales, iq3_xxs_levels, e / 8)));
  }
}

void encode(const Elements& in, BlockIQ3S& block) noexcept {
  if (in.importance != nullptr) return encode_by_importance(in, block);
  static const Lattice<4, 512> lattice(iq3_s_grid, iq3_s_levels, 3);
  const Magnitudes x(in.x.data());
  const Fit<4, 512> fit(lattice, x.at);
  const auto scales = fit_odd_scales<8>(fit, x.at, iq3_s_levels, 15);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 8; ++b) put_nibble(block.scales, b, scales.codes[b]);
  std::memcpy(block.signs, x.signs, sizeof block.signs);
  for (std::size_t e = 0; e < 64; ++e) {
    const std::size_t k = fit.entry(e, scale_of(scales, iq3_s_levels, e / 8));
    block.codes[e] = static_cast<std::uint8_t>(k);
    block.high[e / 8] = static_cast<std::uint8_t>(block.high[e / 8] | k >> 8 << (e % 8));
  }
}

}  // namespace tenon::quant
