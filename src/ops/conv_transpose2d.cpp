#include "ops/builder.hpp"
#include "ops/convolved.hpp"
#include "ops/filter_gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unfold2d.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(conv_transpose2d, ConvTranspose2d);

namespace {

/// The window that slides over the result, and what is added to its ends.
struct TransposedWindow {
  Window window;
  std::array<std::int64_t, 2> added;
};

TransposedWindow transposed_window(const ConvTranspose2d& op, const Shape& w) {
  constexpr std::string_view name = ConvTranspose2d::name;
  TransposedWindow result{read_window_lists(name, {w[2], w[3]}, op.stride, op.padding, op.dilation),
                          pair_of(name, "output_padding", op.output_padding, 0, 0)};
  for (std::size_t i = 0; i < 2; ++i) {
    const WindowAxis& axis = result.window[i];
    if (result.added[i] >= axis.stride && result.added[i] >= axis.dilation) {
      fail(Errc::bad_attribute, name,
           fmt::format("output_padding {} is below neither the stride {} nor the dilation {}",
                       result.added[i], axis.stride, axis.dilation));
    }
  }
  return result;
}

std::int64_t transposed_size(const WindowAxis& axis, std::int64_t added, std::int64_t size,
                             const std::string& operands) {
  if (!is_static(axis.taps)) return unknown_dim;
  const std::int64_t cut = checked_add(axis.before, axis.after);
  const std::int64_t reach = checked_add(axis.extent(), added);
  if (!is_static(size)) return axis.stride == 1 && reach == cut + 1 ? size : unknown_dim;
  const std::int64_t result =
      checked_add(checked_multiply(size - 1, axis.stride), checked_add(reach, -cut));
  if (result < 0) {
    fail(Errc::bad_shape, ConvTranspose2d::name,
         fmt::format("{} elements make a result of size {}: {}", size, result, operands));
  }
  return result;
}

}  // namespace

Shape ConvTranspose2d::infer(std::span<const Shape> in) const {
  const std::size_t expected = has_bias ? 3 : 2;
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape& x = in[0];
  const Shape& w = in[1];
  constexpr std::array<std::string_view, 3> names{"x", "w", "bias"};
  const std::string operands = operands_text(names, in);
  for (const Shape& operand : in) require_floating(name, operand);  // C2
  require_rank(name, "x", x, 4);                                    // C3
  require_rank(name, "w", w, 4);
  if (has_bias) require_rank(name, "bias", in[2], 1);
  for (const Shape& operand : in) {
    if (operand.dtype() != x.dtype()) {
      fail(Errc::shape_mismatch, name, fmt::format("dtypes differ: {}", operands));
    }
  }
  const std::int64_t inputs = known_size(x[1], w[0]);
  if (groups < 1 || (is_static(inputs) && inputs % groups != 0)) {  // C4
    fail(Errc::bad_attribute, name,
         fmt::format("{} groups do not divide the channels: {}", groups, operands));
  }
  if (!sizes_agree(x[1], w[0])) {  // C5
    fail(Errc::shape_mismatch, name,
         fmt::format("x has {} channels, w has {}: {}", x[1], w[0], operands));
  }
  Axis channels = w.axis_at(1);
  if (groups > 1) {
    channels.size = is_static(w[1]) ? checked_multiply(w[1], groups) : unknown_dim;
  }
  if (has_bias) {
    const Axis own = in[2].axis_at(0);
    const bool tags_differ = !own.tag.empty() && !channels.tag.empty() && own.tag != channels.tag;
    if (!sizes_agree(own.size, channels.size) || tags_differ) {
      fail(Errc::shape_mismatch, name, fmt::format("the output axis differs: {}", operands));
    }
    channels = {channels.tag.empty() ? own.tag : channels.tag, known_size(channels.size, own.size)};
  }
  if (channels.tag.empty()) channels.tag = x.tag(1);
  const auto [window, added] = transposed_window(*this, w);  // C6
  if (w[2] == 0 || w[3] == 0) {                              // C7
    fail(Errc::bad_shape, name, fmt::format("the kernel has no elements: {}", operands));
  }
  const std::vector<Axis> axes{x.axis_at(0),
                               channels,
                               {x.tag(2), transposed_size(window[0], added[0], x[2], operands)},
                               {x.tag(3), transposed_size(window[1], added[1], x[3], operands)}};
  require_distinct_tags(name, axes, operands);  // C8
  return {std::span<const Axis>(axes), x.dtype()};
}

