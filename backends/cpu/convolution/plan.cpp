#include "plan.hpp"

#include "../integer_math.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

/// Whether an output depends on the input of the same place alone.
bool is_point(const WindowAxis& axis) {
  return axis.taps == 1 && axis.stride == 1 && axis.inputs == axis.outputs;
}

}  // namespace

ImageSteps ImageSteps::of(const Operand& batch) noexcept {
  const std::int64_t unit = block_bytes(batch.shape.dtype());
  return {batch.strides[2] / unit, batch.strides[3] / unit,
          batch.shape[1] == 1 ? 1 : batch.strides[1] / unit, batch.strides[0] / unit};
}

ConvolutionPlan::ConvolutionPlan(const Convolution& conv)
    : x(ImageSteps::of(conv.x)), y(ImageSteps::of(conv.y)), rows(conv.rows), columns(conv.columns) {
  if (conv.residual) residual = ImageSteps::of(*conv.residual);
  const Shape& shape = conv.y.shape;
  grid = {shape[0], shape[2], shape[3], conv.filter.group_outputs()};
}

std::int64_t ConvolutionPlan::padded_width(const WindowAxis& columns) noexcept {
  return (columns.outputs - 1) * columns.stride + (columns.taps - 1) * columns.dilation + 1;
}

void ConvolutionPlan::read_padded_copy(const Convolution& conv, std::int64_t width) {
  const Shape& shape = conv.x.shape;
  x = {width * shape[1], shape[1], 1, shape[2] * width * shape[1]};
  columns.before = 0;
  columns.inputs = width;
}

void ConvolutionPlan::flatten(const Convolution& conv) {
  if (!is_point(rows) || !is_point(columns) || conv.filter.is_depthwise()) return;
  const Shape& shape = conv.y.shape;
  std::int64_t pixels = shape[3];
  const auto follow = [&](std::int64_t ImageSteps::* step) {
    return x.*step == pixels * x.column && y.*step == pixels * y.column &&
           (!conv.residual || residual.*step == pixels * residual.column);
  };
  if (shape[2] != 1 && !follow(&ImageSteps::row)) return;
  pixels *= shape[2];
  if (shape[0] != 1 && follow(&ImageSteps::image)) {
    pixels *= shape[0];
    grid.images = 1;
  }
  grid.rows = 1;
  grid.columns = pixels;
  rows.inputs = rows.outputs = 1;
  columns.inputs = columns.outputs = pixels;
}

bool ConvolutionPlan::put_images_across(const Convolution& conv) {
  constexpr std::int64_t narrow = 4;
  const Shape& shape = conv.y.shape;
  const auto is_even = [&](const ImageSteps& steps) {
    return shape[2] == 1 || steps.row == shape[3] * steps.column;
  };
  if (conv.filter.is_depthwise() || (is_point(rows) && is_point(columns))) return false;
  if (shape[3] > narrow || shape[0] < 2 * shape[3]) return false;
  if (!is_even(y) || (conv.residual && !is_even(residual))) return false;
  const auto put = [](ImageSteps& steps) { steps = {steps.column, steps.image, steps.channel, 0}; };
  put(y);
  put(residual);
  grid.images = 1;
  grid.rows = shape[2] * shape[3];
  grid.columns = shape[0];
  has_images_across = true;
  return true;
}

void ConvolutionPlan::divide(const Convolution& conv, std::int64_t threads, const Caches& caches) {
  const std::int64_t bands = ceil_div(grid.channels, 32);
  const std::int64_t groups = conv.filter.packed_groups();
  const std::int64_t pixels = grid.images * grid.rows * grid.columns;
  const bool by_columns = grid.rows == 1;
  const std::int64_t lines = by_columns ? grid.columns : grid.images * grid.rows * groups;
  const std::int64_t channels = conv.filter.is_depthwise() ? grid.channels : conv.filter.channels;
  const std::int64_t image_size = pixels * rows.stride * columns.stride * channels;
  const std::int64_t filter_size = bands * 32 * conv.filter.panel_elements() / 16;
  // Divided by pixels, a thread reads what it wrote itself; divided by channels, it reads a part of
  // the filter.
  const bool prefers_channels = filter_size > image_size && filter_size > caches.large;
  const bool by_channels = threads > 1 && bands >= threads &&
                           (prefers_channels || imbalance(lines, threads) > 1.1) &&
                           imbalance(bands, threads) <= imbalance(lines, threads) + 0.1;
  const auto rounded = [&](std::int64_t parts, std::int64_t most) {
    parts = round_up(std::max<std::int64_t>(parts, 1), threads);
    return std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(most, 1));
  };
  if (by_channels) {
    grid.channel_parts = rounded(filter_size / caches.cached, bands);
    return;
  }
  const std::int64_t parts = std::max<std::int64_t>(image_size / caches.cached, 1);
  const std::int64_t images = std::max<std::int64_t>(grid.images, 1);
  if (by_columns) {
    grid.column_parts = rounded(parts / images, ceil_div(grid.columns, 14));
  } else {
    grid.row_parts = rounded(ceil_div(parts, images), grid.rows);
  }
}

}  // namespace tenon::cpu
