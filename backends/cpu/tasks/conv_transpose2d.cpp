// Transposed convolutions: the products of the filter with all pixels of some rows by GEMM, then
// their sums at the places in the result. A thread does both for a block of output channels and
// rows, whose products stay in its cache; of several images where one alone makes a narrow product.
#include "../integer_math.hpp"
#include "../matmul/matmul.hpp"
#include "../task.hpp"
#include "../vision/fold_plane.hpp"
#include "conv_f64.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/conv_transpose2d.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

/// Products of a block: rows of them per channel and tap, and bytes.
constexpr std::int64_t block_products = 288, block_floats = 160 * 1024;
/// Columns that a product should have: with fewer it takes longer to arrange the filter than to
/// multiply by it.
constexpr std::int64_t block_columns = 128;

/// The filter [C, O / groups, taps] as [groups][O / groups * taps][C / groups], in scratch memory.
class FilterTask final : public Task {
 public:
  FilterTask(const Operand& w, std::int64_t groups, std::int64_t table)
      : w_(w),
        groups_(groups),
        inputs_(w.shape[0] / groups),
        rows_(w.shape[1] * w.shape[2] * w.shape[3]),
        table_(table) {}

  void run(const TaskContext& context) const noexcept override {
    constexpr std::int64_t edge = 16;
    const auto* w = context.pointer<const float>(w_);
    auto* table = reinterpret_cast<float*>(context.scratch(table_));
    const std::int64_t blocks = ceil_div(rows_, edge);
    const Range range = context.share(groups_ * blocks);
    for (std::int64_t block = range.begin; block < range.end; ++block) {
      const std::int64_t group = block / blocks, first = block % blocks * edge;
      const std::int64_t last = std::min(first + edge, rows_);
      for (std::int64_t k = 0; k < inputs_; k += edge) {
        for (std::int64_t row = first; row < last; ++row) {
          float* to = table + (group * rows_ + row) * inputs_;
          for (std::int64_t j = k; j < std::min(k + edge, inputs_); ++j) {
            to[j] = w[(group * inputs_ + j) * rows_ + row];
          }
        }
      }
    }
  }

 private:
  Operand w_;
  std::int64_t groups_, inputs_, rows_, table_;
};

