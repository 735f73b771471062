// The iq1, iq2 and iq3 types where errors of elements count differently.
//
// The error of eight elements x with importances w under a scale s and a point p of the lattice is
//   sum w x^2 - 2 s P + s^2 S  with  P = sum w x p,  S = sum w p^2.
// The nearest point is the one with the largest 2 P - s S, so whatever the scale it is a vertex of the
// upper hull of all (S, P). Hulls have one to two dozen vertices, and from one to the next the scale
// at which they change places falls: going through those of a sub-block in order finds its best scale.

#include "iq_importance.hpp"

#include "base/half_bits.hpp"
#include "levels.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace tenon::quant {
namespace {

constexpr std::size_t block_elements = 256, unit_elements = 8, block_units = 32;

/// Of some elements and their levels under a point: the sums P and S, and the least w x p. What the error
/// grows by where an element has the wrong sign is 4 s w x p.
struct Terms {
  double product, square, least;
};

Terms sum_of(const Terms& a, const Terms& b) noexcept {
  return {a.product + b.product, a.square + b.square, std::min(a.least, b.least)};
}

/// The terms of `width` elements for all their codes, packed with the first in the lowest bits; codes count
/// from `levels` on.
template <unsigned bits, std::size_t width>
struct TermTable {
  static constexpr unsigned packed_bits = bits * width, mask = (1u << packed_bits) - 1u;
  Terms at[1u << packed_bits];

  TermTable(const float* x, const float* importance, const std::int8_t* levels) noexcept {
    at[0] = {0, 0, std::numeric_limits<double>::infinity()};
    std::size_t filled = 1;
    for (std::size_t i = 0; i < width; ++i, filled <<= bits) {
      for (std::size_t code = 1u << bits; code-- > 0;) {
        const double level = levels[code], weighted = importance[i] * level;
        const Terms one{weighted * x[i], weighted * level, weighted * x[i]};
        for (std::size_t k = 0; k < filled; ++k) at[code * filled + k] = sum_of(at[k], one);
      }
    }
  }
};

struct Vertex {
  double product, square;
  unsigned point;  ///< its number in the format, with what a type adds
};

struct Points {
  Vertex at[2048];
  std::size_t count = 0;

  void add(double product, double square, unsigned point) noexcept {
    at[count++] = {product, square, point};
  }
};

/// Vertices of the hull from the least square to the largest product.
struct Envelope {
  static constexpr std::size_t capacity = 40;
  Vertex at[capacity];
  std::size_t count = 0;

  /// Orders the points anew.
  void build(Points& points) noexcept {
    const Vertex *low = points.at, *high = points.at;
    for (const Vertex *p = points.at, *end = p + points.count; p != end; ++p) {
      if (p->square < low->square || (p->square == low->square && p->product > low->product))
        low = p;
      if (p->product > high->product || (p->product == high->product && p->square < high->square))
        high = p;
    }
    const Vertex first = *low, last = *high;
    count = 0;
    at[count++] = first;
    if (first.point == last.point) return;
    add_between(first, last, points.at, points.at + points.count);
    if (count < capacity) at[count++] = last;
  }

  /// The vertex of least error.
  const Vertex& nearest(double scale) const noexcept {
    std::size_t v = 0;
    double best = gain(v, scale);
    for (; v + 1 < count; ++v) {
      const double next = gain(v + 1, scale);
      if (!(next > best)) break;
      best = next;
    }
    return at[v];
  }

  /// The scale under which vertex v + 1 takes over from v.
  double threshold(std::size_t v) const noexcept {
    return 2 * (at[v + 1].product - at[v].product) / (at[v + 1].square - at[v].square);
  }

 private:
  double gain(std::size_t v, double scale) const noexcept {
    return 2 * at[v].product - scale * at[v].square;
  }

  /// How far p is above the line from a to b, times its length.
  static double height(const Vertex& a, const Vertex& b, const Vertex& p) noexcept {
    return (p.product - a.product) * (b.square - a.square) -
           (b.product - a.product) * (p.square - a.square);
  }

