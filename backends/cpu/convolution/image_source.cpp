#include "image_source.hpp"

#include "../tasks/image_task.hpp"
#include "convolution_kernels.hpp"

#include <algorithm>
#include <memory>

namespace tenon::cpu {
namespace {

class PaddedCopyTask final : public Task {
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

}  // namespace tenon::cpu
