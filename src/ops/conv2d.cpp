#include "ops/builder.hpp"
#include "ops/convolved.hpp"
#include "ops/filter_gradient.hpp"
#include "ops/open_sizes.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(conv2d, Conv2d);
TENON_DEFINE_OP(conv2d_filter_backward, Conv2dFilterBackward);

Shape Conv2d::infer(std::span<const Shape> in) const {
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
  check_channels(name, groups, x, w, operands);  // C4, C5
  Axis channels = w.axis_at(0);
  if (has_bias) channels = common_axis(name, w, 0, in[2], 0, "the output axis", operands);
  return convolved(name, *this, x, w, channels, operands);  // C6 to C8
}

void Conv2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  if (out.shape.elements() == 0) return;
  const auto [rows, columns] = convolution_window(name, *this, w);
  const std::vector<double> image = read_rows(in[0]);
  const std::vector<double> weights = read_rows(in[1]);
  const std::vector<double> bias =
      has_bias ? read_rows(in[2]) : std::vector<double>(static_cast<std::size_t>(w[0]));
  const std::int64_t group_outputs = w[0] / groups;

  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t first_channel = index[1] / group_outputs * w[1];
    double sum = bias[static_cast<std::size_t>(index[1])];
    const auto down = rows.taps_inside(index[2], x[2]);
    const auto across = columns.taps_inside(index[3], x[3]);
    for (std::int64_t c = 0; c < w[1]; ++c) {
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        const double* taps = weights.data() + ((index[1] * w[1] + c) * w[2] + r) * w[3];
        const double* line =
            image.data() +
            ((index[0] * x[1] + first_channel + c) * x[2] + rows.input(index[2], r)) * x[3];
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          sum += line[columns.input(index[3], s)] * taps[s];
        }
      }
    }
    store_double(out.shape.dtype(), next, sum);
    next += block_bytes(out.shape.dtype());
  });
}

namespace {

/// The gradient of conv2d by x: a transposed convolution. Without strides that is a convolution
/// with the filter turned by 180 degrees, whose kernels are faster.
Tensor image_gradient(const Conv2d& op, const Window& window, const Backward& at) {
  const Tensor &x = at.inputs[0], &w = at.inputs[1];
  if (window[0].stride == 1 && window[1].stride == 1) {
    Conv2d turned{.stride = {}, .padding = {}, .dilation = op.dilation, .groups = op.groups};
    for (const WindowAxis& axis : window) {
      turned.padding.push_back(axis.extent() - 1 - axis.before);
      turned.padding.push_back(axis.extent() - 1 - axis.after);
    }
    const Tensor grouped = split_axis(w, 0, {op.groups, -1});  // [groups, O / groups, ...]
    const Tensor filter = merge_axes(permute(grouped, {0, 2, 1, 3, 4}), 0, 1);
    return conv2d(at.upstream, flip(filter, {2, 3}), {}, turned);
  }
  ConvTranspose2d back{.stride = op.stride,
                       .padding = {},
                       .output_padding = {},
                       .dilation = op.dilation,
                       .groups = op.groups};
  const auto is_open = [&](int axis) {
    return !is_static(x.dim(axis)) || !is_static(at.upstream.dim(axis));
  };
  for (int i = 0; i < 2; ++i) {
    const WindowAxis& axis = window[static_cast<std::size_t>(i)];
    // Elements that no window reaches, of which there are less than a stride. Where their number is
    // not known: all that there can be, and padding as well, to choose from.
    back.output_padding.push_back(is_open(2 + i)
                                      ? axis.stride - 1
                                      : x.dim(2 + i) + axis.before + axis.after - axis.extent() -
                                            (at.upstream.dim(2 + i) - 1) * axis.stride);
    back.padding.push_back(is_open(2 + i) ? 0 : axis.before);
    back.padding.push_back(is_open(2 + i) ? 0 : axis.after);
  }
  Tensor dx = conv_transpose2d(at.upstream, w, {}, back);
  for (int i = 0; i < 2; ++i) {
    const WindowAxis& axis = window[static_cast<std::size_t>(i)];
    if (is_open(2 + i)) dx = elements_like(dx, 2 + i, axis.before, x);
  }
  return dx;
}

}  // namespace

std::vector<Tensor> Conv2d::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &w = at.inputs[1];
  require_known_sizes(name, w.shape(), 2);
  const Window window = convolution_window(name, *this, w.shape());
  std::vector<Tensor> result{image_gradient(*this, window, at),
                             filter_gradient(name, x, at.upstream, window, groups)};
  if (has_bias) result.push_back(sum(at.upstream, {0, 2, 3}));
  return result;
}

double Conv2d::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& w = in[1];  // [O, C / groups, KH, KW]
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

