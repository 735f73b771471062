#include "ops/open_sizes.hpp"
#include "ops/rows.hpp"
#include "ops/support.hpp"
#include "ops/window.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unfold2d.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(unfold2d, Unfold2d);
TENON_DEFINE_OP(fold2d, Fold2d);

namespace {

template <class Op>
Window fold_window(const Op& op) {
  if (op.kernel.empty()) fail(Errc::bad_attribute, Op::name, "needs a kernel of two values");
  const auto kernel = pair_of(Op::name, "kernel", op.kernel, 1, 1);
  return read_window_lists(Op::name, kernel, op.stride, op.padding, op.dilation);
}

std::int64_t product_or_unknown(std::int64_t a, std::int64_t b) {
  return is_static(a) && is_static(b) ? checked_multiply(a, b) : unknown_dim;
}

/// Calls visit(column row, column, image row, image column) for each element of the columns of a
/// [C, H, W] image that is inside of it; the row counts from the channel's first.
template <class Visit>
void for_each_column_element(const Window& window, std::int64_t height, std::int64_t width,
                             std::int64_t down, std::int64_t across, Visit&& visit) {
  const auto& [rows, columns] = window;
  for (std::int64_t i = 0; i < down; ++i) {
    const auto r_taps = rows.taps_inside(i, height);
    for (std::int64_t j = 0; j < across; ++j) {
      const auto s_taps = columns.taps_inside(j, width);
      for (std::int64_t r = r_taps.begin; r < r_taps.end; ++r) {
        for (std::int64_t s = s_taps.begin; s < s_taps.end; ++s) {
          visit(r * columns.taps + s, i * across + j, rows.input(i, r), columns.input(j, s));
        }
      }
    }
  }
}

}  // namespace

Shape Unfold2d::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  require_floating(name, x);                        // C1
  require_rank(name, "x", x, 4);                    // C2
  const auto [rows, columns] = fold_window(*this);  // C3
  const std::string operands = "x " + to_string(x);
  const std::int64_t down = window_outputs(name, rows, x[2], operands);  // C4
  const std::int64_t across = window_outputs(name, columns, x[3], operands);
  const std::array dims{x[0], product_or_unknown(x[1], rows.taps * columns.taps),
                        product_or_unknown(down, across)};
  return Shape(std::span<const std::int64_t>(dims), x.dtype());
}

void Unfold2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = fold_window(*this);
  const Shape& x = in[0].shape;
  const DType dtype = x.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), 0);
  });
  if (out.shape.elements() == 0) return;
  const std::int64_t taps = window[0].taps * window[1].taps;
  const std::int64_t down = window_outputs(name, window[0], x[2], {});
  const std::int64_t across = window_outputs(name, window[1], x[3], {});
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t c = 0; c < x[1]; ++c) {
      for_each_column_element(
          window, x[2], x[3], down, across,
          [&](std::int64_t tap, std::int64_t column, std::int64_t row, std::int64_t place) {
            const std::array from{n, c, row, place};
            const std::array to{n, c * taps + tap, column};
            store_double(dtype, out.at(to), load_as_double(dtype, in[0].at(from)));
          });
    }
  }
}

namespace {

/// The gradient of x where its height or width is not known. The windows of an image of numbers
/// from 1 on say which element each of their elements was; 0 is padding.
Tensor folded_like(const Unfold2d& op, const Tensor& x, const Tensor& upstream) {
  const auto [rows, columns] = fold_window(op);
  const Tensor row = iota(x, 2, f64).with_tags({}), column = iota(x, 3, f64, 1).with_tags({});
  const Tensor numbers = unsqueeze(row, 1) * size_along(x, 3, f64) + column;  // [H, W]
  const Tensor seen = unfold2d(unsqueeze(unsqueeze(numbers, 0), 0), op);      // [1, taps, L]
  const Tensor places = cast(merge_axes(squeeze(seen, 0), 0, 1), i64);        // [taps * L]
  const Tensor given =                                                        // [N, C, taps * L]
      merge_axes(split_axis(upstream, 1, {-1, rows.taps * columns.taps}), 2, 3);
  const Tensor none = pad(filled_like(merge_axes(x.with_tags({}), 2, 3), 0), 2, 1, 0);
  return reshape_like(slice(index_add(none, places, given, 2), 2, 1), x);
}

}  // namespace

std::vector<Tensor> Unfold2d::gradient(const Backward& at) const {
  const Shape& x = at.inputs[0].shape();
  if (!is_static(x[2]) || !is_static(x[3])) return {folded_like(*this, at.inputs[0], at.upstream)};
  return {fold2d(at.upstream, {.size = {x[2], x[3]},
                               .kernel = kernel,
                               .stride = stride,
                               .padding = padding,
                               .dilation = dilation})};
}

Shape Fold2d::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  require_floating(name, x);                        // C1
  require_rank(name, "x", x, 3);                    // C2
  const auto [rows, columns] = fold_window(*this);  // C3
  if (size.empty()) fail(Errc::bad_attribute, name, "needs a size of two values");
  const auto [height, width] = pair_of(name, "size", size, 0, 0);
  const std::string operands = "x " + to_string(x);
  const std::int64_t down = window_outputs(name, rows, height, operands);  // C4
  const std::int64_t across = window_outputs(name, columns, width, operands);
  const std::int64_t taps = rows.taps * columns.taps;
  const std::int64_t places = checked_multiply(down, across);
  if ((is_static(x[1]) && x[1] % taps != 0) || !sizes_agree(x[2], places)) {  // C5
    fail(Errc::shape_mismatch, name,
         fmt::format("windows of {} elements at {} places do not make up {}", taps, places,
                     operands));
  }
  const std::array dims{x[0], is_static(x[1]) ? x[1] / taps : unknown_dim, height, width};
  return Shape(std::span<const std::int64_t>(dims), x.dtype());
}

void Fold2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = fold_window(*this);
  const Shape& y = out.shape;
  const DType dtype = y.dtype();
  if (y.elements() == 0) return;
  const std::int64_t taps = window[0].taps * window[1].taps;
  const std::int64_t down = window_outputs(name, window[0], y[2], {});
  const std::int64_t across = window_outputs(name, window[1], y[3], {});
  std::vector<double> sums(static_cast<std::size_t>(y[2] * y[3]));
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t c = 0; c < y[1]; ++c) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for_each_column_element(
          window, y[2], y[3], down, across,
          [&](std::int64_t tap, std::int64_t column, std::int64_t row, std::int64_t place) {
            const std::array from{n, c * taps + tap, column};
            sums[static_cast<std::size_t>(row * y[3] + place)] +=
                load_as_double(dtype, in[0].at(from));
          });
      for (std::int64_t i = 0; i < y[2] * y[3]; ++i) {
        const std::array to{n, c, i / y[3], i % y[3]};
        store_double(dtype, out.at(to), sums[static_cast<std::size_t>(i)]);
      }
    }
  }
}

std::vector<Tensor> Fold2d::gradient(const Backward& at) const {
  return {unfold2d(at.upstream,
                   {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation})};
}

Tensor unfold2d(const Tensor& x, const Unfold2d& options, const std::source_location& where) {
  return record(options, {x}, where);
}

Tensor fold2d(const Tensor& x, const Fold2d& options, const std::source_location& where) {
  return record(options, {x}, where);
}

}  // namespace tenon
