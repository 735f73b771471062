// Integer products: the tiles of convolutions of codes (int8/) give sums, strip by strip,
// which are finished while they are in L2.
#include "../int8/integer_product.hpp"

#include "../convolution/channels_last.hpp"
#include "../convolution/convolution.hpp"
#include "../convolution/plan.hpp"
#include "../int8/filter.hpp"
#include "../int8/int8_kernels.hpp"
#include "../task.hpp"
#include "array/transpose.hpp"
#include "lower/memory_access.hpp"

#include <tenon/host_view.hpp>
#include <tenon/ops/integer_product.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tenon::cpu {

using namespace lowering;
namespace {

using Kind = IntegerProduct::Kind;

constexpr std::int64_t alignment = 64;
constexpr std::int64_t strip_sums = 1 << 15;  ///< of a strip, at least one pixel's

/// The kernels multiply u8 by i8: an image of i8 has 128 added, a filter of u8 has 128 taken.
constexpr std::uint8_t sign_bit = 0x80;

/// One number, or a row of them, where a run finds it.
class Numbers {
 public:
  Numbers(const TaskContext& context, const Operand& operand)
      : at_(context.pointer<const std::byte>(operand)),
        step_(operand.shape.rank() == 0 ? 0 : operand.strides[0]),
        dtype_(operand.shape.dtype()) {}

  std::int64_t integer(std::int64_t index) const {
    return load_as_int64(dtype_, at_ + index * step_);
  }
  float real(std::int64_t index) const {
    return *reinterpret_cast<const float*>(at_ + index * step_);
  }

 private:
  const std::byte* at_;
  std::int64_t step_;
  DType dtype_;
};

/// The zero point of an image or filter as the kernels see it.
std::int64_t kernel_zero(const std::optional<Numbers>& zero, DType dtype, std::int64_t output,
                         DType wanted) {
  const std::int64_t own = zero ? zero->integer(output) : 0;
  if (dtype == wanted) return own;
  return dtype == DType::i8 ? own + sign_bit : own - sign_bit;
}

Operand as_number_or_row(const Operand& operand) {
  if (operand.shape.elements() != 1) return operand;
  Operand number = operand;
  number.shape = Shape(std::span<const std::int64_t>(), operand.shape.dtype());
  return number;
}

/// Packs a filter that is not a constant, in every run.
class PackCodesTask final : public Task {
 public:
  PackCodesTask(const Operand& w, const Int8FilterForm& form, std::int64_t offset)
      : w_(w), form_(form), offset_(offset) {}
  void run(const TaskContext& context) const noexcept override {
    PackedInt8Filter filter(form_, context.scratch(offset_));
    filter.pack(context.frame.view(w_), context.worker.thread, context.worker.threads);
  }

 private:
  Operand w_;
  Int8FilterForm form_;
  std::int64_t offset_;
};

/// Copies an image of codes to u8, channels last, with its padding.
class CodesCopyTask final : public PartwiseTask {
 public:
  CodesCopyTask(const Operand& x, const std::optional<Operand>& zero, std::int64_t before,
                std::int64_t width, std::int64_t offset)
      : x_(x), zero_(zero), before_(before), width_(width), offset_(offset) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& shape = x_.shape;
    const std::int64_t rows = shape[2];
    const ImageSteps steps = ImageSteps::of(x_);
    std::optional<Numbers> zero_point;
    if (zero_) zero_point.emplace(context, *zero_);
    const std::int64_t zero = kernel_zero(zero_point, shape.dtype(), 0, DType::u8);
    auto* to = reinterpret_cast<std::uint8_t*>(context.scratch(offset_));
    Range range = context.share(shape[0] * rows);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      Int8PaddedCopy job{};
      job.codes = steps.at(context.pointer<const std::uint8_t>(x_) + image * steps.image);
      job.columns = shape[3];
      job.channels = shape[1];
      job.before = before_;
      job.width = width_;
      job.zero = static_cast<std::uint8_t>(zero);
      job.to = to + image * rows * width_ * shape[1];
      job.flipped = shape.dtype() == DType::i8 ? sign_bit : 0;
      kernels_.copy_padded(job, first, last);
      range.begin += last - first;
    }
  }

 private:
  Operand x_;
  std::optional<Operand> zero_;
  std::int64_t before_, width_, offset_;
  const Int8Kernels kernels_ = int8_kernels();
};

