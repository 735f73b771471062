#include "image_source.hpp"

#include "../integer_math.hpp"
#include "../tasks/image_task.hpp"
#include "convolution_kernels.hpp"

#include <tenon/ops/permute.hpp>

#include <algorithm>
#include <memory>

namespace tenon::cpu {
namespace {

class PaddedCopyTask final : public PartwiseTask {
 public:
  PaddedCopyTask(const Convolution& conv, std::int64_t width, std::int64_t offset)
      : conv_(conv), width_(width), offset_(offset) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& shape = conv_.x.shape;
    const std::int64_t rows = shape[2];
    PaddedCopy job{{}, shape[3], shape[1], conv_.columns.before, width_, nullptr};
    auto* to = reinterpret_cast<float*>(context.scratch(offset_));
    Range range = context.share(shape[0] * rows);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      job.x = moved(image_of(conv_.x, context.pointer<const float>(conv_.x)),
                    image * (conv_.x.strides[0] / 4));
      job.to = to + image * rows * width_ * shape[1];
      convolution_kernels().copy_padded(job, first, last);
      range.begin += last - first;
    }
  }

 private:
  Convolution conv_;
  std::int64_t width_, offset_;
};

/// Without padding: runs of pixels that lie evenly, a row or a whole plane.
class ChannelsLastTask final : public PartwiseTask {
 public:
  ChannelsLastTask(const Operand& x, std::int64_t offset) : x_(x), offset_(offset) {
    const Shape& shape = x.shape;
    const bool is_dense = shape[2] == 1 || x.strides[2] == shape[3] * x.strides[3];
    lines_ = is_dense ? 1 : shape[2];
    pixels_ = is_dense ? shape[2] * shape[3] : shape[3];
    pieces_ = ceil_div(pixels_, piece);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t channels = x_.shape[1];
    const Image<const float> x = image_of(x_, context.pointer<const float>(x_));
    auto* to = reinterpret_cast<float*>(context.scratch(offset_));
    const Range range = context.share(x_.shape[0] * lines_ * pieces_);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t image = i / pieces_ / lines_, line = i / pieces_ % lines_;
      const std::int64_t first = i % pieces_ * piece, count = std::min(piece, pixels_ - first);
      const PaddedCopy job{moved(x, image * (x_.strides[0] / 4) + line * x.row + first * x.column),
                           count,
                           channels,
                           0,
                           count,
                           to + ((image * lines_ + line) * pixels_ + first) * channels};
      convolution_kernels().copy_padded(job, 0, 1);
    }
  }

 private:
  static constexpr std::int64_t piece = 64;  // pixels
  Operand x_;
  std::int64_t offset_, lines_, pixels_, pieces_;
};

}  // namespace

ImageSource ImageSource::request(const Convolution& conv, ConvolutionPlan& plan,
                                 Compiler& compiler) {
  const Shape& shape = conv.x.shape;
  const std::int64_t width = ConvolutionPlan::padded_width(conv.columns);
  const std::int64_t bytes = shape[0] * shape[2] * width * shape[1] * 4;
  const Operand reads[] = {conv.x, conv.w};
  ImageSource image;
  image.offset_ = compiler.shared_table(
      OpInstance(conv.op), reads, bytes,
      [&](std::int64_t offset) { return std::make_unique<PaddedCopyTask>(conv, width, offset); });
  plan.read_padded_copy(conv, width);
  return image;
}

ImageSource ImageSource::channels_last(const Operand& x, ImageSteps& steps, Compiler& compiler) {
  const Shape& shape = x.shape;
  ImageSource image;
  image.offset_ = compiler.shared_table(
      OpInstance(Permute{.order = {0, 2, 3, 1}}), {&x, 1}, shape.elements() * 4,
      [&](std::int64_t offset) { return std::make_unique<ChannelsLastTask>(x, offset); });
  steps = {shape[3] * shape[1], shape[1], 1, shape[2] * shape[3] * shape[1]};
  return image;
}

}  // namespace tenon::cpu
