// The gradient of a convolution's filter: by Winograd's filtering where that is faster, plane by plane where groups have few
// channels, or as a GEMM over the pixels of the result. Blocks of pixels are copied into panels: the upstream
// gradient with its channels last, and for each tap the pixels of x that it meets, from an image
// with its channels last. A thread owns some output channels, or some of the filter's input
// channels where there are too few, and sums them over all pixels in their order: the bits do not
// depend on the number of threads.
#include "../convolution/convolution_kernels.hpp"
#include "../convolution/image_source.hpp"
#include "../convolution/winograd/filter_backward.hpp"
#include "../integer_math.hpp"
#include "../task.hpp"
#include "array/transpose.hpp"
#include "conv_f64.hpp"
#include "plane_filter_backward.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/conv2d.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

constexpr std::int64_t tile_rows = FilterTile::rows, panel_width = FilterTile::columns;
/// Pixels of a block, and the panels of x that are copied for it at once.
constexpr std::int64_t block_pixels = 384, block_panels = 4;
/// Input channels below which a tap's row is one run of columns.
constexpr std::int64_t few_channels = 32;
/// Columns of a result up to which its pixels are in the order of their places, and images from
/// which on.
constexpr std::int64_t narrow_columns = 4, min_images = 8;
constexpr std::int64_t unit = sizeof(float);