/// This thread's memory: bytes of the kernels, sums of a strip, results that are not dense, codes of
/// padding, and numbers of the outputs.
struct ProductMemory {
  std::int64_t strip, results, outside, numbers, weight_zeros, end;
};

class IntegerProductTask final : public Task {
 public:
  IntegerProductTask(const Step& step, Compiler& compiler)
      : op_(*step.op.as<IntegerProduct>()), conv_(convolution_of(step)), plan_(conv_) {
    for (std::size_t i = 2; i < step.inputs.size(); ++i) {
      operands_.push_back(as_number_or_row(step.inputs[i]));
    }
    const bool is_joined = choose_image_source(compiler);
    form_ = {conv_.filter, is_joined, 128, true};
    choose_filter_source(compiler);
    plan_.flatten(conv_);
    plan_.divide(conv_, compiler.threads(), {.cached = 1 << 20, .large = 1 << 17});
    plan_memory();
    compiler.working_memory(memory_.end);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t groups = conv_.filter.packed_groups();
    const Range items = context.share(plan_.grid.size() * groups);
    if (items.begin >= items.end) return;
    const Run run(*this, context);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t item = i / groups;
      run.compute(plan_.grid.image(item), i % groups, plan_.grid.part(item));
    }
  }

 private:
  static Convolution convolution_of(const Step& step) {
    const Conv2dInteger& conv = step.op.as<IntegerProduct>()->conv;
    MergedConv2d merged;
    merged.conv = {.stride = conv.stride,
                   .padding = conv.padding,
                   .dilation = conv.dilation,
                   .groups = conv.groups};
    return {merged, std::span(step.inputs).first(2), step.output};
  }

  const Operand* zero_point(std::size_t input) const noexcept {
    return input < static_cast<std::size_t>(op_.zero_points) ? &operands_[input] : nullptr;
  }
  std::optional<Numbers> zeros(const TaskContext& context, std::size_t input) const noexcept {
    const Operand* operand = zero_point(input);
    return operand == nullptr ? std::nullopt : std::optional(Numbers(context, *operand));
  }

  /// As of QuantizedConv2d's task; i8 is copied to u8, and so is an image that the result overwrites.
  bool choose_image_source(Compiler& compiler) {
    const Shape& shape = conv_.x.shape;
    const bool is_depthwise = conv_.filter.is_depthwise();
    const bool steps_over = !is_depthwise && !reaches_out_at_ends_only(conv_.columns);
    // A run of a group that is no whole quads is read beyond its end, where weights are 0.
    const bool is_odd = !is_depthwise && conv_.filter.channels % 4 != 0;
    if (shape.dtype() == DType::u8 && has_channels_last(conv_.x) && !steps_over && !is_odd &&
        !overlap(conv_.x, conv_.y)) {
      return false;
    }
    const std::int64_t width =
        is_depthwise ? shape[3] : ConvolutionPlan::padded_width(conv_.columns);
    const std::int64_t before = is_depthwise ? 0 : conv_.columns.before;
    const std::int64_t bytes = shape[0] * shape[2] * width * shape[1] + int8_overread;
    std::optional<Operand> zero;
    std::vector<Operand> reads{conv_.x, conv_.w};
    if (zero_point(0) != nullptr) reads.push_back(zero.emplace(*zero_point(0)));
    copy_offset_ = compiler.shared_table(OpInstance(conv_.op), reads, bytes, [&](std::int64_t at) {
      return std::make_unique<CodesCopyTask>(conv_.x, zero, before, width, at);
    });
    if (is_depthwise) {
      plan_.x = {width * shape[1], shape[1], 1, shape[2] * width * shape[1]};
      return false;
    }
    plan_.read_padded_copy(conv_, width);
    return is_odd && conv_.op.groups == 1 && conv_.columns.dilation == 1;
  }

  void choose_filter_source(Compiler& compiler) {
    if (conv_.w.place.kind == Place::Kind::constant) {
      packed_ = compiler.prepare(conv_.w, int8_filter_recipe(form_));
      return;
    }
    IntegerProduct meaning;  // how it is packed
    meaning.conv.groups = conv_.op.groups;
    meaning.zero_points = form_.joined ? 1 : 0;
    const Operand reads[] = {conv_.w};
    filter_offset_ = compiler.shared_table(
        OpInstance(meaning), reads,
        static_cast<std::int64_t>(PackedInt8Filter::packed_bytes(form_)), [&](std::int64_t offset) {
          return std::make_unique<PackCodesTask>(conv_.w, form_, offset);
        });
  }

  void plan_memory() {
    const std::int64_t outputs = round_up(conv_.filter.group_outputs(), 16);
    const std::int64_t sums = std::max(strip_sums, outputs) * 4;
    const std::int64_t arrays = 6 + IntegerProduct::max_f32_stages;
    memory_.strip = int8_band_bytes;
    memory_.results = memory_.strip + sums + alignment;
    memory_.outside = memory_.results + sums;
    memory_.numbers =
        memory_.outside + round_up(std::max<std::int64_t>(form_.quads() * 4, 64), alignment);
    memory_.weight_zeros = memory_.numbers + arrays * outputs * 4;
    memory_.end = memory_.weight_zeros + outputs * 4;
  }

  /// One thread's run: what does not change from part to part.
  class Run {
   public:
    Run(const IntegerProductTask& task, const TaskContext& context)
        : task_(task),
          context_(context),
          working_(context.working_memory()),
          strip_(reinterpret_cast<std::int32_t*>(working_ + task.memory_.strip)),
          scratch_filter_(task.form_,
                          task.packed_ ? working_ : context.scratch(task.filter_offset_)),
          filter_(task.packed_ ? context.constant<PackedInt8Filter>(*task.packed_)
                               : scratch_filter_),
          x_zero_(kernel_zero(task.zeros(context, 0), task.conv_.x.shape.dtype(), 0, DType::u8)),
          w_zeros_(task.zeros(context, 1)) {
      outside_ = reinterpret_cast<std::uint8_t*>(working_ + task.memory_.outside);
      std::fill(outside_, reinterpret_cast<std::uint8_t*>(working_ + task.memory_.numbers),
                static_cast<std::uint8_t>(x_zero_));
      weight_zeros_ = reinterpret_cast<std::uint32_t*>(working_ + task.memory_.weight_zeros);
    }

    void compute(std::int64_t image, std::int64_t group, const Part& part) const noexcept {
      const std::int64_t channels = part.last_channel - part.first_channel;
      const std::int64_t columns = part.last_column - part.first_column;
      if (channels <= 0 || columns <= 0) return;
      const SumsJob job = prepare(group, part);
      const bool has_zeros = read_weight_zeros(group, part);
      const std::int64_t pixels = std::max<std::int64_t>(strip_sums / channels, 1);
      const std::int64_t width = std::min(columns, pixels), height = pixels / width;
      Part strip = part;
      for (strip.first_row = part.first_row; strip.first_row < part.last_row;
           strip.first_row += height) {
        strip.last_row = std::min(strip.first_row + height, part.last_row);
        for (strip.first_column = part.first_column; strip.first_column < part.last_column;
             strip.first_column += width) {
          strip.last_column = std::min(strip.first_column + width, part.last_column);
          multiply(image, group, strip);
          if (has_zeros) subtract_weight_zeros(image, group, strip);
          finish(image, group, strip, job);
        }
      }
    }

   private:
    std::int64_t first_output(std::int64_t group) const noexcept {
      return group * task_.conv_.filter.group_outputs();
    }

    Image<const std::uint8_t> image_of(std::int64_t image, std::int64_t group) const noexcept {
      const ImageSteps& steps = task_.plan_.x;
      const auto* x =
          task_.copy_offset_ < 0
              ? context_.pointer<const std::uint8_t>(task_.conv_.x)
              : reinterpret_cast<const std::uint8_t*>(context_.scratch(task_.copy_offset_));
      const std::int64_t channel = group * task_.conv_.filter.channels;
      return steps.at(x + image * steps.image + channel * steps.channel);
    }

    /// Sums [row][column][channel] of a strip.
    void multiply(std::int64_t image, std::int64_t group, const Part& strip) const noexcept {
      const std::int64_t channels = strip.last_channel - strip.first_channel;
      const std::int64_t columns = strip.last_column - strip.first_column;
      const std::int64_t origin =
          (strip.first_row * columns + strip.first_column) * channels + strip.first_channel;
      const Image<const std::uint8_t> x = image_of(image, group);
      const ConvolutionPlan& plan = task_.plan_;
      Int8Finish finish{};
      finish.weight_scale = filter_.scales(group);
      finish.weight_sum = filter_.sums(group);
      finish.zero = static_cast<float>(x_zero_);
      if (task_.conv_.filter.is_depthwise()) {
        finish.ratio = 1;
        finish.low = -std::numeric_limits<float>::infinity();
        finish.high = std::numeric_limits<float>::infinity();
        auto* values = reinterpret_cast<float*>(working_ + task_.memory_.results);
        finish.values = {values - origin, columns * channels, channels, 1};
        task_.kernels_.depthwise({x, filter_.depthwise_weights(), nullptr, outside_,
                                  task_.conv_.filter.outputs, plan.rows, plan.columns, finish},
                                 strip);
        const std::int64_t count = (strip.last_row - strip.first_row) * columns * channels;
        for (std::int64_t i = 0; i < count; ++i) {  // whole numbers below 2^24
          strip_[i] = static_cast<std::int32_t>(values[i]);
        }
        return;
      }
      finish.sums = {strip_ - origin, columns * channels, channels, 1};
      task_.kernels_.wide_product(
          {x, filter_.weights(group), task_.form_.panel(), task_.form_.runs(), task_.form_.quads(),
           outside_, task_.conv_.filter.group_outputs(), plan.rows, plan.columns, finish,
           reinterpret_cast<std::uint8_t*>(working_)},
          strip);
    }

    /// The zero points of a part's outputs; false where all are 0.
    bool read_weight_zeros(std::int64_t group, const Part& part) const noexcept {
      bool any = false;
      for (std::int64_t c = part.first_channel; c < part.last_channel; ++c) {
        const std::int64_t zero =
            kernel_zero(w_zeros_, task_.conv_.w.shape.dtype(), first_output(group) + c, DType::i8);
        weight_zeros_[c - part.first_channel] = static_cast<std::uint32_t>(zero);
        any = any || zero != 0;
      }
      return any;
    }

    /// Weights rarely have zero points. One takes its share of the codes under the window.
    void subtract_weight_zeros(std::int64_t image, std::int64_t group,
                               const Part& strip) const noexcept {
      const std::int64_t channels = strip.last_channel - strip.first_channel;
      const Image<const std::uint8_t> x = image_of(image, group);
      const bool is_depthwise = task_.conv_.filter.is_depthwise();
      auto* sums = reinterpret_cast<std::uint32_t*>(strip_);
      for (std::int64_t row = strip.first_row; row < strip.last_row; ++row) {
        for (std::int64_t column = strip.first_column; column < strip.last_column; ++column) {
          if (is_depthwise) {
            for (std::int64_t c = 0; c < channels; ++c) {
              sums[c] -= weight_zeros_[c] * codes_under(x, row, column, strip.first_channel + c, 1);
            }
          } else {
            const std::uint32_t codes = codes_under(x, row, column, 0, task_.conv_.filter.channels);
            for (std::int64_t c = 0; c < channels; ++c) sums[c] -= weight_zeros_[c] * codes;
          }
          sums += channels;
        }
      }
    }

    /// The sum of x - x_zero under the window of an output, over some of its channels, modulo 2^32.
    std::uint32_t codes_under(const Image<const std::uint8_t>& x, std::int64_t row,
                              std::int64_t column, std::int64_t channel,
                              std::int64_t channels) const noexcept {
      const WindowAxis &rows = task_.plan_.rows, &columns = task_.plan_.columns;
      const std::int64_t start = column * columns.stride - columns.before;
      const std::int64_t first = start >= 0 ? 0 : ceil_div(-start, columns.dilation);
      const std::int64_t last =
          std::min(columns.taps, ceil_div(columns.inputs - start, columns.dilation));
      const std::int64_t step = columns.dilation * x.column;
      // Taps side by side are one run.
      const bool is_run = step == channels;
      const std::int64_t runs = is_run ? 1 : last - first;
      const std::int64_t count = is_run ? (last - first) * channels : channels;
      std::uint32_t sum = 0;
      if (first >= last) return sum;
      for (std::int64_t r = 0; r < rows.taps; ++r) {
        const std::int64_t i = row * rows.stride + r * rows.dilation - rows.before;
        if (i < 0 || i >= rows.inputs) continue;
        const std::uint8_t* pixel =
            x.at + i * x.row + (start + first * columns.dilation) * x.column + channel;
        for (std::int64_t k = 0; k < runs; ++k, pixel += step) {
          for (std::int64_t c = 0; c < count; ++c) sum += pixel[c];
        }
        sum -= static_cast<std::uint32_t>(runs * count * x_zero_);
      }
      return sum;
    }

    /// The numbers of a part's outputs, expanded to one each.
    SumsJob prepare(std::int64_t group, const Part& part) const noexcept {
      const std::int64_t count = part.last_channel - part.first_channel;
      const std::int64_t first = first_output(group) + part.first_channel;
      std::byte* next = working_ + task_.memory_.numbers;
      const auto row_of = [&]<class T>(T, auto&& value) {
        auto* row = reinterpret_cast<T*>(next);
        next += round_up(count, 16) * 4;
        for (std::int64_t c = 0; c < count; ++c) row[c] = value(c);
        return row;
      };
      SumsJob job{};
      job.count = count;
      const bool takes_zero = !task_.conv_.filter.is_depthwise();  // its kernel takes it itself
      const float* weight_sums = filter_.sums(group) + part.first_channel;
      std::int32_t* offset = row_of(std::int32_t{}, [&](std::int64_t c) {
        const auto sum = static_cast<std::int64_t>(weight_sums[c]);
        return takes_zero ? static_cast<std::int32_t>(-x_zero_ * sum) : 0;
      });
      job.offset = offset;
      auto operand = task_.operands_.begin() + task_.op_.zero_points;
      const auto floats = [&](const Operand& operand_of_numbers) {
        const Numbers numbers(context_, operand_of_numbers);
        return row_of(float{}, [&](std::int64_t c) { return numbers.real(first + c); });
      };
      for (const IntegerProduct::Stage& stage : task_.op_.all_stages()) {
        switch (stage.kind) {
          case Kind::bias: {
            const Numbers numbers(context_, *operand++);
            for (std::int64_t c = 0; c < count; ++c) {
              offset[c] =
                  static_cast<std::int32_t>(static_cast<std::uint32_t>(offset[c]) +
                                            static_cast<std::uint32_t>(numbers.integer(first + c)));
            }
            break;
          }
          case Kind::factor:
            job.factor = floats(*operand++);
            break;
          case Kind::add:
            job.stages[job.stage_count++] = {floats(*operand++), 0, 0};
            break;
          case Kind::limit:
            job.stages[job.stage_count++] = {nullptr, stage.low, stage.high};
            break;
          case Kind::round: {
            job.scale = floats(*operand++);
            std::optional<Numbers> zero;
            if (stage.has_zero) zero.emplace(context_, *operand);
            const bool is_signed = task_.conv_.y.shape.dtype() == DType::i8;
            const std::int64_t low = is_signed ? -128 : 0, high = low + 255;
            const auto zero_of = [&](std::int64_t c) {
              return zero ? zero->integer(first + c) : 0;
            };
            job.divides = std::any_of(job.scale, job.scale + count,
                                      [](float scale) { return scale != 1.0f; });
            job.is_signed = is_signed;
            job.zero = row_of(float{},
                              [&](std::int64_t c) { return static_cast<float>(zero_of(c) - low); });
            job.low = row_of(float{},
                             [&](std::int64_t c) { return static_cast<float>(low - zero_of(c)); });
            job.high = row_of(
                float{}, [&](std::int64_t c) { return static_cast<float>(high - zero_of(c)); });
            break;
          }
        }
      }
      return job;
    }

    void finish(std::int64_t image, std::int64_t group, const Part& strip,
                SumsJob job) const noexcept {
      const Operand& y = task_.conv_.y;
      const ImageSteps& steps = task_.plan_.y;
      const std::int64_t unit = block_bytes(y.shape.dtype());
      const std::int64_t channel = first_output(group) + strip.first_channel;
      std::byte* const to =
          context_.pointer<std::byte>(y) + (image * steps.image + channel * steps.channel) * unit;
      std::byte* const results = working_ + task_.memory_.results;
      job.sums = strip_;
      job.pixels = strip.last_column - strip.first_column;
      for (std::int64_t row = strip.first_row; row < strip.last_row; ++row) {
        std::byte* const line = to + (row * steps.row + strip.first_column * steps.column) * unit;
        const bool is_dense = steps.channel == 1;
        job.to = is_dense ? line : results;
        job.step = is_dense ? steps.column * unit : job.count * unit;
        task_.kernels_.finish_sums(job);
        if (!is_dense) scatter(results, line, job.pixels, job.count, unit);
        job.sums += job.pixels * job.count;
      }
    }

    /// Results [pixels][count] to planes.
    void scatter(const std::byte* from, std::byte* to, std::int64_t pixels, std::int64_t count,
                 std::int64_t unit) const noexcept {
      const ImageSteps& steps = task_.plan_.y;
      if (steps.column == 1) {
        return transpose(from, count * unit, to, steps.channel * unit, count, pixels, unit);
      }
      for (std::int64_t c = 0; c < count; ++c) {
        for (std::int64_t p = 0; p < pixels; ++p) {
          std::copy_n(from + (p * count + c) * unit, unit,
                      to + (p * steps.column + c * steps.channel) * unit);
        }
      }
    }

    const IntegerProductTask& task_;
    const TaskContext& context_;
    std::byte* const working_;
    std::int32_t* const strip_;
    const PackedInt8Filter scratch_filter_;  // where the filter is packed in every run
    const PackedInt8Filter& filter_;
    const std::int64_t x_zero_;
    const std::optional<Numbers> w_zeros_;
    std::uint8_t* outside_;
    std::uint32_t* weight_zeros_;  ///< of a part's outputs
  };

  IntegerProduct op_;
  std::vector<Operand> operands_;  // behind x and w
  Convolution conv_;
  ConvolutionPlan plan_;
  const Int8Kernels kernels_ = int8_kernels();
  Int8FilterForm form_{};
  std::optional<PreparedIndex> packed_;
  std::int64_t filter_offset_ = 0, copy_offset_ = -1;
  ProductMemory memory_{};
};

std::unique_ptr<Task> make_integer_product(const Step& step, Compiler& compiler) {
  return std::make_unique<IntegerProductTask>(as_integer_product(step), compiler);
}

}  // namespace

extern const Kernel conv2d_integer_kernel, matmul_integer_kernel, integer_product_kernel;
constinit const Kernel conv2d_integer_kernel{op_def<Conv2dInteger>, refuses_integer_product,
                                             make_integer_product};
constinit const Kernel matmul_integer_kernel{op_def<MatmulInteger>, refuses_integer_product,
                                             make_integer_product};
constinit const Kernel integer_product_kernel{op_def<IntegerProduct>, takes_everything,
                                              make_integer_product};

}  // namespace tenon::cpu
