#include "ops/gradient.hpp"
#include "ops/open_sizes.hpp"
#include "ops/rows.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/grid_sample.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/stop_gradient.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace tenon {

namespace {

struct GridWords {
  bool is_nearest, holds, reflects, align_corners;
};

template <class Op>
GridWords read_grid_words(const GridSampleOp<Op>& op) {
  const std::string_view mode = op.mode.text(), padding = op.padding.text();
  if (!mode.empty() && mode != "bilinear" && mode != "nearest") {
    fail(Errc::bad_attribute, Op::name,
         fmt::format("no mode '{}'; there are bilinear, nearest", mode));
  }
  if (!padding.empty() && padding != "zeros" && padding != "border" && padding != "reflection") {
    fail(Errc::bad_attribute, Op::name,
         fmt::format("no padding '{}'; there are zeros, border, reflection", padding));
  }
  return {mode == "nearest", padding == "border", padding == "reflection", op.align_corners};
}

/// A place along one axis, in pixels, and its derivative by the element of the grid.
struct GridPlace {
  double at, slope;
};

GridPlace grid_place(double g, std::int64_t size, const GridWords& words) {
  const auto count = static_cast<double>(size);
  GridPlace place = words.align_corners ? GridPlace{(g + 1) / 2 * (count - 1), (count - 1) / 2}
                                        : GridPlace{((g + 1) * count - 1) / 2, count / 2};
  // Also of an infinity along an axis of one element, whose corners are one.
  if (std::isnan(place.at)) return {words.holds || words.reflects ? 0.0 : -2.0, 0};
  if (words.reflects) {
    const double low = words.align_corners ? 0 : -0.5;
    const double span = words.align_corners ? count - 1 : count;
    if (span == 0 || !std::isfinite(place.at)) {
      place = {0, 0};
    } else {
      double from = place.at - low;
      if (from < 0) place.slope = -place.slope, from = -from;
      const double rest = std::fmod(from, span);
      const bool is_back = std::fmod(std::floor(from / span), 2) != 0;
      place.at = (is_back ? span - rest : rest) + low;
      if (is_back) place.slope = -place.slope;
    }
  }
  if (words.holds || words.reflects) {
    if (place.at <= 0) place = {0, 0};
    if (place.at >= count - 1) place = {count - 1, 0};
  }
  place.at = std::clamp(place.at, -2.0, count + 1);  // zeros from there on
  return place;
}

/// The pixels that a place is mixed from, and the derivatives of their weights by the grid.
struct GridTap {
  std::int64_t row, column;
  double weight, by_column, by_row;
};

template <class Visit>
void for_each_grid_tap(const GridWords& words, const HostView& x, const HostView& grid,
                       std::span<const std::int64_t> place, Visit&& visit) {
  const std::int64_t height = x.shape[2], width = x.shape[3];
  const DType dtype = grid.shape.dtype();
  const auto element = [&](std::int64_t i) {
    return load_as_double(dtype, grid.at(std::array{place[0], place[1], place[2], i}));
  };
  const GridPlace across = grid_place(element(0), width, words);
  const GridPlace down = grid_place(element(1), height, words);
  const auto tap = [&](double row, double column, double weight, double by_column, double by_row) {
    const auto r = static_cast<std::int64_t>(row), c = static_cast<std::int64_t>(column);
    if (r < 0 || r >= height || c < 0 || c >= width) return;
    visit(GridTap{r, c, weight, by_column * across.slope, by_row * down.slope});
  };
  if (words.is_nearest) return tap(std::nearbyint(down.at), std::nearbyint(across.at), 1, 0, 0);
  const double left = std::floor(across.at), top = std::floor(down.at);
  const double a = across.at - left, b = down.at - top;
  tap(top, left, (1 - a) * (1 - b), b - 1, a - 1);
  tap(top, left + 1, a * (1 - b), 1 - b, -a);
  tap(top + 1, left, (1 - a) * b, -b, 1 - a);
  tap(top + 1, left + 1, a * b, b, a);
}

template <class Op>
Shape infer_grid(const GridSampleOp<Op>& op, std::span<const Shape> in) {
  constexpr std::string_view name = Op::name;
  const Shape &x = in[0], &grid = in[1];
  constexpr std::array<std::string_view, 3> names{"x", "grid", "upstream"};
  const std::string operands = operands_text(names, in);
  for (const Shape& shape : in) require_floating(name, shape);  // C1
  for (std::size_t i = 0; i < in.size(); ++i) {                 // C2
    require_rank(name, names[i], in[i], 4);
    if (in[i].dtype() != x.dtype()) {
      fail(Errc::shape_mismatch, name, fmt::format("dtypes differ: {}", operands));
    }
  }
  if (!sizes_agree(x[0], grid[0]) || !sizes_agree(grid[3], 2)) {  // C3
    fail(Errc::shape_mismatch, name, fmt::format("grid does not fit x: {}", operands));
  }
  read_grid_words(op);  // C4
  if (x[2] == 0 || x[3] == 0) fail(Errc::bad_shape, name, fmt::format("no pixels: {}", operands));
  const std::array dims{known_size(x[0], grid[0]), x[1], grid[1], grid[2]};
  for (int i = 0; in.size() == 3 && i < 4; ++i) {  // C6
    if (!sizes_agree(in[2][i], dims[static_cast<std::size_t>(i)])) {
      fail(Errc::shape_mismatch, name, fmt::format("upstream does not fit: {}", operands));
    }
  }
  if constexpr (std::is_same_v<Op, GridSample>) {
    return Shape(std::span<const std::int64_t>(dims), x.dtype());
  } else if constexpr (std::is_same_v<Op, GridSampleBackward>) {
    return x.without_tags();
  } else {
    return grid.without_tags();
  }
}

}  // namespace

