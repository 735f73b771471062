// The gradient of a filter of 3 by 3 taps by Winograd's filtering: for each of the 36 numbers a GEMM
// over the tiles of the batch, transformed block by block. A thread owns some output channels, or
// some input channels where there are too few, and sums them over all tiles in their order: the bits
// do not depend on the number of threads.
#include "filter_backward.hpp"

#include "../../integer_math.hpp"
#include "../../tasks/windows.hpp"
#include "../image_source.hpp"
#include "array/transpose.hpp"
#include "plan.hpp"

#include <tenon/ops/conv2d.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tenon::cpu::winograd {
namespace {

constexpr std::int64_t tile_rows = FilterTile::rows, panel_width = FilterTile::columns;
/// Tiles whose numbers are in memory at once: as deep as sums are long before they are added up.
constexpr std::int64_t block_tiles = 96;
/// Sums of a thread: a larger part of the filter is done in pieces.
constexpr std::int64_t max_sums = 1 << 20;

Sizes sizes_of(const Step& step) {
  const auto& op = *step.op.as<Conv2dFilterBackward>();
  const Shape &x = step.inputs[0].shape, &u = step.inputs[1].shape;
  const auto axis = [&](int i) {
    return window_axis(static_cast<std::size_t>(i), x[2 + i], u[2 + i],
                       op.kernel[static_cast<std::size_t>(i)], op.stride, 1, op.padding,
                       op.dilation);
  };
  return {u[0], x[1], u[1], op.groups, axis(0), axis(1)};
}

class FilterBackwardTask final : public Task {
 public:
  FilterBackwardTask(const Step& step, Compiler& compiler)
      : sizes_(sizes_of(step)),
        tiles_(sizes_),
        x_(step.inputs[0]),
        upstream_(step.inputs[1]),
        y_(step.output) {
    const std::int64_t channels = sizes_.channels, outputs = sizes_.outputs;
    divide(std::max(compiler.threads(), 1));
    part_outputs_ = round_up(ceil_div(outputs, output_parts_), tile_rows);
    part_channels_ = round_up(ceil_div(channels, channel_parts_), panel_width);
    output_step_ = round_up(part_outputs_, panel_width);
    compiler.working_memory(4 * (input_floats() + upstream_floats() + sum_floats() + tap_floats()));
    image_ = ImageSource::channels_last(x_, x_steps_, compiler);
    given_ = ImageSource::channels_last(upstream_, upstream_steps_, compiler);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = context.share(output_parts_ * channel_parts_);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t output = i / channel_parts_ * part_outputs_;
      const std::int64_t channel = i % channel_parts_ * part_channels_;
      const Part part{output, std::min(part_outputs_, sizes_.outputs - output), channel,
                      std::min(part_channels_, sizes_.channels - channel)};
      if (part.outputs > 0 && part.channels > 0) compute(context, part);
    }
  }

 private:
  struct Part {
    std::int64_t output, outputs, channel, channels;
  };
  /// Of this thread.
  struct Memory {
    float* inputs;    // [number][panel][tile][channel of the panel]
    float* upstream;  // [number][tile][output]
    float* sums;      // [number][output][channel]
    float* taps;      // [tap][channel]
  };

