#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"
#include "ops/window.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/pool.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

enum class PoolKind : std::uint8_t { max, mean, sum };

/// The windows along the axes behind N and C, their padding completed where ceil_mode needs more.
struct PoolWindows {
  std::vector<WindowAxis> axes;
  std::vector<std::int64_t> added;  ///< to `after`, by ceil_mode
};

std::int64_t list_value(std::string_view op, std::string_view attribute, const IntList& values,
                        std::size_t i, std::size_t count, std::int64_t absent, std::int64_t least) {
  if (values.empty()) return absent;
  if (values.size() != count || values[i] < least) {
    fail(Errc::bad_attribute, op,
         fmt::format("{} [{}] needs {} values of at least {}", attribute,
                     fmt::join(values.span(), ", "), count, least));
  }
  return values[i];
}

PoolWindows pool_windows(std::string_view op, const Shape& x, const PoolOptions& options) {
  const std::size_t count = options.kernel.size();
  if (count < 1 || count > 3 || x.rank() != static_cast<int>(count) + 2) {
    fail(Errc::bad_attribute, op,
         fmt::format("a kernel [{}] for {}", fmt::join(options.kernel.span(), ", "), to_string(x)));
  }
  PoolWindows result;
  for (std::size_t i = 0; i < count; ++i) {
    WindowAxis axis;
    axis.taps = list_value(op, "kernel", options.kernel, i, count, 1, 1);
    axis.stride = list_value(op, "stride", options.stride, i, count, axis.taps, 1);
    axis.dilation = list_value(op, "dilation", options.dilation, i, count, 1, 1);
    const bool has_both = options.padding.size() == 2 * count;
    const std::size_t values = has_both ? 2 * count : count;
    axis.before = list_value(op, "padding", options.padding, has_both ? 2 * i : i, values, 0, 0);
    axis.after = list_value(op, "padding", options.padding, has_both ? 2 * i + 1 : i, values, 0, 0);
    const std::int64_t size = x[static_cast<int>(i) + 2];
    std::int64_t added = 0;
    if (options.ceil_mode || count == 3) {
      if (!is_static(size)) {
        fail(Errc::unsupported, op, fmt::format("needs the sizes of {}", to_string(x)));
      }
    }
    if (options.ceil_mode) {
      const std::int64_t slack = size + axis.before + axis.after - axis.extent();
      if (slack >= 0) {
        std::int64_t outputs = (slack + axis.stride - 1) / axis.stride + 1;
        if ((outputs - 1) * axis.stride >= size + axis.before) --outputs;
        added = std::max<std::int64_t>(0, (outputs - 1) * axis.stride - slack);
      }
    }
    result.axes.push_back(axis);
    result.added.push_back(added);
  }
  return result;
}

/// Two axes of the window, over the last two axes of an image. The sum: of elements that a mean
/// divides by all taps.
Tensor pool_plane(PoolKind kind, const Tensor& x, const WindowAxis& rows, const WindowAxis& columns,
                  bool count_padding, const std::source_location& where) {
  const IntList kernel{rows.taps, columns.taps}, stride{rows.stride, columns.stride};
  const IntList padding{rows.before, rows.after, columns.before, columns.after};
  if (kind == PoolKind::max) {
    return max_pool2d(x,
                      {.kernel = kernel,
                       .stride = stride,
                       .padding = padding,
                       .dilation = {rows.dilation, columns.dilation}},
                      where);
  }
  const bool counts = kind == PoolKind::sum || count_padding;
  const Tensor y = avg_pool2d(
      x, {.kernel = kernel, .stride = stride, .padding = padding, .count_include_pad = counts},
      where);
  const auto taps = static_cast<double>(rows.taps * columns.taps);
  return kind == PoolKind::sum ? mul(y, scalar_like(y, taps, where), where) : y;
}

Tensor pool(std::string_view name, PoolKind kind, const Tensor& x, const PoolOptions& options,
            const std::source_location& where) {
  PoolWindows windows =
      located(where, name, [&] { return pool_windows(name, x.shape(), options); });
  if (kind != PoolKind::max && !options.dilation.empty()) {
    fail_at(where, Errc::bad_attribute, name, "takes no dilation");
  }
  bool count_padding = options.count_include_pad;
  Tensor image = x;
  const bool grows = std::ranges::any_of(windows.added, [](std::int64_t n) { return n > 0; });
  if (kind == PoolKind::mean && count_padding && grows) {
    // What ceil_mode adds is no padding that counts.
    IntList before{0, 0}, after{0, 0};
    for (WindowAxis& axis : windows.axes) {
      before.push_back(axis.before);
      after.push_back(axis.after);
      axis.before = axis.after = 0;
    }
    image = pad(image, before, after, 0, where);
    count_padding = false;
  }
  for (std::size_t i = 0; i < windows.axes.size(); ++i) windows.axes[i].after += windows.added[i];
  const std::vector<WindowAxis>& axes = windows.axes;
  const WindowAxis whole{};
  if (axes.size() == 1) {
    const Tensor row = unsqueeze(image, -2, {}, where);
    return squeeze(pool_plane(kind, row, whole, axes[0], count_padding, where), 2, where);
  }
  if (axes.size() == 2) return pool_plane(kind, image, axes[0], axes[1], count_padding, where);
  // Rows and columns of every slice, then slices.
  image = image.with_tags({});
  const std::int64_t depth = image.dim(2);
  Tensor y = merge_axes(image, 1, 2, {}, where);
  y = pool_plane(kind, y, axes[1], axes[2], count_padding, where);
  const std::int64_t rows = y.dim(2), columns = y.dim(3);
  y = merge_axes(split_axis(y, 1, {-1, depth}, where), 3, 4, {}, where);
  y = pool_plane(kind, y, axes[0], whole, count_padding, where);
  return split_axis(y, 3, {rows, columns}, where);
}