class ConvTransposeTask final : public Task {
 public:
  ConvTransposeTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), w_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<ConvTranspose2d>();
    if (op.has_bias) bias_ = step.inputs[2];
    const Shape &x = x_.shape, &w = w_.shape, &y = y_.shape;
    // The window slides over the result.
    rows_ = window_axis(0, y[2], x[2], w[2], op.stride, 1, op.padding, op.dilation);
    columns_ = window_axis(1, y[3], x[3], w[3], op.stride, 1, op.padding, op.dilation);
    groups_ = op.groups;
    outputs_ = w[1];
    taps_ = w[2] * w[3];
    // Blocks depend on sizes only: so do the bits of the result.
    channels_ =
        std::clamp<std::int64_t>(block_products / taps_, 1, std::max<std::int64_t>(1, outputs_));
    channel_blocks_ = ceil_div(outputs_, channels_);
    channels_ =
        std::max<std::int64_t>(1, ceil_div(outputs_, std::max<std::int64_t>(1, channel_blocks_)));
    const std::int64_t halo = (rows_.taps - 1) * rows_.dilation;
    const std::int64_t wanted = std::max<std::int64_t>(
        1, block_floats / std::max<std::int64_t>(1, channels_ * taps_ * x[3]));
    block_rows_ = std::max({wanted * rows_.stride - halo, halo, rows_.stride});
    block_rows_ = std::min(block_rows_, std::max<std::int64_t>(1, y[2]));
    row_blocks_ = ceil_div(y[2], block_rows_);
    most_rows_ = std::min(x[2], (block_rows_ - 1 + halo) / rows_.stride + 2);
    const std::int64_t most_columns = std::max<std::int64_t>(1, most_rows_ * x[3]);
    if (row_blocks_ == 1) {
      images_ = std::clamp<std::int64_t>(block_columns / most_columns, 1,
                                         std::max<std::int64_t>(1, x[0]));
    }
    product_bytes_ = line_bytes(channels_ * taps_ * images_ * most_columns);
    if (images_ > 1) gathered_bytes_ = line_bytes(x[1] / groups_ * images_ * most_columns);
    // A smaller block may need more memory than a larger one.
    std::size_t scratch = 0;
    for (const std::int64_t channels : {channels_, outputs_ - (channel_blocks_ - 1) * channels_}) {
      for (std::int64_t rows = 1; rows <= most_rows_; ++rows) {
        for (std::int64_t images = 1; images <= images_; ++images) {
          scratch =
              std::max(scratch, matmul_scratch_bytes(product(channels, images * rows * x[3])));
        }
      }
    }
    compiler.working_memory(product_bytes_ + gathered_bytes_ + static_cast<std::int64_t>(scratch));
    table_ = compiler.shared_table(
        OpInstance(ConvTranspose2d{.groups = groups_}), std::span(step.inputs).subspan(1, 1),
        w.bytes(),
        [&](std::int64_t table) { return std::make_unique<FilterTask>(w_, groups_, table); });
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t parts = channel_blocks_ * row_blocks_;
    const Range items = context.share(ceil_div(x_.shape[0], images_) * groups_ * parts);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t part = i % parts, group = i / parts % groups_;
      const std::int64_t first = i / parts / groups_ * images_;
      block(context, {first, std::min(first + images_, x_.shape[0])}, group,
            part / row_blocks_ * channels_, part % row_blocks_ * block_rows_);
    }
  }

 private:
  static std::int64_t line_bytes(std::int64_t floats) {
    return static_cast<std::int64_t>(
        round_to_line(static_cast<std::size_t>(floats) * sizeof(float)));
  }

  /// The columns of one image are those of the operand; of several, they are gathered.
  MatmulArgs product(std::int64_t channels, std::int64_t columns) const {
    MatmulArgs args;
    args.m = channels * taps_;
    args.k = x_.shape[1] / groups_;
    args.n = columns;
    args.a_row = args.k;
    args.b_row = images_ > 1 ? columns : x_.strides[1] / 4;
    args.c_row = columns;
    return args;
  }

  /// The pixels of images, the one behind the other for each channel of a group.
  void gather(const float* x, std::int64_t images, std::int64_t pixels, float* to) const noexcept {
    const std::int64_t channels = x_.shape[1] / groups_, image = x_.strides[0] / 4;
    for (std::int64_t k = 0; k < channels; ++k, x += x_.strides[1] / 4) {
      for (std::int64_t i = 0; i < images; ++i, to += pixels) {
        std::copy_n(x + i * image, pixels, to);
      }
    }
  }

  /// Channels from `channel` of a group and rows from `row` of images of the result.
  void block(const TaskContext& context, Range images, std::int64_t group, std::int64_t channel,
             std::int64_t row) const noexcept {
    const std::int64_t width = y_.shape[3], height = y_.shape[2], pixels = x_.shape[3];
    const std::int64_t channels = std::min(channels_, outputs_ - channel);
    const std::int64_t last = std::min(row + block_rows_, height);
    const std::int64_t reach = row + rows_.before - (rows_.taps - 1) * rows_.dilation;
    const std::int64_t from = reach <= 0 ? 0 : ceil_div(reach, rows_.stride);
    const std::int64_t to = std::min(x_.shape[2], (last - 1 + rows_.before) / rows_.stride + 1);

    const std::int64_t first_output = group * outputs_ + channel;
    const float* bias = bias_ ? context.pointer<const float>(*bias_) + first_output : nullptr;
    const auto bias_of = [&](std::int64_t o) { return bias == nullptr ? 0.0f : bias[o]; };
    const auto result = [&](std::int64_t image, std::int64_t o) {
      return context.pointer<float>(y_) +
             ((image * groups_ * outputs_ + first_output + o) * height + row) * width;
    };
    if (from >= to) {
      for (std::int64_t image = images.begin; image < images.end; ++image) {
        for (std::int64_t o = 0; o < channels; ++o) {
          std::fill_n(result(image, o), (last - row) * width, bias_of(o));
        }
      }
      return;
    }

    const std::int64_t count = images.end - images.begin, columns = (to - from) * pixels;
    MatmulArgs args = product(channels, count * columns);
    std::byte* const memory = context.working_memory();
    auto* const products = reinterpret_cast<float*>(memory);
    args.a = reinterpret_cast<const float*>(context.scratch(table_)) +
             (group * outputs_ + channel) * taps_ * args.k;
    const float* x = context.pointer<const float>(x_) + images.begin * (x_.strides[0] / 4) +
                     group * args.k * (x_.strides[1] / 4) + from * pixels;
    args.b = x;
    if (images_ > 1) {
      auto* const gathered = reinterpret_cast<float*>(memory + product_bytes_);
      gather(x, count, columns, gathered);
      args.b = gathered;
    }
    args.c = products;
    args.scratch = memory + product_bytes_ + gathered_bytes_;
    args.isa = active_isa();
    matmul(args, 0, 1);

    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t o = 0; o < channels; ++o) {
        fold_plane(products + o * taps_ * args.n + i * columns, args.n, {rows_, columns_},
                   {from, to}, {row, last}, bias_of(o), result(images.begin + i, o));
      }
    }
  }

  Operand x_, w_, y_;
  std::optional<Operand> bias_;
  WindowAxis rows_{}, columns_{};
  std::int64_t groups_ = 1, outputs_ = 0, taps_ = 1;  ///< outputs of a group
  std::int64_t channels_ = 1, block_rows_ = 1;        ///< of a block
  std::int64_t channel_blocks_ = 0, row_blocks_ = 0, most_rows_ = 0;
  std::int64_t images_ = 1;  ///< of a block
  std::int64_t product_bytes_ = 0, gathered_bytes_ = 0, table_ = 0;
};

/// The pixels of each plane are adjacent; planes may lie anywhere.
std::optional<std::string> needs_dense_planes(const Operand& image, std::string_view what) {
  if (auto why = needs_dense_rows(image, what)) return why;
  const std::int64_t row = image.shape[3] * block_bytes(image.shape.dtype());
  if (image.shape[2] > 1 && image.shape.elements() > 0 && image.strides[2] != row) {
    return std::string(what) + "'s rows lie apart";
  }
  return std::nullopt;
}

std::optional<std::string> refuses_conv_transpose2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (is_f64(step)) {
    if (auto why = needs_dense(step.inputs[0], "x")) return why;
  }
  if (auto why = needs_dense_planes(step.inputs[0], "x")) return why;
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], i == 1 ? "w" : "bias")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make_conv_transpose2d(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_conv_transpose2d_f64(step, compiler);
  return std::make_unique<ConvTransposeTask>(step, compiler);
}

}  // namespace

extern const Kernel conv_transpose2d_kernel;
constinit const Kernel conv_transpose2d_kernel{op_def<ConvTranspose2d>, refuses_conv_transpose2d,
                                               make_conv_transpose2d};

}  // namespace tenon::cpu