  /// Appends the vertices between a and b, which are among [first, last).
  void add_between(const Vertex& a, const Vertex& b, Vertex* first, Vertex* last) noexcept {
    double most = 0;
    Vertex top{};
    Vertex* above = first;
    for (Vertex* p = first; p != last; ++p) {
      const double h = height(a, b, *p);
      if (!(h > 0)) continue;
      if (h > most) {
        most = h;
        top = *p;
      }
      std::swap(*above++, *p);
    }
    if (most == 0) return;
    Vertex* const middle =
        std::partition(first, above, [&](const Vertex& p) { return p.square < top.square; });
    add_between(a, top, first, middle);
    if (count < capacity - 1) at[count++] = top;
    add_between(top, b, middle, above);
  }
};

/// The sums of each of two hulls' vertices that are nearest under one scale.
void add_sums(const Envelope& a, const Envelope& b, unsigned tag, Points& points) noexcept {
  for (std::size_t i = 0, j = 0;;) {
    points.add(a.at[i].product + b.at[j].product, a.at[i].square + b.at[j].square,
               a.at[i].point | b.at[j].point << 9 | tag);
    const bool more_a = i + 1 < a.count, more_b = j + 1 < b.count;
    if (!more_a && !more_b) return;
    if (more_a && (!more_b || a.threshold(i) > b.threshold(j))) {
      ++i;
    } else {
      ++j;
    }
  }
}

/// Adds the points of a lattice of eight elements; `odd`: one of them takes the wrong sign, the one that
/// costs least.
template <std::size_t points_count>
void add_lattice(const std::array<std::uint16_t, points_count>& grid, const Elements& in,
                 const std::int8_t* levels, bool odd, unsigned tag, Points& points) noexcept {
  using Table = TermTable<2, 4>;
  const Table low(in.x.data(), in.importance, levels);
  const Table high(in.x.data() + 4, in.importance + 4, levels);
  for (std::size_t k = 0; k < points_count; ++k) {
    const Terms sum = sum_of(low.at[grid[k] & Table::mask], high.at[grid[k] >> Table::packed_bits]);
    points.add(sum.product - (odd ? 2 * sum.least : 0.0), sum.square,
               static_cast<unsigned>(k) | tag);
  }
}

/// The hull of a lattice of four elements.
template <std::size_t points_count>
void build_four(const std::array<std::uint16_t, points_count>& grid, const Elements& in,
                const std::int8_t* levels, bool odd, Points& points, Envelope& hull) noexcept {
  using Table = TermTable<3, 2>;
  const Table low(in.x.data(), in.importance, levels);
  const Table high(in.x.data() + 2, in.importance + 2, levels);
  points.count = 0;
  for (std::size_t k = 0; k < points_count; ++k) {
    const Terms sum = sum_of(low.at[grid[k] & Table::mask], high.at[grid[k] >> Table::packed_bits]);
    points.add(sum.product - (odd ? 2 * sum.least : 0.0), sum.square, static_cast<unsigned>(k));
  }
  hull.build(points);
}

constexpr unsigned four_mask =
    511;  ///< of a point of two fours: the first one's, the second's above
constexpr unsigned second_is_odd =
    1u << 18;  ///< the element with the wrong sign is in the second four

/// The hull of eight elements whose fours have points of their own.
template <std::size_t points_count>
void build_fours(const std::array<std::uint16_t, points_count>& grid, const Elements& in,
                 const std::int8_t* levels, bool odd, Points& points, Envelope& hull) noexcept {
  Envelope fours[2];
  for (std::size_t i = 0; i < 2; ++i) {
    build_four(grid, in.part(4 * i, 4), levels, false, points, fours[i]);
  }
  if (!odd) {
    points.count = 0;
    add_sums(fours[0], fours[1], 0, points);
    return hull.build(points);
  }
  Envelope odd_fours[2];
  for (std::size_t i = 0; i < 2; ++i) {
    build_four(grid, in.part(4 * i, 4), levels, true, points, odd_fours[i]);
  }
  points.count = 0;
  add_sums(odd_fours[0], fours[1], 0, points);
  add_sums(fours[0], odd_fours[1], second_is_odd, points);
  hull.build(points);
}

/// The least error of some units under a scale, less the sum of w x^2.
double least_error(const Envelope* units, std::size_t count, double scale) noexcept {
  double sum = 0;
  for (std::size_t u = 0; u < count; ++u) {
    const Vertex& v = units[u].nearest(scale);
    sum += scale * (scale * v.square - 2 * v.product);
  }
  return sum;
}

/// The best scale of some units, and what it takes off the error.
struct Scale {
  double value = 0, gain = 0;
};

Scale best_scale(const Envelope* units, std::size_t count) noexcept {
  Scale best;
  std::size_t at[4] = {};
  double product = 0, square = 0;
  for (std::size_t u = 0; u < count; ++u) {
    product += units[u].at[0].product;
    square += units[u].at[0].square;
  }
  for (;;) {
    const double gain = product > 0 ? product * product / square : 0.0;
    if (gain > best.gain) best = {product / square, gain};
    std::size_t next = count;
    double scale = -1;
    for (std::size_t u = 0; u < count; ++u) {
      if (at[u] + 1 == units[u].count) continue;
      const double threshold = units[u].threshold(at[u]);
      if (threshold > scale) {
        scale = threshold;
        next = u;
      }
    }
    if (next == count) return best;
    const Vertex& from = units[next].at[at[next]];
    const Vertex& to = units[next].at[++at[next]];
    product += to.product - from.product;
    square += to.square - from.square;
  }
}

/// What a block is made of: scales unit d (2 codes[b] + 1), and of its alternatives the one that each sub-block has.
template <std::size_t subs>
struct OddScales {
  std::uint16_t d = 0;
  unsigned codes[subs] = {};
  unsigned alternatives[subs] = {};

