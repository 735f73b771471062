#include "ops/support.hpp"
#include "ops/window.hpp"

#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/unfold2d.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(max_pool2d, MaxPool2d);
TENON_DEFINE_OP(avg_pool2d, AvgPool2d);
TENON_DEFINE_OP(max_pool2d_backward, MaxPool2dBackward);
TENON_DEFINE_OP(avg_pool2d_backward, AvgPool2dBackward);

namespace {

template <class Pool>
Window window_of(const Pool& op) {
  if (op.kernel.empty()) fail(Errc::bad_attribute, Pool::name, "needs a kernel of two values");
  const auto kernel = pair_of(Pool::name, "kernel", op.kernel, 1, 1);
  IntList dilation;
  if constexpr (requires { op.dilation; }) dilation = op.dilation;
  return read_window(Pool::name, kernel, op.stride, op.padding, dilation, kernel);
}

template <class Pool>
Shape infer_pool(const Pool& op, const Shape& x) {
  require_floating(Pool::name, x);  // C1
  if (x.rank() != 4) {              // C2
    fail(Errc::shape_mismatch, Pool::name, fmt::format("x needs rank 4, got {}", to_string(x)));
  }
  const auto [rows, columns] = window_of(op);  // C3
  const std::string operands = "x " + to_string(x);
  return x
      .with_dim(2, window_outputs(Pool::name, rows, x[2], operands))  // C4
      .with_dim(3, window_outputs(Pool::name, columns, x[3], operands));
}

/// Calls visit(value, its index) for each element of x in the window of output `index`.
template <class Visit>
void for_each_tap(const Window& window, const HostView& x, std::span<const std::int64_t> index,
                  Visit&& visit) {
  const auto [rows, columns] = window;
  const auto down = rows.taps_inside(index[2], x.shape[2]);
  const auto across = columns.taps_inside(index[3], x.shape[3]);
  for (std::int64_t r = down.begin; r < down.end; ++r) {
    for (std::int64_t s = across.begin; s < across.end; ++s) {
      const std::array from{index[0], index[1], rows.input(index[2], r),
                            columns.input(index[3], s)};
      visit(load_as_double(x.shape.dtype(), x.at(from)), from);
    }
  }
}

template <class Pool>
Shape infer_backward(const Pool& op, std::span<const Shape> in) {
  const Shape result = infer_pool(op, in[0]);  // C1 to C4
  const Shape upstream = in[1].without_tags();
  bool agree = upstream.rank() == 4 && upstream.dtype() == result.dtype();
  for (int i = 0; agree && i < 4; ++i) agree = sizes_agree(upstream[i], result[i]);
  if (!agree) {  // C5
    fail(Errc::shape_mismatch, Pool::name,
         fmt::format("upstream is {}, the pool gives {}", to_string(in[1]), to_string(result)));
  }
  return in[0].without_tags();
}

/// spread(index, value, add) calls add(index in x, amount) for each element of x that upstream's
/// element `index` goes to.
template <class Spread>
void add_up(std::span<const HostView> in, const HostView& out, Spread&& spread) {
  const Shape& x = out.shape;
  std::vector<double> sums(static_cast<std::size_t>(x.elements()));
  for_each_index(in[1].shape, [&](std::span<const std::int64_t> index) {
    const double amount = load_as_double(x.dtype(), in[1].at(index));
    spread(index, amount, [&](const std::array<std::int64_t, 4>& at, double value) {
      sums[static_cast<std::size_t>(((at[0] * x[1] + at[1]) * x[2] + at[2]) * x[3] + at[3])] +=
          value;
    });
  });
  std::size_t next = 0;
  for_each_index(x, [&](std::span<const std::int64_t> index) {
    store_double(x.dtype(), out.at(index), sums[next++]);
  });
}

}  // namespace

Shape MaxPool2d::infer(std::span<const Shape> in) const { return infer_pool(*this, in[0]); }

void MaxPool2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    double peak = -std::numeric_limits<double>::infinity();
    for_each_tap(window, in[0], index, [&peak](double value, const auto&) {
      if (value > peak || std::isnan(value)) peak = value;  // no later value replaces a NaN
    });
    store_double(out.shape.dtype(), out.at(index), peak);
  });
}

std::vector<Tensor> MaxPool2d::gradient(const Backward& at) const {
  return {max_pool2d_backward(
      at.inputs[0], at.upstream,
      {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation})};
}