Tensor reduced(PoolKind kind, const Tensor& x, const AxisList& axes, bool keep,
               const std::source_location& where) {
  return kind == PoolKind::max ? max(x, axes, keep, where) : mean(x, axes, keep, where);
}

Tensor adaptive_pool(std::string_view name, PoolKind kind, const Tensor& x, const IntList& sizes,
                     const std::source_location& where) {
  const Shape& shape = x.shape(where);
  const auto count = static_cast<int>(sizes.size());
  const auto is_bad = [](std::int64_t size) { return size < 1 && size != -1; };
  if (count < 1 || count > shape.rank() || std::ranges::any_of(sizes, is_bad)) {
    fail_at(where, Errc::bad_attribute, name,
            fmt::format("sizes [{}] for {}", fmt::join(sizes.span(), ", "), to_string(shape)));
  }
  Tensor y = x;
  for (int i = 0; i < count; ++i) {
    const int axis = shape.rank() - count + i;
    const std::int64_t outputs = sizes[static_cast<std::size_t>(i)], inputs = shape[axis];
    if (outputs == -1 || outputs == inputs) continue;
    if (!is_static(inputs) || inputs == 0) {
      fail_at(where, is_static(inputs) ? Errc::bad_shape : Errc::unsupported, name,
              fmt::format("needs a known size above 0 along axis {} of {}{}", axis,
                          to_string(shape), advice_on_symbols(shape)));
    }
    const Name tag = shape.tag(axis);
    if (inputs % outputs == 0) {
      y = split_axis(y, axis, {Axis(tag, outputs), Axis(inputs / outputs)}, where);
      y = reduced(kind, y, axis + 1, false, where);
      continue;
    }
    std::vector<Tensor> parts;
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::int64_t first = o * inputs / outputs;
      const std::int64_t last = ((o + 1) * inputs + outputs - 1) / outputs;
      parts.push_back(reduced(kind, slice(y, axis, first, last, 1, where), axis, true, where));
    }
    y = concat(std::span<const Tensor>(parts), axis, where);
  }
  return y;
}

Tensor global_pool(std::string_view name, PoolKind kind, const Tensor& x,
                   const std::source_location& where) {
  std::vector<AxisRef> axes;
  for (int i = 2; i < x.rank(where); ++i) axes.emplace_back(i);
  if (axes.empty()) {
    fail_at(where, Errc::shape_mismatch, name,
            fmt::format("x needs rank 3 or more, got {}", to_string(x.shape())));
  }
  return reduced(kind, x, AxisList(std::span<const AxisRef>(axes)), true, where);
}

}  // namespace

Tensor max_pool(const Tensor& x, const PoolOptions& options, const std::source_location& where) {
  return pool("max_pool", PoolKind::max, x, options, where);
}

Tensor avg_pool(const Tensor& x, const PoolOptions& options, const std::source_location& where) {
  return pool("avg_pool", PoolKind::mean, x, options, where);
}

Tensor lp_pool(const Tensor& x, double p, const PoolOptions& options,
               const std::source_location& where) {
  constexpr std::string_view name = "lp_pool";
  if (!(p > 0) || !std::isfinite(p)) {
    fail_at(where, Errc::bad_attribute, name, fmt::format("p is {}, needs to be above 0", p));
  }
  if (p == 2) return sqrt(pool(name, PoolKind::sum, square(x, where), options, where), where);
  const Tensor magnitude = abs(x, where);
  if (p == 1) return pool(name, PoolKind::sum, magnitude, options, where);
  const Tensor powers = pow(magnitude, scalar_like(x, p, where), where);
  return pow(pool(name, PoolKind::sum, powers, options, where), scalar_like(x, 1 / p, where),
             where);
}

Tensor adaptive_avg_pool(const Tensor& x, const IntList& sizes, const std::source_location& where) {
  return adaptive_pool("adaptive_avg_pool", PoolKind::mean, x, sizes, where);
}

Tensor adaptive_max_pool(const Tensor& x, const IntList& sizes, const std::source_location& where) {
  return adaptive_pool("adaptive_max_pool", PoolKind::max, x, sizes, where);
}

Tensor global_avg_pool(const Tensor& x, const std::source_location& where) {
  return global_pool("global_avg_pool", PoolKind::mean, x, where);
}

Tensor global_max_pool(const Tensor& x, const std::source_location& where) {
  return global_pool("global_max_pool", PoolKind::max, x, where);
}

}  // namespace tenon