Shape Conv2dFilterBackward::infer(std::span<const Shape> in) const {
  if (in.size() != 2) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs 2", in.size()));
  }
  const Shape &x = in[0], &upstream = in[1];
  constexpr std::array<std::string_view, 2> names{"x", "upstream"};
  const std::string operands = operands_text(names, in);
  for (const Shape& operand : in) require_floating(name, operand);  // C2
  require_rank(name, "x", x, 4);                                    // C3
  require_rank(name, "upstream", upstream, 4);
  if (x.dtype() != upstream.dtype() || !sizes_agree(x[0], upstream[0])) {
    fail(Errc::shape_mismatch, name, fmt::format("dtypes or batches differ: {}", operands));
  }
  if (!is_static(x[1]) || !is_static(upstream[1])) {  // C6
    fail(Errc::unsupported, name, fmt::format("the channels are not known: {}", operands));
  }
  if (groups < 1 || x[1] % groups != 0 || upstream[1] % groups != 0) {  // C4
    fail(Errc::bad_attribute, name,
         fmt::format("{} groups do not divide the channels: {}", groups, operands));
  }
  if (kernel.empty()) fail(Errc::bad_attribute, name, "kernel is missing");  // C5
  const auto taps = pair_of(name, "kernel", kernel, 1, 1);
  read_window_lists(name, taps, stride, padding, dilation);
  return Shape({upstream[1], x[1] / groups, taps[0], taps[1]}, x.dtype());
}

void Conv2dFilterBackward::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape &x = in[0].shape, &upstream = in[1].shape;
  const auto [rows, columns] =
      read_window_lists(name, {kernel[0], kernel[1]}, stride, padding, dilation);
  const std::vector<double> image = read_rows(in[0]);
  const std::vector<double> given = read_rows(in[1]);
  const std::int64_t channels = x[1] / groups, outputs = upstream[1] / groups;
  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t channel = outputs == 0 ? 0 : index[0] / outputs * channels + index[1];
    double sum = 0;
    for (std::int64_t n = 0; n < x[0]; ++n) {
      const double* const plane = image.data() + (n * x[1] + channel) * x[2] * x[3];
      const double* from = given.data() + (n * upstream[1] + index[0]) * upstream[2] * upstream[3];
      for (std::int64_t i = 0; i < upstream[2]; ++i) {
        const std::int64_t row = rows.input(i, index[2]);
        for (std::int64_t j = 0; j < upstream[3]; ++j, ++from) {
          const std::int64_t column = columns.input(j, index[3]);
          const bool inside = row >= 0 && row < x[2] && column >= 0 && column < x[3];
          sum += *from * (inside ? plane[row * x[3] + column] : 0.0);
        }
      }
    }
    store_double(out.shape.dtype(), next, sum);
    next += block_bytes(out.shape.dtype());
  });
}

/// By x: the transposed convolution of upstream by the gradient; by upstream: the convolution of x.
/// Both on an image that is padded so far that every window lies in it.
std::vector<Tensor> Conv2dFilterBackward::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &upstream = at.inputs[1], &filter = at.upstream;
  const Window window = read_window_lists(name, {kernel[0], kernel[1]}, stride, padding, dilation);
  const auto is_open = [&](int axis) {
    return !is_static(x.dim(axis)) || !is_static(upstream.dim(axis));
  };
  Tensor image = x;
  Tensor dx = conv_transpose2d(upstream, filter, {},
                               {.stride = stride, .dilation = dilation, .groups = groups});
  for (int i = 0; i < 2; ++i) {
    const int axis = 2 + i;
    const WindowAxis& w = window[static_cast<std::size_t>(i)];
    if (is_open(axis)) {
      image = elements_like(image, axis, -w.before, dx);
      dx = elements_like(dx, axis, w.before, x);
      continue;
    }
    const std::int64_t seen = (upstream.dim(axis) - 1) * w.stride + w.extent();
    const std::int64_t size = std::max(w.before + x.dim(axis), seen);
    image = pad(image, axis, w.before, size - w.before - x.dim(axis));
    dx = slice(pad(dx, axis, 0, size - seen), axis, w.before, w.before + x.dim(axis));
  }
  Tensor given =
      conv2d(image, filter, {}, {.stride = stride, .dilation = dilation, .groups = groups});
  for (int axis = 2; axis < 4; ++axis) {
    if (!is_open(axis)) given = slice(given, axis, 0, upstream.dim(axis));
  }
  return {dx, given};
}

double Conv2dFilterBackward::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& upstream = in[1];
  return 2.0 * static_cast<double>(out.elements()) *
         static_cast<double>(upstream[0] * upstream[2] * upstream[3]);
}

