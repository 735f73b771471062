#include "max_pool.hpp"

#include "../convolution/plan.hpp"
#include "../tasks/windows.hpp"
#include "int8_kernels.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

class Int8MaxPoolTask final : public PartwiseTask {
 public:
  explicit Int8MaxPoolTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), kernels_(int8_kernels()) {
    const auto& op = *step.op.as<MaxPool2d>();
    const auto axis = [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      return window_axis(at, x_.shape[2 + i], y_.shape[2 + i], op.kernel[at], op.stride,
                         op.kernel[at], op.padding, op.dilation);
    };
    rows_ = axis(0);
    columns_ = axis(1);
  }

  void run(const TaskContext& context) const noexcept override {
    const ImageSteps from = ImageSteps::of(x_), to = ImageSteps::of(y_);
    const auto* x = context.pointer<const std::uint8_t>(x_);
    auto* y = context.pointer<std::uint8_t>(y_);
    Range range = context.share(x_.shape[0] * rows_.outputs);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows_.outputs;
      const std::int64_t first = range.begin % rows_.outputs;
      const std::int64_t last = std::min(rows_.outputs, first + range.end - range.begin);
      kernels_.max_pool({from.at(x + image * from.image), to.at(y + image * to.image), x_.shape[1],
                         rows_, columns_},
                        first, last);
      range.begin += last - first;
    }
  }

 private:
  Operand x_, y_;
  const Int8Kernels kernels_;
  WindowAxis rows_{}, columns_{};
};

}  // namespace

std::unique_ptr<Task> make_int8_max_pool(const Step& step) {
  return std::make_unique<Int8MaxPoolTask>(step);
}

}  // namespace tenon::cpu