  /// Into the parts of which the busiest thread has the least to multiply.
  void divide(std::int64_t threads) {
    const std::int64_t rows = ceil_div(sizes_.outputs, tile_rows);
    const std::int64_t panels = ceil_div(sizes_.channels, panel_width);
    const std::int64_t max_rows =
        std::max<std::int64_t>(max_sums / (numbers * sizes_.channels) / tile_rows, 1);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t by_channels = 1; by_channels <= std::min(threads, panels); ++by_channels) {
      const std::int64_t by_outputs =
          std::min(std::max(ceil_div(threads, by_channels), ceil_div(rows, max_rows)), rows);
      const std::int64_t work = ceil_div(by_channels * by_outputs, threads) *
                                ceil_div(rows, by_outputs) * ceil_div(panels, by_channels);
      if (work >= least) continue;
      least = work;
      output_parts_ = by_outputs;
      channel_parts_ = by_channels;
    }
  }

  std::int64_t input_number() const { return block_tiles * part_channels_; }
  std::int64_t upstream_number() const { return block_tiles * output_step_; }
  std::int64_t sum_number() const { return part_outputs_ * part_channels_; }
  std::int64_t input_floats() const { return numbers * input_number(); }
  std::int64_t upstream_floats() const { return numbers * upstream_number(); }
  std::int64_t sum_floats() const { return numbers * sum_number(); }
  std::int64_t tap_floats() const { return 9 * part_channels_; }

  void compute(const TaskContext& context, const Part& part) const noexcept {
    Memory memory;
    memory.inputs = reinterpret_cast<float*>(context.working_memory());
    memory.upstream = memory.inputs + input_floats();
    memory.sums = memory.upstream + upstream_floats();
    memory.taps = memory.sums + sum_floats();
    // Channels behind the last one are multiplied, too.
    std::fill_n(memory.upstream, upstream_floats(), 0.0f);
    if (part.channels % panel_width != 0) std::fill_n(memory.inputs, input_floats(), 0.0f);
    for (std::int64_t first = 0; first < tiles_.count(); first += block_tiles) {
      const Range block{first, std::min(first + block_tiles, tiles_.count())};
      transform(context, part, block, memory);
      multiply(part, block.end - block.begin, first > 0, memory);
    }
    store(context, part, memory);
  }

  void transform(const TaskContext& context, const Part& part, const Range& block,
                 const Memory& memory) const noexcept {
    const float* const x = image_.at(context, x_) + part.channel;
    const float* const given = given_.at(context, upstream_) + part.output;
    const WindowAxis rows{sizes_.rows.outputs, 0, 0, 1, 1, 0},
        columns{sizes_.columns.outputs, 0, 0, 1, 1, 0};
    tiles_.for_runs(block, [&](const Tiles::Run& run, std::int64_t done) {
      for (std::int64_t c = 0; c < part.channels; c += panel_width) {
        const InputJob job{x_steps_.at(x + run.image * x_steps_.image + c),
                           sizes_.rows,
                           sizes_.columns,
                           std::min(panel_width, part.channels - c),
                           memory.inputs + c * block_tiles + done * panel_width,
                           input_number(),
                           panel_width};
        transforms().input(job, run.tiles);
      }
      const InputJob job{upstream_steps_.at(given + run.image * upstream_steps_.image),
                         rows,
                         columns,
                         part.outputs,
                         memory.upstream + done * output_step_,
                         upstream_number(),
                         output_step_};
      transforms().upstream(job, run.tiles);
    });
  }

  void multiply(const Part& part, std::int64_t depth, bool adds,
                const Memory& memory) const noexcept {
    for (std::int64_t n = 0; n < numbers; ++n) {
      FilterTile tile{memory.upstream + n * upstream_number(),
                      output_step_,
                      memory.inputs + n * input_number(),
                      block_tiles * panel_width,
                      depth,
                      memory.sums + n * sum_number(),
                      part_channels_,
                      adds};
      for (std::int64_t o = 0; o < part.outputs; o += tile_rows) {
        convolution_kernels().filter_tiles(tile, ceil_div(part.channels, panel_width));
        tile.a += tile_rows;
        tile.c += tile_rows * part_channels_;
      }
    }
  }

  void store(const TaskContext& context, const Part& part, const Memory& memory) const noexcept {
    constexpr std::int64_t taps = 9, unit = sizeof(float);
    auto* const y = context.pointer<float>(y_);
    for (std::int64_t o = 0; o < part.outputs; ++o) {
      transforms().taps({memory.sums + o * part_channels_, sum_number(), memory.taps,
                         part_channels_, round_up(part.channels, panel_width)});
      float* const to = y + ((part.output + o) * sizes_.channels + part.channel) * taps;
      transpose(reinterpret_cast<const std::byte*>(memory.taps), part_channels_ * unit,
                reinterpret_cast<std::byte*>(to), taps * unit, part.channels, taps, unit);
    }
  }

  Sizes sizes_;
  Tiles tiles_;
  Operand x_, upstream_, y_;
  ImageSteps x_steps_, upstream_steps_;
  ImageSource image_ = ImageSource::in_place(), given_ = ImageSource::in_place();
  std::int64_t output_parts_ = 1, channel_parts_ = 1, part_outputs_ = 0, part_channels_ = 0;
  std::int64_t output_step_ = 0;  ///< from a tile's numbers of the upstream gradient to the next
};

}  // namespace

std::unique_ptr<Task> make_filter_backward(const Step& step, Compiler& compiler) {
  const Sizes sizes = sizes_of(step);
  if (compiler.exact() || !sizes.can_run() || !sizes.is_profitable(min_tiles)) return nullptr;
  return std::make_unique<FilterBackwardTask>(step, compiler);
}

}  // namespace tenon::cpu::winograd