Tensor conv2d_filter_backward(const Tensor& x, const Tensor& upstream,
                              const Conv2dFilterBackward& options,
                              const std::source_location& where) {
  return record(options, {x, upstream}, where);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2d& options,
              const std::source_location& where) {
  Conv2d op = options;
  op.has_bias = !bias.is_empty();
  return op.has_bias ? record(op, {x, w, bias}, where) : record(op, {x, w}, where);
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dOptions& options,
              const std::source_location& where) {
  const Conv2d op{.stride = {1, options.stride},
                  .padding = {0, 0, options.padding_left, options.padding_right},
                  .dilation = {1, options.dilation},
                  .groups = options.groups};
  const Tensor y =
      conv2d(unsqueeze(x, -2, {}, where), unsqueeze(w, -2, {}, where), bias, op, where);
  return squeeze(y, 2, where);
}

namespace {

/// The slices of x, padded, [N, C, D, H, W] that a tap of the depth meets, one for each slice of the result.
Tensor slices_of(const Tensor& padded, const WindowAxis& depth, std::int64_t outputs,
                 std::int64_t tap, const std::source_location& where) {
  const std::int64_t first = tap * depth.dilation;
  return slice(padded, 2, first, first + (outputs - 1) * depth.stride + 1, depth.stride, where);
}

/// [N * D', O, H', W'] by one conv2d, whose channels are those of the slices that a slice of the result sees.
Tensor with_stacked_taps(const Tensor& padded, const Tensor& w, const Tensor& bias,
                         const WindowAxis& depth, std::int64_t outputs, const Conv2d& op,
                         const std::source_location& where) {
  std::vector<Tensor> taps;
  for (std::int64_t tap = 0; tap < depth.taps; ++tap) {
    taps.push_back(slices_of(padded, depth, outputs, tap, where));
  }
  Tensor images = stack(taps, 2, {}, where);            // [N, C, KD, D', H, W]
  images = permute(images, {0, 3, 1, 2, 4, 5}, where);  // [N, D', C, KD, H, W]
  images = merge_axes(merge_axes(images, 2, 3, {}, where), 0, 1, {}, where);
  return conv2d(images, merge_axes(w, 1, 2, {}, where), bias, op, where);
}

/// The same as a sum of conv2ds of a tap each: where each group has one channel, these are depthwise.
Tensor with_summed_taps(const Tensor& padded, const Tensor& w, const Tensor& bias,
                        const WindowAxis& depth, std::int64_t outputs, const Conv2d& op,
                        const std::source_location& where) {
  Tensor y;
  for (std::int64_t tap = 0; tap < depth.taps; ++tap) {
    const Tensor met = slices_of(padded, depth, outputs, tap, where);
    const Tensor images =
        merge_axes(permute(met, {0, 2, 1, 3, 4}, where), 0, 1, {}, where);  // [N * D', C, H, W]
    const Tensor filter = squeeze(slice(w, 2, tap, tap + 1, 1, where), 2, where);
    const Tensor part = conv2d(images, filter, tap == 0 ? bias : Tensor(), op, where);
    y = tap == 0 ? part : add(y, part, where);
  }
  return y;
}

}  // namespace

Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dOptions& options,
              const std::source_location& where) {
  constexpr std::string_view name = "conv3d";
  const Volume volume = located(where, name, [&] {
    require_rank(name, "x", x.shape(), 5);
    require_rank(name, "w", w.shape(), 5);
    for (const Shape& shape : {x.shape(), w.shape()}) {
      if (!is_static(shape[2])) {
        fail(Errc::unsupported, name,
             fmt::format("the depth of {} is not known", to_string(shape)));
      }
    }
    return read_volume(name, w.shape()[2], options.stride, options.padding, options.dilation);
  });
  const WindowAxis& depth = volume.depth;
  const std::int64_t outputs = located(where, name, [&] {
    return window_outputs(name, depth, x.dim(2),
                          to_string(x.shape()) + ", " + to_string(w.shape()));
  });
  const Tensor padded = depth.before + depth.after > 0
                            ? pad(x.with_tags({}), 2, depth.before, depth.after, 0, where)
                            : x.with_tags({});
  const Conv2d op{.stride = volume.plane_stride,
                  .padding = volume.plane_padding,
                  .dilation = volume.plane_dilation,
                  .groups = options.groups};
  // The sum is rounded after every tap, which narrow types cannot afford.
  const bool is_wide = x.dtype() == DType::f32 || x.dtype() == DType::f64;
  const bool is_summed = is_wide && options.groups > 1 && w.shape()[1] == 1;
  const Tensor y = (is_summed ? with_summed_taps : with_stacked_taps)(padded, w.with_tags({}), bias,
                                                                      depth, outputs, op, where);
  return permute(split_axis(y, 0, {-1, outputs}, where), {0, 2, 1, 3, 4}, where);
}

}  // namespace tenon
