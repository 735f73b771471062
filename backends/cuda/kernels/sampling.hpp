// Images looked at between their pixels: resize, grid_sample, roi_align and their gradients, which
// gather in a fixed order. Places are computed in double, as the reference does.
#pragma once

#include "kernels/images.hpp"

#include <cmath>
#include <cstdint>

namespace tenon::cuda {

struct MixRange {
  std::int32_t begin, end;
};
TENON_DEVICE MixRange range_of(const MixArgs& args, const Index& at, int mixed) {
  if (mixed >= args.mixed) return {0, 1};
  const std::uint32_t i = at.at[args.axes.rank - args.mixed + mixed];
  const auto* const begin = global<const std::int32_t>(args.tables[mixed].begin);
  return {begin[i], begin[i + 1]};
}
/// Moves x on by a source along a mixed axis; returns its weight.
TENON_DEVICE float take_source(const MixArgs& args, int mixed, std::int32_t k, std::int64_t& from) {
  if (mixed >= args.mixed) return 1;
  const std::int64_t source = global<const std::int32_t>(args.tables[mixed].sources)[k];
  from += source * args.x.steps.bytes[args.axes.rank - args.mixed + mixed];
  return global<const float>(args.tables[mixed].weights)[k];
}

TENON_DEVICE void mix(const Thread& thread, const MixArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t outer = offset_of(at, args.x.steps, args.axes.rank - args.mixed);
    const MixRange first = range_of(args, at, 0), second = range_of(args, at, 1),
                   third = range_of(args, at, 2);
    float sum = 0;
    for (std::int32_t a = first.begin; a < first.end; ++a) {
      std::int64_t plane = outer;
      const float of_first = take_source(args, 0, a, plane);
      for (std::int32_t b = second.begin; b < second.end; ++b) {
        std::int64_t line = plane;
        const float of_second = of_first * take_source(args, 1, b, line);
        for (std::int32_t c = third.begin; c < third.end; ++c) {
          std::int64_t from = line;
          const float weight = of_second * take_source(args, 2, c, from);
          sum += weight * load_as(0.0f, args.x, from);
        }
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

struct PlaceAndSlope {
  double at, slope;
};
TENON_DEVICE PlaceAndSlope grid_place(const GridArgs& args, double g, std::uint32_t size) {
  const double count = size;
  PlaceAndSlope place = args.aligns_corners
                            ? PlaceAndSlope{(g + 1) / 2 * (count - 1), (count - 1) / 2}
                            : PlaceAndSlope{((g + 1) * count - 1) / 2, count / 2};
  // Also of an infinity along an axis of one element, whose corners are one.
  if (place.at != place.at) return {args.holds || args.reflects ? 0.0 : -2.0, 0};
  if (args.reflects) {
    const double low = args.aligns_corners ? 0 : -0.5;
    const double span = args.aligns_corners ? count - 1 : count;
    if (span == 0 || !(fabs(place.at) < static_cast<double>(infinity()))) {
      place = {0, 0};
    } else {
      double from = place.at - low;
      if (from < 0) {
        place.slope = -place.slope;
        from = -from;
      }
      const double rest = fmod(from, span);
      const bool is_back = fmod(floor(from / span), 2.0) != 0;
      place.at = (is_back ? span - rest : rest) + low;
      if (is_back) place.slope = -place.slope;
    }
  }
  if (args.holds || args.reflects) {
    if (place.at <= 0) place = {0, 0};
    if (place.at >= count - 1) place = {count - 1, 0};
  }
  if (place.at < -2) place.at = -2;  // zeros from there on
  if (place.at > count + 1) place.at = count + 1;
  return place;
}

TENON_DEVICE void place_grid(const Thread& thread, const GridArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const auto element = [&](int which) {
      return static_cast<double>(
          load_as(0.0f, args.grid, byte_at(args.grid, at.at[0], at.at[1], at.at[2], which)));
    };
    const PlaceAndSlope across = grid_place(args, element(0), args.width);
    const PlaceAndSlope down = grid_place(args, element(1), args.height);
    global<GridPlace>(args.places)[i] = {across.at, across.slope, down.at, down.slope};
  }
}

/// A pixel that a place is mixed from, and the derivatives of its weight by the grid.
struct GridTap {
  std::int64_t row, column;
  float weight, by_column, by_row;
};

/// Tap 0 to 3 of a place; of the nearest pixel there is only the first. False for one outside.
TENON_DEVICE bool grid_tap(const GridArgs& args, const GridPlace& place, int number, GridTap& tap) {
  const bool is_lower = number >= 2, is_right = number % 2 == 1;
  if (args.is_nearest) {
    if (number > 0) return false;
    tap = {static_cast<std::int64_t>(rint(place.row)),
           static_cast<std::int64_t>(rint(place.column)), 1, 0, 0};
  } else {
    const double left = floor(place.column), top = floor(place.row);
    const double a = place.column - left, b = place.row - top;
    const double across = is_right ? a : 1 - a, down = is_lower ? b : 1 - b;
    tap = {static_cast<std::int64_t>(top) + (is_lower ? 1 : 0),
           static_cast<std::int64_t>(left) + (is_right ? 1 : 0), static_cast<float>(across * down),
           static_cast<float>((is_right ? down : -down) * place.column_slope),
           static_cast<float>((is_lower ? across : -across) * place.row_slope)};
  }
  return tap.row >= 0 && tap.row < args.height && tap.column >= 0 && tap.column < args.width;
}

TENON_DEVICE const GridPlace* places_of(const GridArgs& args, std::uint32_t image) {
  return global<const GridPlace>(args.places) +
         std::int64_t{image} * args.grid_height * args.grid_width;
}

TENON_DEVICE void sample_grid(const Thread& thread, const GridArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const GridPlace place = places_of(args, at.at[0])[at.at[2] * args.grid_width + at.at[3]];
    float sum = 0;
    for (int number = 0; number < 4; ++number) {
      GridTap tap;
      if (!grid_tap(args, place, number, tap)) continue;
      sum += tap.weight *
             load_as(0.0f, args.x, byte_at(args.x, at.at[0], at.at[1], tap.row, tap.column));
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// A thread per row of x, to which it adds what places bring, one after the other. y: f32, zeros.
TENON_DEVICE void sample_grid_backward(const Thread& thread, const GridArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const GridPlace* const places = places_of(args, at.at[0]);
    for (std::uint32_t p = 0; p < args.grid_height * args.grid_width; ++p) {
      const double distance = places[p].row - at.at[2];
      if (!(distance > -1.5 && distance < 1.5)) continue;
      for (int number = 0; number < 4; ++number) {
        GridTap tap;
        if (!grid_tap(args, places[p], number, tap) || tap.row != at.at[2]) continue;
        const std::int64_t from =
            byte_at(args.upstream, at.at[0], at.at[1], p / args.grid_width, p % args.grid_width);
        const std::int64_t to = byte_at(args.y, at.at[0], at.at[1], at.at[2], tap.column);
        const float added = tap.weight * load_as(0.0f, args.upstream, from);
        store_as(load_as(0.0f, args.y, to) + added, args.y, to);
      }
    }
  }
}

/// A thread per place.
TENON_DEVICE void move_grid_backward(const Thread& thread, const GridArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const GridPlace place = global<const GridPlace>(args.places)[i];
    float by_column = 0, by_row = 0;
    for (int number = 0; number < 4; ++number) {
      GridTap tap;
      if (!grid_tap(args, place, number, tap)) continue;
      for (std::uint32_t c = 0; c < args.channels; ++c) {
        const float product =
            load_as(0.0f, args.x, byte_at(args.x, at.at[0], c, tap.row, tap.column)) *
            load_as(0.0f, args.upstream, byte_at(args.upstream, at.at[0], c, at.at[1], at.at[2]));
        by_column += tap.by_column * product;
        by_row += tap.by_row * product;
      }
    }
    store_as(by_column, args.y, byte_at(args.y, at.at[0], at.at[1], at.at[2], 0));
    store_as(by_row, args.y, byte_at(args.y, at.at[0], at.at[1], at.at[2], 1));
  }
}

/// A thread per box.
TENON_DEVICE void read_rois(const Thread& thread, const RoiArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.count; i += stride_of(thread)) {
    RoiBox box;
    box.image = load_as(std::int64_t(), args.image, i * args.image.steps.bytes[0]);
    if (box.image < 0 || box.image >= args.images) {
      report(args.reporter, box.image, args.images);
      box.image = -1;
    }
    const auto end = [&](int which) {
      const std::int64_t at = i * args.box.steps.bytes[0] + which * args.box.steps.bytes[1];
      return static_cast<double>(load_as(0.0f, args.box, at)) * args.scale -
             (args.is_aligned ? 0.5 : 0.0);
    };
    for (int axis = 0; axis < 2; ++axis) {
      box.begin[axis] = end(1 - axis);
      double extent = end(3 - axis) - box.begin[axis];
      if (!args.is_aligned && extent < 1) extent = 1;
      box.cell[axis] = extent / args.cells[axis];
      double wanted = ceil(box.cell[axis]);
      if (!(fabs(box.cell[axis]) < static_cast<double>(infinity())) || wanted < 0) wanted = 0;
      if (wanted > 0x1p20) wanted = 0x1p20;
      box.parts[axis] =
          args.sampling_ratio > 0 ? args.sampling_ratio : static_cast<std::int64_t>(wanted);
    }
    global<RoiBox>(args.boxes)[i] = box;
  }
}

/// The elements between which a sample lies along an axis, and the share of the second.
struct RoiSample {
  std::int64_t low, high;
  double share;
  bool is_inside;
};
TENON_DEVICE RoiSample roi_sample(const RoiArgs& args, const RoiBox& box, int axis,
                                  std::int64_t cell, std::int64_t part) {
  const std::int64_t size = axis == 0 ? args.height : args.width;
  double at =
      box.begin[axis] + static_cast<double>(cell) * box.cell[axis] +
      (static_cast<double>(part) + 0.5) * box.cell[axis] / static_cast<double>(box.parts[axis]);
  if (!(at >= -1 && at <= static_cast<double>(size)) || size == 0) return {0, 0, 0, false};
  if (at < 0) at = 0;
  const auto low = static_cast<std::int64_t>(at);
  if (low >= size - 1) return {size - 1, size - 1, 0, true};
  return {low, low + 1, at - static_cast<double>(low), true};
}

TENON_DEVICE double samples_of(const RoiBox& box) {
  const std::int64_t count = box.parts[0] * box.parts[1];
  return static_cast<double>(count > 1 ? count : 1);
}

TENON_DEVICE void align_rois(const Thread& thread, const RoiArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const RoiBox box = global<const RoiBox>(args.boxes)[at.at[0]];
    if (box.image < 0) continue;
    const auto pixel = [&](std::int64_t row, std::int64_t column) {
      return load_as(0.0f, args.x, byte_at(args.x, box.image, at.at[1], row, column));
    };
    float sum = 0;
    for (std::int64_t r = 0; r < box.parts[0]; ++r) {
      const RoiSample down = roi_sample(args, box, 0, at.at[2], r);
      for (std::int64_t s = 0; s < box.parts[1] && down.is_inside; ++s) {
        const RoiSample across = roi_sample(args, box, 1, at.at[3], s);
        if (!across.is_inside) continue;
        const auto a = static_cast<float>(across.share), b = static_cast<float>(down.share);
        sum += (1 - b) * ((1 - a) * pixel(down.low, across.low) + a * pixel(down.low, across.high));
        sum += b * ((1 - a) * pixel(down.high, across.low) + a * pixel(down.high, across.high));
      }
    }
    store_as(sum / static_cast<float>(samples_of(box)), args.y,
             offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// A thread per row of x, to which it adds what boxes bring, one after the other. y: f32, zeros.
TENON_DEVICE void align_rois_backward(const Thread& thread, const RoiArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const auto add = [&](std::int64_t column, double value) {
      const std::int64_t to = byte_at(args.y, at.at[0], at.at[1], at.at[2], column);
      store_as(load_as(0.0f, args.y, to) + static_cast<float>(value), args.y, to);
    };
    const std::uint32_t row = at.at[2];
    for (std::uint32_t number = 0; number < args.count; ++number) {
      const RoiBox& box = global<const RoiBox>(args.boxes)[number];
      if (box.image != at.at[0]) continue;
      for (std::int64_t part = 0; part < args.cells[0] * box.parts[0]; ++part) {
        const std::int64_t cell_row = part / box.parts[0];
        const RoiSample down = roi_sample(args, box, 0, cell_row, part % box.parts[0]);
        if (!down.is_inside || (down.low != row && down.high != row)) continue;
        double weight = down.low == row ? 1 - down.share : 0;
        if (down.high == row) weight += down.share;
        weight /= samples_of(box);
        for (std::int64_t j = 0; j < args.cells[1]; ++j) {
          const double amount =
              weight *
              static_cast<double>(load_as(0.0f, args.upstream,
                                          byte_at(args.upstream, number, at.at[1], cell_row, j)));
          for (std::int64_t s = 0; s < box.parts[1]; ++s) {
            const RoiSample across = roi_sample(args, box, 1, j, s);
            if (!across.is_inside) continue;
            add(across.low, amount * (1 - across.share));
            add(across.high, amount * across.share);
          }
        }
      }
    }
  }
}

}  // namespace tenon::cuda