void ConvTranspose2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  const Shape& y = out.shape;
  if (y.elements() == 0) return;
  const auto [rows, columns] = transposed_window(*this, w).window;
  const std::vector<double> image = read_rows(in[0]);
  const std::vector<double> weights = read_rows(in[1]);
  const std::int64_t plane = y[2] * y[3], group_inputs = x[1] / groups;
  std::vector<double> sums(static_cast<std::size_t>(y.elements()));
  if (has_bias) {
    const std::vector<double> bias = read_rows(in[2]);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto channel = static_cast<std::int64_t>(i) / plane % y[1];
      sums[i] = bias[static_cast<std::size_t>(channel)];
    }
  }
  std::size_t next = 0;
  for_each_index(x, [&](std::span<const std::int64_t> at) {
    const double value = image[next++];
    const std::int64_t first_output = at[1] / group_inputs * w[1];
    const auto down = rows.taps_inside(at[2], y[2]);
    const auto across = columns.taps_inside(at[3], y[3]);
    for (std::int64_t o = 0; o < w[1]; ++o) {
      double* to = sums.data() + (at[0] * y[1] + first_output + o) * plane;
      const double* taps = weights.data() + (at[1] * w[1] + o) * w[2] * w[3];
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          to[rows.input(at[2], r) * y[3] + columns.input(at[3], s)] += value * taps[r * w[3] + s];
        }
      }
    }
  });
  std::byte* to = out.data;
  for (const double sum : sums) {
    store_double(y.dtype(), to, sum);
    to += block_bytes(y.dtype());
  }
}

std::vector<Tensor> ConvTranspose2d::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &w = at.inputs[1], &upstream = at.upstream;
  require_known_sizes(name, w.shape(), 2);
  const auto [window, added] = transposed_window(*this, w.shape());
  Conv2d forward{.stride = stride, .padding = {}, .dilation = dilation, .groups = groups};
  const bool hides_windows = std::ranges::any_of(window, [](const WindowAxis& axis) {
    return axis.before >= axis.extent() || axis.after >= axis.extent();
  });
  Tensor image = upstream;
  if (hides_windows) {  // conv2d refuses such a padding
    image = pad(image, {0, 0, window[0].before, window[1].before},
                {0, 0, window[0].after, window[1].after});
  } else {
    forward.padding = padding;
  }
  Tensor dx = conv2d(image, w, {}, forward);
  // Added rows may hold windows more.
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t windows = added[i] / window[i].stride;
    if (windows > 0) dx = slice(dx, 2 + static_cast<int>(i), 0, -windows);
  }
  std::vector<Tensor> result{dx, filter_gradient(name, upstream, x, window, groups, added)};
  if (has_bias) result.push_back(sum(upstream, {0, 2, 3}));
  return result;
}

double ConvTranspose2d::flops(std::span<const Shape> in, const Shape&) const {
  const Shape& w = in[1];  // [C, O / groups, KH, KW]
  return 2.0 * static_cast<double>(in[0].elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose2d& options, const std::source_location& where) {
  ConvTranspose2d op = options;
  op.has_bias = !bias.is_empty();
  return op.has_bias ? record(op, {x, w, bias}, where) : record(op, {x, w}, where);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose1dOptions& options, const std::source_location& where) {
  const ConvTranspose2d op{.stride = {1, options.stride},
                           .padding = {0, 0, options.padding_left, options.padding_right},
                           .output_padding = {0, options.output_padding},
                           .dilation = {1, options.dilation},
                           .groups = options.groups};
  const Tensor y =
      conv_transpose2d(unsqueeze(x, -2, {}, where), unsqueeze(w, -2, {}, where), bias, op, where);
  return squeeze(y, 2, where);
}

Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose3dOptions& options, const std::source_location& where) {
  constexpr std::string_view name = "conv_transpose3d";
  const std::array<std::int64_t, 3> added = located(where, name, [&] {
    require_rank(name, "x", x.shape(), 5);
    require_rank(name, "w", w.shape(), 5);
    require_known_sizes(name, x.shape(), 1);
    require_known_sizes(name, w.shape(), 0);
    std::array<std::int64_t, 3> values{};
    if (options.output_padding.empty()) return values;
    if (options.output_padding.size() != 3 || options.output_padding[0] < 0) {
      fail(Errc::bad_attribute, name,
           fmt::format("output_padding [{}] needs three values of at least 0",
                       fmt::join(options.output_padding.span(), ", ")));
    }
    for (std::size_t i = 0; i < 3; ++i) values[i] = options.output_padding[i];
    return values;
  });
  const Volume volume = located(where, name, [&] {
    return read_volume(name, w.shape()[2], options.stride, options.padding, options.dilation);
  });
  const WindowAxis& depth = volume.depth;
  const std::int64_t slices = x.dim(2);
  const std::int64_t size = (slices - 1) * depth.stride + depth.extent() + added[0];
  const std::int64_t kept = size - depth.before - depth.after;
  if (kept < 0 || (added[0] >= depth.stride && added[0] >= depth.dilation)) {
    fail_at(where, kept < 0 ? Errc::bad_shape : Errc::bad_attribute, name,
            fmt::format("{} slices make {}, with an output_padding of {}", slices, kept, added[0]));
  }
  const ConvTranspose2d op{.stride = volume.plane_stride,
                           .padding = volume.plane_padding,
                           .output_padding = {added[1], added[2]},
                           .dilation = volume.plane_dilation,
                           .groups = options.groups};
  Tensor images = permute(x.with_tags({}), {0, 2, 1, 3, 4}, where);
  images = merge_axes(images, 0, 1, {}, where);                        // [N * D, C, H, W]
  const Tensor filter = merge_axes(w.with_tags({}), 1, 2, {}, where);  // [C, Og * KD, KH, KW]
  Tensor y = conv_transpose2d(images, filter, {}, op, where);          // [N * D, O * KD, H', W']
  const std::int64_t rows = y.dim(2), columns = y.dim(3);
  y = split_axis(y, 0, {-1, slices}, where);  // [N, D, O * KD, H', W']
  y = permute(y, {0, 2, 1, 3, 4}, where);
  y = merge_axes(y, 2, 4, {}, where);  // [N, O * KD, D * H' * W']
  y = fold2d(y,
             {.size = {size, rows * columns},
              .kernel = {depth.taps, 1},
              .stride = {depth.stride, 1},
              .dilation = {depth.dilation, 1}},
             where);  // [N, O, D', H' * W']
  y = split_axis(slice(y, 2, depth.before, depth.before + kept, 1, where), 3, {rows, columns},
                 where);
  if (bias.is_empty()) return y;
  Tensor row = bias;
  for (int i = 0; i < 3; ++i) row = unsqueeze(row, -1, {}, where);
  return add(y, row, where);
}

