#include "ops/support.hpp"
#include "ops/window.hpp"

#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/reduce.hpp>

#include <array>
#include <cmath>
#include <limits>

namespace tenon {

TENON_DEFINE_OP(max_pool2d, MaxPool2d);
TENON_DEFINE_OP(avg_pool2d, AvgPool2d);

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

/// Calls visit(value) for each element of x in the window of output `index`.
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
      visit(load_as_double(x.shape.dtype(), x.at(from)));
    }
  }
}

}  // namespace

Shape MaxPool2d::infer(std::span<const Shape> in) const { return infer_pool(*this, in[0]); }

void MaxPool2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    double peak = -std::numeric_limits<double>::infinity();
    for_each_tap(window, in[0], index, [&peak](double value) {
      if (value > peak || std::isnan(value)) peak = value;  // no later value replaces a NaN
    });
    store_double(out.shape.dtype(), out.at(index), peak);
  });
}

Shape AvgPool2d::infer(std::span<const Shape> in) const { return infer_pool(*this, in[0]); }

void AvgPool2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Window window = window_of(*this);
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    double sum = 0;
    std::int64_t inside = 0;
    for_each_tap(window, in[0], index, [&](double value) {
      sum += value;
      ++inside;
    });
    const std::int64_t count = count_include_pad ? window[0].taps * window[1].taps : inside;
    store_double(out.shape.dtype(), out.at(index), sum / static_cast<double>(count));
  });
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