  double scale(const Levels& levels, std::size_t b) const noexcept {
    return widen_half(d) * levels.unit * static_cast<float>(2 * codes[b] + 1);
  }
};

/// The 32 units of a block with `subs` scales of [0, most], or 32 for each of `count` alternatives, of which each
/// sub-block has one.
template <std::size_t subs, unsigned most, std::size_t count = 1>
class UnitFit {
 public:
  using Scales = OddScales<subs>;
  static constexpr std::size_t sub_units = block_units / subs;

  explicit UnitFit(const Envelope* units) noexcept : units_(units) {}

  Scales fit(const Levels& levels) const noexcept {
    double wanted[subs];
    double largest = 0;
    for (std::size_t b = 0; b < subs; ++b) {
      Scale best;
      for (std::size_t alternative = 0; alternative < count; ++alternative) {
        const Scale scale = best_scale(sub_block(alternative, b), sub_units);
        if (scale.gain > best.gain) best = scale;
      }
      wanted[b] = best.value;
      largest = std::max(largest, wanted[b]);
    }
    Scales best;
    if (largest == 0) return best;
    double least = std::numeric_limits<double>::infinity();
    for (int step = -4; step <= 12; ++step) {
      const double target = (2 * most + 1) * (1 + 0.04 * step);
      Scales scales;
      scales.d = to_half(static_cast<float>(largest / (levels.unit * target))).bits;
      if (step == -4) best.d = scales.d;
      for (int round = 0; round < 3; ++round) {
        const double error = choose(levels, wanted, scales);
        if (error < least) {
          least = error;
          best = scales;
        }
        const std::uint16_t refined = refine(levels, scales);
        if (refined == scales.d) break;
        scales.d = refined;
      }
    }
    return best;
  }

  /// The point of unit u.
  unsigned point(const Levels& levels, const Scales& scales, std::size_t u) const noexcept {
    return nearest(levels, scales, u).point;
  }

 private:
  const Envelope* sub_block(std::size_t alternative, std::size_t b) const noexcept {
    return units_ + alternative * block_units + b * sub_units;
  }