void require_known_sizes(std::string_view op, const Shape& shape, int first) {
  for (int i = first; i < shape.rank(); ++i) {
    if (!is_static(shape[i])) {
      fail(Errc::unsupported, op, fmt::format("needs the sizes of {}", to_string(shape)));
    }
  }
}

Tensor filter_gradient(std::string_view op, const Tensor& image, const Tensor& outputs,
                       const Window& window, std::int64_t groups,
                       std::array<std::int64_t, 2> unused) {
  const auto& [rows, columns] = window;
  for (const WindowAxis& axis : window) {
    if (!is_static(axis.taps)) fail(Errc::unsupported, op, "needs the sizes of its filter");
  }
  const bool is_depthwise = image.dim(1) == groups && outputs.dim(1) == groups;
  if (!is_depthwise) {
    return conv2d_filter_backward(
        image, outputs,
        {.kernel = {rows.taps, columns.taps},
         .stride = {rows.stride, columns.stride},
         .padding = {rows.before, rows.after, columns.before, columns.after},
         .dilation = {rows.dilation, columns.dilation},
         .groups = groups});
  }
  const bool is_padded = rows.before + rows.after + columns.before + columns.after > 0;
  const Tensor padded =
      is_padded ? pad(image, {0, 0, rows.before, columns.before}, {0, 0, rows.after, columns.after})
                : image;
  // What tap `tap` of every window sees; counted from the end, as sizes may be symbolic.
  const auto seen_by = [&](const Tensor& x, int axis, std::int64_t tap) {
    const WindowAxis& along = window[static_cast<std::size_t>(axis - 2)];
    const std::int64_t first = tap * along.dilation;
    const std::int64_t behind =
        along.extent() - 1 - first + unused[static_cast<std::size_t>(axis - 2)];
    return slice(x, axis, first, behind == 0 ? to_end : -behind, along.stride);
  };
  std::vector<Tensor> taps;
  for (std::int64_t r = 0; r < rows.taps; ++r) {
    const Tensor band = seen_by(padded, 2, r);
    for (std::int64_t s = 0; s < columns.taps; ++s) {
      const Tensor seen = seen_by(band, 3, s);
      taps.push_back(unsqueeze(sum(mul(outputs, seen), {0, 2, 3}), -1));  // [groups, 1]
    }
  }
  return split_axis(stack(taps, -1), -1, {rows.taps, columns.taps});
}

Volume read_volume(std::string_view op, std::int64_t taps, const IntList& stride,
                   const IntList& padding, const IntList& dilation) {
  const auto check = [op](std::string_view attribute, const IntList& values, std::int64_t least) {
    if (values.empty() || (values.size() == 3 && values[0] >= least)) return;
    fail(Errc::bad_attribute, op,
         fmt::format("{} [{}] needs three values of at least {}", attribute,
                     fmt::join(values.span(), ", "), least));
  };
  check("stride", stride, 1);
  check("padding", padding, 0);
  check("dilation", dilation, 1);
  const auto first = [](const IntList& values, std::int64_t absent) {
    return values.empty() ? absent : values[0];
  };
  const auto others = [](const IntList& values) {
    return values.empty() ? IntList{} : IntList{values[1], values[2]};
  };
  const std::int64_t both = first(padding, 0);
  return {{taps, first(stride, 1), first(dilation, 1), both, both},
          others(stride),
          others(padding),
          others(dilation)};
}

}  // namespace tenon