Shape MaxPool2dBackward::infer(std::span<const Shape> in) const {
  return infer_backward(*this, in);
}

void MaxPool2dBackward::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  add_up(in, out, [&](std::span<const std::int64_t> index, double amount, auto&& add) {
    double peak = -std::numeric_limits<double>::infinity();
    std::array<std::int64_t, 4> place{-1};
    for_each_tap(window, in[0], index, [&](double value, const auto& at) {
      if (place[0] < 0 || value > peak || std::isnan(value)) peak = value, place = at;
    });
    if (place[0] >= 0) add(place, amount);
  });
}

std::vector<Tensor> MaxPool2dBackward::gradient(const Backward& at) const {
  // An amount of upstream went to the place of its window's largest element: what there is of it now.
  const Window window = window_of(*this);
  const WindowAxis &rows = window[0], &columns = window[1];
  const auto windows = [&](const Tensor& x, const IntList& beside) {
    const Tensor seen = unfold2d(x, {.kernel = {rows.taps, columns.taps},
                                     .stride = {rows.stride, columns.stride},
                                     .padding = beside,
                                     .dilation = {rows.dilation, columns.dilation}});
    return split_axis(seen, 1, {-1, rows.taps * columns.taps});  // [N, C, taps, H' * W']
  };
  const Tensor x = pad(at.inputs[0].with_tags({}), {0, 0, rows.before, columns.before},
                       {0, 0, rows.after, columns.after}, -std::numeric_limits<double>::infinity());
  const Tensor places = argmax(windows(x, {}), 2, true);
  const Tensor amounts =
      windows(at.upstream, {rows.before, rows.after, columns.before, columns.after});
  return {Tensor(), reshape_like(take_along(amounts, places, 2), at.inputs[1])};
}

Shape AvgPool2d::infer(std::span<const Shape> in) const { return infer_pool(*this, in[0]); }

void AvgPool2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    double sum = 0;
    std::int64_t inside = 0;
    for_each_tap(window, in[0], index, [&](double value, const auto&) {
      sum += value;
      ++inside;
    });
    const std::int64_t count = count_include_pad ? window[0].taps * window[1].taps : inside;
    store_double(out.shape.dtype(), out.at(index), sum / static_cast<double>(count));
  });
}

std::vector<Tensor> AvgPool2d::gradient(const Backward& at) const {
  return {avg_pool2d_backward(at.inputs[0], at.upstream,
                              {.kernel = kernel,
                               .stride = stride,
                               .padding = padding,
                               .count_include_pad = count_include_pad})};
}

Shape AvgPool2dBackward::infer(std::span<const Shape> in) const {
  return infer_backward(*this, in);
}

void AvgPool2dBackward::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  add_up(in, out, [&](std::span<const std::int64_t> index, double amount, auto&& add) {
    std::int64_t inside = 0;
    for_each_tap(window, in[0], index, [&](double, const auto&) { ++inside; });
    const std::int64_t count = count_include_pad ? window[0].taps * window[1].taps : inside;
    for_each_tap(window, in[0], index,
                 [&](double, const auto& at) { add(at, amount / static_cast<double>(count)); });
  });
}

std::vector<Tensor> AvgPool2dBackward::gradient(const Backward& at) const {
  return {Tensor(), avg_pool2d(at.upstream, {.kernel = kernel,
                                             .stride = stride,
                                             .padding = padding,
                                             .count_include_pad = count_include_pad})};
}

Tensor max_pool2d_backward(const Tensor& x, const Tensor& upstream,
                           const MaxPool2dBackward& options, const std::source_location& where) {
  return record(options, {x, upstream}, where);
}

Tensor avg_pool2d_backward(const Tensor& x, const Tensor& upstream,
                           const AvgPool2dBackward& options, const std::source_location& where) {
  return record(options, {x, upstream}, where);
}

Tensor max_pool2d(const Tensor& x, const MaxPool2d& options, const std::source_location& where) {
  return record(options, {x}, where);
}

Tensor avg_pool2d(const Tensor& x, const AvgPool2d& options, const std::source_location& where) {
  return record(options, {x}, where);
}

Tensor global_avg_pool2d(const Tensor& x, const std::source_location& where) {
  return mean(x, {-2, -1}, true, where);
}

Tensor global_max_pool2d(const Tensor& x, const std::source_location& where) {
  return max(x, {-2, -1}, true, where);
}

}  // namespace tenon