  const Vertex& nearest(const Levels& levels, const Scales& scales, std::size_t u) const noexcept {
    const std::size_t b = u / sub_units;
    return sub_block(scales.alternatives[b], b)[u % sub_units].nearest(scales.scale(levels, b));
  }

  /// Codes and alternatives under scales.d, and the error that they leave.
  double choose(const Levels& levels, const double (&wanted)[subs], Scales& scales) const noexcept {
    const double d = widen_half(scales.d) * levels.unit;
    double sum = 0;
    for (std::size_t b = 0; b < subs; ++b) {
      const double steps = d > 0 ? wanted[b] / d : 0;
      const int middle = steps < 2 * most + 1 ? static_cast<int>(0.5 * steps) : int{most};
      double least = std::numeric_limits<double>::infinity();
      for (int code = std::max(middle - 1, 0); code <= std::min(middle + 1, int{most}); ++code) {
        for (unsigned alternative = 0; alternative < count; ++alternative) {
          const double left = least_error(sub_block(alternative, b), sub_units, d * (2 * code + 1));
          if (!(left < least)) continue;
          least = left;
          scales.codes[b] = static_cast<unsigned>(code);
          scales.alternatives[b] = alternative;
        }
      }
      sum += least;
    }
    return sum;
  }

  /// The d of least squares for the points and codes under `scales`.
  std::uint16_t refine(const Levels& levels, const Scales& scales) const noexcept {
    double product = 0, square = 0;
    for (std::size_t u = 0; u < block_units; ++u) {
      const double factor = 2 * scales.codes[u / sub_units] + 1;
      const Vertex& v = nearest(levels, scales, u);
      product += v.product * factor;
      square += v.square * factor * factor;
    }
    if (!(product > 0)) return scales.d;
    return to_half(static_cast<float>(product / square / levels.unit)).bits;
  }

  const Envelope* units_;
};

/// Magnitudes of a block, and the signs of eight elements a byte.
struct SignedMagnitudes {
  float magnitudes[block_elements];
  const float* importance;
  std::uint8_t signs[block_units] = {};

  explicit SignedMagnitudes(const Elements& in) noexcept : importance(in.importance) {
    for (std::size_t i = 0; i < block_elements; ++i) {
      magnitudes[i] = std::fabs(in.x[i]);
      if (std::signbit(in.x[i])) flip(i);
    }
  }

  Elements unit(std::size_t u) const noexcept {
    return Elements{magnitudes, importance}.part(unit_elements * u, unit_elements);
  }
  bool is_odd(std::size_t u) const noexcept { return std::popcount(unsigned{signs[u]}) % 2 != 0; }
  void flip(std::size_t i) noexcept {
    signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] ^ 1u << (i % 8));
  }

  /// Changes the sign that costs least, of `width` elements from `first` on whose levels `point` has.
  template <unsigned bits>
  void flip_least(std::size_t first, std::size_t width, unsigned point,
                  const Levels& levels) noexcept {
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = first;
    for (std::size_t i = first; i < first + width; ++i, point >>= bits) {
      const double weighted =
          importance[i] * static_cast<double>(levels.at[point & ((1u << bits) - 1u)]);
      if (weighted * magnitudes[i] < least) {
        least = weighted * magnitudes[i];
        best = i;
      }
    }
    flip(best);
  }
};

/// Points and signs of a block of iq2_xxs and iq2_xs, whose eight signs are an even number.
template <std::size_t subs, std::size_t points_count>
OddScales<subs> fit_even(const std::array<std::uint16_t, points_count>& grid, SignedMagnitudes& x,
                         unsigned (&entries)[block_units]) noexcept {
  Envelope units[block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    Points points;
    add_lattice(grid, x.unit(u), iq2_levels.at, x.is_odd(u), 0, points);
    units[u].build(points);
  }
  const UnitFit<subs, 15> fit(units);
  const auto scales = fit.fit(iq2_levels);
  for (std::size_t u = 0; u < block_units; ++u) {
    entries[u] = fit.point(iq2_levels, scales, u);
    if (x.is_odd(u)) x.flip_least<2>(unit_elements * u, 8, grid[entries[u]], iq2_levels);
  }
  return scales;
}

