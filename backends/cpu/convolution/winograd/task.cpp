#include "task.hpp"

#include "../../cache_sizes.hpp"
#include "../../tasks/image_task.hpp"
#include "../channels_last.hpp"
#include "../image_source.hpp"
#include "../plan.hpp"
#include "plan.hpp"
#include "winograd.hpp"

#include <algorithm>
#include <limits>

namespace tenon::cpu::winograd {
namespace {

class WinogradTask final : public Task {
 public:
  WinogradTask(const Convolution& conv, Compiler& compiler)
      : conv_(conv),
        plan_(conv, compiler.threads(), cache_sizes()),
        filter_(conv, compiler, FilterForm::winograd),
        places_(conv) {
    if (!has_channels_last(conv.x))
      image_ = ImageSource::channels_last(conv.x, places_.x, compiler);
    compiler.working_memory(plan_.working_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const Range items = context.share(plan_.items());
    Memory memory;
    memory.inputs = reinterpret_cast<float*>(context.working_memory());
    memory.outputs = memory.inputs + numbers * plan_.input_number();
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      if (context.worker.is_interrupted()) return;
      const Range tiles = plan_.tiles(item), bands = plan_.bands(item);
      transform_inputs(context, tiles, memory);
      for (std::int64_t band = bands.begin; band < bands.end; ++band) {
        const std::int64_t first = band * Plan::band;
        const Channels channels{first, std::min(Plan::band, conv_.filter.outputs - first)};
        multiply(context, tiles.end - tiles.begin, channels, memory);
        transform_outputs(context, tiles, channels, memory);
      }
    }
  }

 private:
  /// Of this thread.
  struct Memory {
    float* inputs;   // [number][tile][channel]
    float* outputs;  // [number][tile][channel of the band]
  };
  /// Of the output.
  struct Channels {
    std::int64_t first, count;
  };

  void transform_inputs(const TaskContext& context, const Range& tiles,
                        const Memory& memory) const noexcept {
    const float* x = image_.at(context, conv_.x);
    plan_.all().for_runs(tiles, [&](const Tiles::Run& run, std::int64_t done) {
      const InputJob job{places_.x.at(x + run.image * places_.x.image),
                         places_.rows,
                         places_.columns,
                         conv_.filter.channels,
                         memory.inputs + done * plan_.channels(),
                         plan_.input_number(),
                         plan_.channels()};
      transforms().input(job, run.tiles);
    });
  }

  /// Each of the 36 GEMMs is a convolution of one tap over a row of `tiles` pixels.
  void multiply(const TaskContext& context, std::int64_t tiles, const Channels& channels,
                const Memory& memory) const noexcept {
    constexpr float no_limit = std::numeric_limits<float>::infinity();
    const WindowAxis row{1, 1, 1, 1, 1, 0}, column{tiles, tiles, 1, 1, 1, 0};
    const std::int64_t number_elements = conv_.filter.channels * 16,
                       panel = numbers * number_elements;
    const float* filter = filter_.at(context) + channels.first / 16 * panel;
    for (int n = 0; n < numbers; ++n) {
      const Image<const float> x{memory.inputs + n * plan_.input_number(), 0, plan_.channels(), 1};
      const Image<float> y{memory.outputs + n * plan_.output_number(), 0, Plan::band, 1};
      const ProductJob job{x,
                           filter + n * number_elements,
                           panel,
                           conv_.filter.channels,
                           channels.count,
                           row,
                           column,
                           {nullptr, {}, -no_limit, no_limit},
                           y};
      convolution_kernels().product(job, {0, 1, 0, tiles, 0, channels.count});
    }
  }

  void transform_outputs(const TaskContext& context, const Range& tiles, const Channels& channels,
                         const Memory& memory) const noexcept {
    const Convolution& c = conv_;
    const float* residual = c.residual ? context.pointer<const float>(*c.residual) : nullptr;
    auto* y = context.pointer<float>(c.y);
    plan_.all().for_runs(tiles, [&](const Tiles::Run& run, std::int64_t done) {
      const auto place = [&](const ImageSteps& steps, auto* first) {
        return steps.at(first + run.image * steps.image + channels.first * steps.channel);
      };
      const float* bias = c.bias ? context.pointer<const float>(*c.bias) + channels.first : nullptr;
      Finish finish{bias, {}, c.low, c.high};
      if (residual != nullptr) finish.residual = place(places_.residual, residual);
      const OutputJob job{memory.outputs + done * Plan::band,
                          plan_.output_number(),
                          Plan::band,
                          channels.count,
                          c.rows.outputs,
                          c.columns.outputs,
                          finish,
                          place(places_.y, y)};
      transforms().output(job, run.tiles);
      if (!c.activation) return;
      const TileRun& at = run.tiles;
      activate(c, job.y,
               {at.row, std::min(at.row + tile, c.rows.outputs), at.column,
                std::min(at.column + at.count * tile, c.columns.outputs), 0, channels.count});
    });
  }

  Convolution conv_;
  Plan plan_;
  FilterSource filter_;
  ConvolutionPlan places_;
  ImageSource image_ = ImageSource::in_place();
};

}  // namespace

std::unique_ptr<Task> make_task(const Convolution& conv, Compiler& compiler) {
  const Sizes sizes = Sizes::of(conv);
  const bool is_constant = conv.w.place.kind == Place::Kind::constant;
  if (compiler.exact() || !sizes.can_run()) return nullptr;
  if (!sizes.is_profitable(is_constant ? min_tiles : min_tiles_of_run)) return nullptr;
  return std::make_unique<WinogradTask>(conv, compiler);
}

}  // namespace tenon::cpu::winograd