template <class Op>
Shape GridSampleOp<Op>::infer(std::span<const Shape> in) const {
  return infer_grid(*this, in);
}

template <class Op>
void GridSampleOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const GridWords words = read_grid_words(*this);
  const HostView &x = in[0], &grid = in[1];
  const DType dtype = out.shape.dtype();
  std::vector<double> sums(static_cast<std::size_t>(out.shape.elements()));
  const Shape& y = out.shape;
  const auto at = [&](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) -> double& {
    return sums[static_cast<std::size_t>(((a * y[1] + b) * y[2] + c) * y[3] + d)];
  };
  const std::int64_t channels = x.shape[1];
  for_each_index(grid.shape.with_dim(3, 1), [&](std::span<const std::int64_t> place) {
    const std::int64_t n = place[0], i = place[1], j = place[2];
    for_each_grid_tap(words, x, grid, place, [&](const GridTap& tap) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto pixel = [&] {
          return load_as_double(dtype, x.at(std::array{n, c, tap.row, tap.column}));
        };
        const auto upstream = [&] {
          return load_as_double(dtype, in[2].at(std::array{n, c, i, j}));
        };
        if constexpr (std::is_same_v<Op, GridSample>) {
          at(n, c, i, j) += tap.weight * pixel();
        } else if constexpr (std::is_same_v<Op, GridSampleBackward>) {
          at(n, c, tap.row, tap.column) += tap.weight * upstream();
        } else {
          at(n, i, j, 0) += tap.by_column * pixel() * upstream();
          at(n, i, j, 1) += tap.by_row * pixel() * upstream();
        }
      }
    });
  });
  std::size_t next = 0;
  for_each_index(y, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), sums[next++]);
  });
}

template struct GridSampleOp<GridSample>;
template struct GridSampleOp<GridSampleBackward>;
template struct GridSampleOp<GridSampleGridBackward>;
TENON_DEFINE_OP(grid_sample, GridSample);
TENON_DEFINE_OP(grid_sample_backward, GridSampleBackward);
TENON_DEFINE_OP(grid_sample_grid_backward, GridSampleGridBackward);

namespace {

template <class Op, class From>
Op with_words(const From& from) {
  Op op;
  op.mode = from.mode;
  op.padding = from.padding;
  op.align_corners = from.align_corners;
  return op;
}

}  // namespace

std::vector<Tensor> GridSample::gradient(const Backward& at) const {
  const std::array inputs{at.inputs[0], at.inputs[1], at.upstream};
  const std::source_location where = std::source_location::current();
  return {record(with_words<GridSampleBackward>(*this), inputs, where),
          record(with_words<GridSampleGridBackward>(*this), inputs, where)};
}

/// sum(g * y) = sum(upstream * grid_sample(g, grid)).
std::vector<Tensor> GridSampleBackward::gradient(const Backward& at) const {
  const Tensor &grid = at.inputs[1], &upstream = at.inputs[2], &g = at.upstream;
  const std::source_location where = std::source_location::current();
  return {Tensor(), record(with_words<GridSampleGridBackward>(*this), {g, grid, upstream}, where),
          record(with_words<GridSample>(*this), {g, grid}, where)};
}