class FilterBackwardTask final : public Task {
 public:
  FilterBackwardTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), upstream_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<Conv2dFilterBackward>();
    const Shape &x = x_.shape, &u = upstream_.shape;
    rows_ = window_axis(0, x[2], u[2], op.kernel[0], op.stride, 1, op.padding, op.dilation);
    columns_ = window_axis(1, x[3], u[3], op.kernel[1], op.stride, 1, op.padding, op.dilation);
    groups_ = op.groups;
    channels_ = x[1] / groups_;
    outputs_ = u[1] / groups_;
    pixels_ = u[0] * u[2] * u[3];
    joins_taps_ = channels_ < few_channels && columns_.dilation == 1 && groups_ == 1;
    by_place_ = !joins_taps_ && u[3] <= narrow_columns && u[0] >= min_images;

    const std::int64_t threads = std::max(compiler.threads(), 1);
    output_parts_ = std::clamp<std::int64_t>(ceil_div(outputs_, tile_rows), 1, threads);
    const std::int64_t wanted = ceil_div(threads, output_parts_ * groups_);
    channel_parts_ =
        joins_taps_ ? 1 : std::clamp<std::int64_t>(ceil_div(channels_, panel_width), 1, wanted);
    part_outputs_ =
        round_up(ceil_div(std::max<std::int64_t>(outputs_, 1), output_parts_), tile_rows);
    part_channels_ =
        joins_taps_
            ? channels_
            : round_up(ceil_div(std::max<std::int64_t>(channels_, 1), channel_parts_), panel_width);
    run_ = joins_taps_ ? channels_ * columns_.taps : part_channels_;
    run_panels_ = ceil_div(run_, panel_width);
    runs_ = rows_.taps * (joins_taps_ ? 1 : columns_.taps);
    compiler.working_memory(unit * (upstream_floats() + patch_floats() + sum_floats()));
    image_ = ImageSource::channels_last(x_, x_steps_, compiler);
    if (by_place_) given_ = ImageSource::channels_last(upstream_, upstream_steps_, compiler);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t parts = output_parts_ * channel_parts_;
    const Range range = context.share(groups_ * parts);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t group = i / parts, part = i % parts;
      const std::int64_t output = part / channel_parts_ * part_outputs_;
      const std::int64_t channel = part % channel_parts_ * part_channels_;
      const Part own{group, output, std::min(part_outputs_, outputs_ - output), channel,
                     std::min(part_channels_, channels_ - channel)};
      if (own.outputs > 0 && own.channels > 0) compute(context, own);
    }
  }

 private:
  /// Output and input channels of a group.
  struct Part {
    std::int64_t group, output, outputs, channel, channels;
  };

  std::int64_t upstream_floats() const { return block_pixels * part_outputs_; }
  std::int64_t patch_floats() const { return block_pixels * block_panels * panel_width; }
  std::int64_t sum_step() const { return runs_ * run_panels_ * panel_width; }
  std::int64_t sum_floats() const { return part_outputs_ * sum_step(); }

  void compute(const TaskContext& context, const Part& part) const noexcept {
    auto* const given = reinterpret_cast<float*>(context.working_memory());
    float* const patches = given + upstream_floats();
    float* const sums = patches + patch_floats();
    const std::int64_t tiles = ceil_div(part.outputs, tile_rows), panels = runs_ * run_panels_;
    if (pixels_ == 0) std::fill_n(sums, sum_floats(), 0.0f);
    for (std::int64_t first = 0; first < pixels_; first += block_pixels) {
      const std::int64_t depth = std::min(block_pixels, pixels_ - first);
      if (by_place_) {
        copy_upstream_by_place(context, part, {first, first + depth}, given);
        for (std::int64_t run = 0; run < runs_; ++run) {
          add_tap(context, part, run, {first, first + depth}, given, patches, sums);
        }
        continue;
      }
      copy_upstream(context, part, first, depth, given);
      for (std::int64_t panel = 0; panel < panels; panel += block_panels) {
        const std::int64_t count = std::min(block_panels, panels - panel);
        for (std::int64_t i = 0; i < count; ++i) {
          copy_patches(context, part, panel + i, first, depth, patches + i * depth * panel_width);
        }
        FilterTile tile{
            given,      tile_rows, patches, depth * panel_width, depth, sums + panel * panel_width,
            sum_step(), first > 0};
        for (std::int64_t t = 0; t < tiles; ++t) {
          convolution_kernels().filter_tiles(tile, count);
          tile.a += depth * tile_rows;
          tile.c += tile_rows * sum_step();
        }
      }
    }
    store(context, part, sums);
  }

  // Narrow images: pixel k of the result is image k % images of place k / images. A tap meets
  // runs of such pixels, of which the others are left out; they are many where images are small.

  std::int64_t images() const { return upstream_.shape[0]; }

  /// As copy_upstream, for the pixels of a block.
  void copy_upstream_by_place(const TaskContext& context, const Part& part, Range block,
                              float* to) const noexcept {
    const float* const from = given_.at(context, upstream_) + part.group * outputs_ + part.output;
    for (std::int64_t output = 0; output < part.outputs; output += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, part.outputs - output);
      for (std::int64_t k = block.begin; k < block.end; ++k, to += tile_rows) {
        const float* const pixel = from + k % images() * upstream_steps_.image +
                                   k / images() * upstream_steps_.column + output;
        for (std::int64_t r = 0; r < tile_rows; ++r) to[r] = r < rows ? pixel[r] : 0.0f;
      }
    }
  }

  /// Adds to the sums of a tap what the pixels of a block give.
  void add_tap(const TaskContext& context, const Part& part, std::int64_t tap, Range block,
               const float* given, float* patches, float* sums) const noexcept {
    const std::int64_t width = columns_.outputs, depth = block.end - block.begin;
    const auto input = [](const WindowAxis& axis, std::int64_t output, std::int64_t t) {
      return output * axis.stride + t * axis.dilation - axis.before;
    };
    const auto is_inside = [&](const WindowAxis& axis, std::int64_t output, std::int64_t t) {
      return input(axis, output, t) >= 0 && input(axis, output, t) < axis.inputs;
    };
    const std::int64_t row_tap = tap / columns_.taps, column_tap = tap % columns_.taps;
    std::int64_t left = 0, right = width;
    while (left < right && !is_inside(columns_, left, column_tap)) ++left;
    while (left < right && !is_inside(columns_, right - 1, column_tap)) --right;
    for (std::int64_t panel = 0; panel < run_panels_; panel += block_panels) {
      const std::int64_t count = std::min(block_panels, run_panels_ - panel);
      float* const sum = sums + (tap * run_panels_ + panel) * panel_width;
      bool adds = block.begin > 0;
      for (std::int64_t i = block.begin / images() / width;
           i < rows_.outputs && i * width * images() < block.end; ++i) {
        const Range pixels{std::max((i * width + left) * images(), block.begin),
                           std::min((i * width + right) * images(), block.end)};
        if (pixels.begin >= pixels.end || !is_inside(rows_, i, row_tap)) continue;
        const std::int64_t length = pixels.end - pixels.begin;
        const float* const line = image_.at(context, x_) + input(rows_, i, row_tap) * x_steps_.row +
                                  part.group * channels_ + part.channel;
        for (std::int64_t p = 0; p < count; ++p) {
          copy_places(line, part, (panel + p) * panel_width, i * width, column_tap, pixels,
                      patches + p * length * panel_width);
        }
        FilterTile tile{given + (pixels.begin - block.begin) * tile_rows,
                        tile_rows,
                        patches,
                        length * panel_width,
                        length,
                        sum,
                        sum_step(),
                        adds};
        for (std::int64_t o = 0; o < part.outputs; o += tile_rows) {
          convolution_kernels().filter_tiles(tile, count);
          tile.a += depth * tile_rows;
          tile.c += tile_rows * sum_step();
        }
        adds = true;
      }
      if (adds) continue;
      for (std::int64_t o = 0; o < part_outputs_; ++o) {
        std::fill_n(sum + o * sum_step(), count * panel_width, 0.0f);
      }
    }
  }

  /// Channels from `channel` on of the pixels that a tap meets in a row of the image.
  void copy_places(const float* line, const Part& part, std::int64_t channel,
                   std::int64_t first_place, std::int64_t column_tap, Range pixels,
                   float* to) const noexcept {
    const std::int64_t wanted = std::clamp<std::int64_t>(part.channels - channel, 0, panel_width);
    if (wanted < panel_width) std::fill_n(to, (pixels.end - pixels.begin) * panel_width, 0.0f);
    for (std::int64_t k = pixels.begin; k < pixels.end; ++k, to += panel_width) {
      const std::int64_t j = k / images() - first_place;
      const std::int64_t column =
          j * columns_.stride + column_tap * columns_.dilation - columns_.before;
      const float* const from =
          line + k % images() * x_steps_.image + column * x_steps_.column + channel;
      if (wanted == panel_width) {
        std::memcpy(to, from, panel_width * sizeof(float));
      } else {
        std::copy_n(from, wanted, to);
      }
    }
  }

  /// Calls run(image, row, column, count, k) for the pixels [first, first + depth) of the result, row
  /// by row.
  template <class Run>
  void for_each_run(std::int64_t first, std::int64_t depth, const Run& run) const {
    const std::int64_t width = columns_.outputs, height = rows_.outputs;
    for (std::int64_t k = 0; k < depth;) {
      const std::int64_t line = (first + k) / width, column = (first + k) % width;
      const std::int64_t count = std::min(width - column, depth - k);
      run(line / height, line % height, column, count, k);
      k += count;
    }
  }

  /// [tile][pixel][row of the tile], zeros behind the last channel.
  void copy_upstream(const TaskContext& context, const Part& part, std::int64_t first,
                     std::int64_t depth, float* to) const noexcept {
    const std::int64_t plane = rows_.outputs * columns_.outputs;
    const auto* from = context.pointer<const float>(upstream_);
    for (std::int64_t output = 0; output < part.outputs; output += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, part.outputs - output);
      if (rows < tile_rows) std::fill_n(to, depth * tile_rows, 0.0f);
      for (std::int64_t k = 0; k < depth;) {
        const std::int64_t image = (first + k) / plane, pixel = (first + k) % plane;
        const std::int64_t count = std::min(plane - pixel, depth - k);
        const float* line =
            from + ((image * groups_ + part.group) * outputs_ + part.output + output) * plane +
            pixel;
        transpose(reinterpret_cast<const std::byte*>(line), plane * unit,
                  reinterpret_cast<std::byte*>(to + k * tile_rows), tile_rows * unit, count, rows,
                  unit);
        k += count;
      }
      to += depth * tile_rows;
    }
  }

  /// [pixel][column of the panel], zeros outside of the image and behind the last column.
  void copy_patches(const TaskContext& context, const Part& part, std::int64_t panel,
                    std::int64_t first, std::int64_t depth, float* to) const noexcept {
    const std::int64_t run = panel / run_panels_, begin = panel % run_panels_ * panel_width;
    const std::int64_t run_size = joins_taps_ ? run_ : part.channels;
    const std::int64_t wanted = std::min(panel_width, run_size - begin);
    if (wanted < panel_width) std::fill_n(to, depth * panel_width, 0.0f);
    if (wanted <= 0) return;
    const std::int64_t row_tap = joins_taps_ ? run : run / columns_.taps;
    const std::int64_t column_tap = joins_taps_ ? 0 : run % columns_.taps;
    const std::int64_t all = groups_ * channels_;
    const auto* x = image_.at(context, x_) + part.group * channels_ + part.channel + begin;
    for_each_run(first, depth,
                 [&](std::int64_t image, std::int64_t i, std::int64_t j, std::int64_t count,
                     std::int64_t k) {
                   const std::int64_t row =
                       i * rows_.stride + row_tap * rows_.dilation - rows_.before;
                   const bool is_inside = row >= 0 && row < rows_.inputs;
                   const float* line = x + (image * rows_.inputs + row) * columns_.inputs * all;
                   std::int64_t column =
                       j * columns_.stride + column_tap * columns_.dilation - columns_.before;
                   float* at = to + k * panel_width;
                   for (std::int64_t n = 0; n < count; ++n) {
                     // Elements of the run that lie inside: of one pixel, or of several where taps are joined.
                     std::int64_t low = 0, high = is_inside ? wanted : 0;
                     if (joins_taps_) {
                       low = std::clamp<std::int64_t>(-column * channels_ - begin, 0, high);
                       high = std::clamp<std::int64_t>(
                           (columns_.inputs - column) * channels_ - begin, low, high);
                     } else if (column < 0 || column >= columns_.inputs) {
                       high = 0;
                     }
                     if (low == 0 && high == panel_width) {
                       std::memcpy(at, line + column * all, panel_width * sizeof(float));
                     } else {
                       for (std::int64_t e = 0; e < low; ++e) at[e] = 0;
                       for (std::int64_t e = low; e < high; ++e) at[e] = line[column * all + e];
                       for (std::int64_t e = high; e < wanted; ++e) at[e] = 0;
                     }
                     at += panel_width;
                     column += columns_.stride;
                   }
                 });
  }

  /// The sums of an output channel, [tap][channel], as [channel][tap].
  void store(const TaskContext& context, const Part& part, const float* sums) const noexcept {
    const std::int64_t taps = rows_.taps * columns_.taps;
    auto* const y = context.pointer<float>(y_);
    const auto move = [&](const float* from, std::int64_t from_step, float* to,
                          std::int64_t columns) {
      transpose(reinterpret_cast<const std::byte*>(from), from_step * unit,
                reinterpret_cast<std::byte*>(to), taps * unit, part.channels, columns, unit);
    };
    for (std::int64_t o = 0; o < part.outputs; ++o) {
      const float* from = sums + o * sum_step();
      float* to = y + ((part.group * outputs_ + part.output + o) * channels_ + part.channel) * taps;
      if (!joins_taps_) {
        move(from, run_panels_ * panel_width, to, taps);
        continue;
      }
      for (std::int64_t r = 0; r < rows_.taps; ++r) {
        move(from + r * run_panels_ * panel_width, channels_, to + r * columns_.taps,
             columns_.taps);
      }
    }
  }

  Operand x_, upstream_, y_;
  WindowAxis rows_{}, columns_{};
  std::int64_t groups_ = 1, channels_ = 0, outputs_ = 0, pixels_ = 0;
  bool joins_taps_ = false;
  std::int64_t output_parts_ = 1, channel_parts_ = 1, part_outputs_ = 0, part_channels_ = 0;
  /// Columns in a row: the channels of a tap, or of all taps of a row; panels of them, and their
  /// number.
  std::int64_t run_ = 0, run_panels_ = 0, runs_ = 0;
  bool by_place_ = false;
  ImageSource image_ = ImageSource::in_place(), given_ = ImageSource::in_place();
  ImageSteps x_steps_, upstream_steps_;
};

std::optional<std::string> refuses_filter_backward(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (auto why = needs_dense(step.inputs[0], "x")) return why;
  return needs_dense(step.inputs[1], "upstream");
}

std::unique_ptr<Task> make_filter_backward(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_conv2d_filter_backward_f64(step, compiler);
  if (auto task = winograd::make_filter_backward(step, compiler)) return task;
  if (auto task = make_plane_filter_backward(step, compiler)) return task;
  return std::make_unique<FilterBackwardTask>(step, compiler);
}

}  // namespace

extern const Kernel conv2d_filter_backward_kernel;
constinit const Kernel conv2d_filter_backward_kernel{op_def<Conv2dFilterBackward>,
                                                     refuses_filter_backward, make_filter_backward};

}  // namespace tenon::cpu