/// Sets nibble i of zeroed ones.
void add_nibble(std::uint8_t* nibbles, std::size_t i, unsigned code) noexcept {
  nibbles[i / 2] = static_cast<std::uint8_t>(nibbles[i / 2] | code << (i % 2 * 4));
}

/// The word of a sub-block of iq2_xxs and iq3_xxs: seven signs of each eight elements, and the scale.
void put_word(const std::uint8_t* signs, unsigned scale, std::uint8_t* bytes) noexcept {
  std::uint32_t word = scale << 28;
  for (std::size_t i = 0; i < 4; ++i) word |= (signs[i] & 127u) << (7 * i);
  std::memcpy(bytes, &word, sizeof word);
}

/// Each eight elements' entry of iq1_grid, with bit 11 where they are 1/8 less and not more.
constexpr unsigned iq1_less = 1u << 11;

void add_iq1(const Elements& in, unsigned less, Points& points) noexcept {
  points.count = 0;
  add_lattice(iq1_grid, in, iq1_levels.at + (less != 0 ? 4 : 0), false, less, points);
}

}  // namespace

void encode_by_importance(const Elements& in, BlockIQ1S& block) noexcept {
  Envelope units[2 * block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    for (const unsigned less : {0u, iq1_less}) {
      Points points;
      add_iq1(in.part(unit_elements * u, unit_elements), less, points);
      units[less != 0 ? block_units + u : u].build(points);
    }
  }
  const UnitFit<8, 7, 2> fit(units);
  const auto scales = fit.fit(iq1_levels);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 8; ++b) {
    unsigned word = scales.codes[b] << 12 | scales.alternatives[b] << 15;
    for (std::size_t i = 0; i < 4; ++i) {
      const unsigned entry = fit.point(iq1_levels, scales, 4 * b + i) & ~iq1_less;
      block.codes[4 * b + i] = static_cast<std::uint8_t>(entry);
      word |= entry >> 8 << (3 * i);
    }
    block.high[b] = static_cast<std::uint16_t>(word);
  }
}

void encode_by_importance(const Elements& in, BlockIQ1M& block) noexcept {
  Envelope units[block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    Envelope halves[2];
    Points points;
    for (const unsigned less : {0u, iq1_less}) {
      add_iq1(in.part(unit_elements * u, unit_elements), less, points);
      halves[less != 0 ? 1 : 0].build(points);
    }
    points.count = 0;
    for (const Envelope& half : halves) {
      for (std::size_t v = 0; v < half.count; ++v) points.at[points.count++] = half.at[v];
    }
    units[u].build(points);
  }
  const UnitFit<16, 7> fit(units);
  const auto scales = fit.fit(iq1_levels);
  block = {};
  for (std::size_t b = 0; b < 16; ++b) {
    const unsigned d_part = (unsigned{scales.d} >> (b / 4 * 4) & 15u) << 12;
    block.scales[b / 4] =
        static_cast<std::uint16_t>(block.scales[b / 4] | d_part | scales.codes[b] << (b % 4 * 3));
  }
  for (std::size_t u = 0; u < block_units; ++u) {
    const unsigned point = fit.point(iq1_levels, scales, u);
    block.codes[u] = static_cast<std::uint8_t>(point);
    add_nibble(block.high, u, point >> 8);
  }
}

void encode_by_importance(const Elements& in, BlockIQ2XXS& block) noexcept {
  SignedMagnitudes x(in);
  unsigned entries[block_units];
  const auto scales = fit_even<8>(iq2_xxs_grid, x, entries);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 8; ++b) {
    for (std::size_t i = 0; i < 4; ++i) {
      block.codes[8 * b + i] = static_cast<std::uint8_t>(entries[4 * b + i]);
    }
    put_word(x.signs + 4 * b, scales.codes[b], block.codes + 8 * b + 4);
  }
}