namespace {

/// Where the places of a grid lie along one axis of x, [N, H', W'] each.
struct GridSteps {
  Tensor size;   ///< pixels, a scalar
  Tensor pixel;  ///< the one at the place or before it, a whole number
  Tensor part;   ///< how far the place is behind it, with the derivative `slope` by the grid
  Tensor slope;
};

/// What grid_place() does, recorded.
GridSteps grid_steps(const Tensor& x, const Tensor& grid, int axis, const GridWords& words) {
  const int element = axis == 3 ? 0 : 1;
  const Tensor g = squeeze(slice(grid, 3, element, element + 1), 3), fixed = stop_gradient(g);
  const auto number = [&](double value) { return scalar_like(g, value); };
  const Tensor count = size_along(x, axis, g.dtype()), zero = number(0);
  Tensor at = words.align_corners ? (fixed + 1.0) / 2.0 * (count - 1.0)
                                  : ((fixed + 1.0) * count - 1.0) / 2.0;
  Tensor slope = filled_like(g, 1) * (words.align_corners ? (count - 1.0) / 2.0 : count / 2.0);
  Tensor has_place = logical_not(is_nan(fixed));
  if (words.reflects) {
    const double low = words.align_corners ? 0 : -0.5;
    const Tensor span = words.align_corners ? count - 1.0 : count;
    const Tensor from = abs(at - low), rest = fmod(from, span);
    const Tensor is_back = ne(fmod(floor(from / span), number(2)), zero);
    slope = where(logical_xor(lt(at, number(low)), is_back), -slope, slope);
    at = where(is_back, span - rest, rest) + low;
    has_place = is_finite(at);  // not that of a span of 0
  }
  const bool is_held = words.holds || words.reflects;
  slope = where(has_place, slope, zero);
  at = where(has_place, at, number(is_held ? 0 : -2));
  if (is_held) {
    const Tensor last = count - 1.0;
    slope = where(logical_or(le(at, zero), ge(at, last)), zero, slope);
    at = minimum(maximum(at, zero), last);
  } else {
    at = minimum(maximum(at, number(-2)), count + 1.0);
  }
  // Adds 0, whose derivative is the slope.
  const Tensor moves = where(is_finite(fixed), g, zero);
  const Tensor pixel = floor(at);
  return {count, pixel, at - pixel + slope * (moves - stop_gradient(moves)), slope};
}

}  // namespace

/// From a composition of gathers that computes the same.
std::vector<Tensor> GridSampleGridBackward::gradient(const Backward& at) const {
  const GridWords words = read_grid_words(*this);
  if (words.is_nearest) return std::vector<Tensor>(3);  // 0 everywhere
  return gradient_of_composition(at, [&](std::span<const Tensor> in) {
    const DType dtype = in[0].dtype(), wide = dtype == f64 ? f64 : f32;
    const Tensor x = cast(in[0], wide), grid = cast(in[1], wide), upstream = cast(in[2], wide);
    const GridSteps across = grid_steps(x, grid, 3, words), down = grid_steps(x, grid, 2, words);
    const Tensor width = cast(across.size, i64), height = cast(down.size, i64);
    const Tensor rows = flatten(permute(x, {0, 2, 3, 1}), 0, 2);  // [N * H * W, C]
    const Tensor image = unsqueeze(unsqueeze(iota(x, 0, i64), 1), 2) * (height * width);
    const auto pixels = [&](double below, double behind) {  // [N, H', W', C]; 0 outside of x
      const auto is_inside = [](const Tensor& place, const Tensor& size) {
        return logical_and(ge(place, scalar_like(place, 0)), lt(place, size));
      };
      const auto held = [](const Tensor& place, const Tensor& size) {
        return cast(minimum(maximum(place, scalar_like(place, 0)), size - 1.0), i64);
      };
      const Tensor row = down.pixel + below, column = across.pixel + behind;
      const Tensor inside = logical_and(is_inside(row, down.size), is_inside(column, across.size));
      const Tensor taken =
          gather(rows, image + held(row, down.size) * width + held(column, across.size), 0);
      return where(unsqueeze(inside, 3), taken, scalar_like(taken, 0));
    };
    const Tensor a = unsqueeze(across.part, 3), b = unsqueeze(down.part, 3);
    const Tensor upper = pixels(0, 0), upper_right = pixels(0, 1);
    const Tensor lower = pixels(1, 0), lower_right = pixels(1, 1);
    const Tensor by_column = (1.0 - b) * (upper_right - upper) + b * (lower_right - lower);
    const Tensor by_row = (1.0 - a) * (lower - upper) + a * (lower_right - upper_right);
    const Tensor weights = permute(upstream, {0, 2, 3, 1});
    const Tensor y = concat({unsqueeze(sum(by_column * weights, {3}) * across.slope, 3),
                             unsqueeze(sum(by_row * weights, {3}) * down.slope, 3)},
                            3);
    return cast(reshape_like(y, grid), dtype);  // whose last axis may be a symbol
  });
}

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options,
                   const std::source_location& where) {
  return record(with_words<GridSample>(options), {x, grid}, where);
}

}  // namespace tenon