void encode_by_importance(const Elements& in, BlockIQ2XS& block) noexcept {
  SignedMagnitudes x(in);
  unsigned entries[block_units];
  const auto scales = fit_even<16>(iq2_xs_grid, x, entries);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 16; ++b) add_nibble(block.scales, b, scales.codes[b]);
  for (std::size_t u = 0; u < block_units; ++u) {
    block.codes[u] = static_cast<std::uint16_t>(entries[u] | (x.signs[u] & 127u) << 9);
  }
}

void encode_by_importance(const Elements& in, BlockIQ2S& block) noexcept {
  const SignedMagnitudes x(in);
  Envelope units[block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    Points points;
    add_lattice(iq2_s_grid, x.unit(u), iq2_levels.at, false, 0, points);
    units[u].build(points);
  }
  const UnitFit<16, 15> fit(units);
  const auto scales = fit.fit(iq2_levels);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 16; ++b) add_nibble(block.scales, b, scales.codes[b]);
  std::memcpy(block.signs, x.signs, sizeof block.signs);
  for (std::size_t u = 0; u < block_units; ++u) {
    const unsigned entry = fit.point(iq2_levels, scales, u);
    block.codes[u] = static_cast<std::uint8_t>(entry);
    block.high[u / 4] = static_cast<std::uint8_t>(block.high[u / 4] | entry >> 8 << (u % 4 * 2));
  }
}

void encode_by_importance(const Elements& in, BlockIQ3XXS& block) noexcept {
  SignedMagnitudes x(in);
  Envelope units[block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    Points points;
    build_fours(iq3_xxs_grid, x.unit(u), iq3_xxs_levels.at, x.is_odd(u), points, units[u]);
  }
  const UnitFit<8, 15> fit(units);
  const auto scales = fit.fit(iq3_xxs_levels);
  block = {};
  block.d = scales.d;
  for (std::size_t u = 0; u < block_units; ++u) {
    const unsigned point = fit.point(iq3_xxs_levels, scales, u);
    const unsigned entries[2] = {point & four_mask, point >> 9 & four_mask};
    for (std::size_t i = 0; i < 2; ++i) {
      block.codes[2 * u + i] = static_cast<std::uint8_t>(entries[i]);
    }
    if (!x.is_odd(u)) continue;
    const std::size_t four = (point & second_is_odd) != 0 ? 1 : 0;
    x.flip_least<3>(unit_elements * u + 4 * four, 4, iq3_xxs_grid[entries[four]], iq3_xxs_levels);
  }
  for (std::size_t b = 0; b < 8; ++b) {
    put_word(x.signs + 4 * b, scales.codes[b], block.signs + 4 * b);
  }
}

void encode_by_importance(const Elements& in, BlockIQ3S& block) noexcept {
  const SignedMagnitudes x(in);
  Envelope units[block_units];
  for (std::size_t u = 0; u < block_units; ++u) {
    Points points;
    build_fours(iq3_s_grid, x.unit(u), iq3_s_levels.at, false, points, units[u]);
  }
  const UnitFit<8, 15> fit(units);
  const auto scales = fit.fit(iq3_s_levels);
  block = {};
  block.d = scales.d;
  for (std::size_t b = 0; b < 8; ++b) add_nibble(block.scales, b, scales.codes[b]);
  std::memcpy(block.signs, x.signs, sizeof block.signs);
  for (std::size_t u = 0; u < block_units; ++u) {
    const unsigned point = fit.point(iq3_s_levels, scales, u);
    for (std::size_t i = 0; i < 2; ++i) {
      const unsigned entry = point >> (9 * i) & four_mask;
      const std::size_t e = 2 * u + i;
      block.codes[e] = static_cast<std::uint8_t>(entry);
      block.high[e / 8] = static_cast<std::uint8_t>(block.high[e / 8] | entry >> 8 << (e % 8));
    }
  }
}

}  // namespace tenon::quant
