// Windows of images as columns, and columns added up to images.
#include "../integer_math.hpp"
#include "../task.hpp"
#include "../vision/fold_plane.hpp"
#include "reader.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/unfold2d.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

std::int64_t outputs_of(const WindowAxis& axis, std::int64_t after) {
  return (axis.inputs + axis.before + after - ((axis.taps - 1) * axis.dilation + 1)) / axis.stride +
         1;
}

template <class Op>
WindowAxis fold_axis(const Op& op, std::size_t axis, std::int64_t size) {
  WindowAxis result =
      window_axis(axis, size, 0, op.kernel[axis], op.stride, 1, op.padding, op.dilation);
  const std::int64_t after = op.padding.size() == 4 ? op.padding[2 * axis + 1] : result.before;
  result.outputs = outputs_of(result, after);
  return result;
}

/// A row of the result is what one tap of one channel sees.
class UnfoldTask final : public PartwiseTask {
 public:
  explicit UnfoldTask(const Step& step) : x_(step.inputs[0]), y_(step.output) {
    const auto& op = *step.op.as<Unfold2d>();
    rows_ = fold_axis(op, 0, x_.shape[2]);
    columns_ = fold_axis(op, 1, x_.shape[3]);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t unit = block_bytes(x_.shape.dtype()), taps = rows_.taps * columns_.taps;
    const std::int64_t line = columns_.outputs * unit;
    const Range range = context.share(x_.shape[0] * x_.shape[1] * taps);
    std::byte* y = context.pointer<std::byte>(y_) + range.begin * rows_.outputs * line;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t tap = i % taps, channel = i / taps % x_.shape[1];
      const std::int64_t r = tap / columns_.taps, s = tap % columns_.taps;
      const std::byte* plane = context.pointer<const std::byte>(x_) +
                               i / taps / x_.shape[1] * x_.strides[0] + channel * x_.strides[1];
      const std::int64_t first = s * columns_.dilation - columns_.before;
      const std::int64_t begin =
          std::min(columns_.outputs, first >= 0 ? 0 : ceil_div(-first, columns_.stride));
      const std::int64_t end = std::clamp<std::int64_t>(
          first >= columns_.inputs ? 0 : (columns_.inputs - 1 - first) / columns_.stride + 1, begin,
          columns_.outputs);
      for (std::int64_t j = 0; j < rows_.outputs; ++j, y += line) {
        const std::int64_t row = j * rows_.stride + r * rows_.dilation - rows_.before;
        if (row < 0 || row >= rows_.inputs || begin == end) {
          std::memset(y, 0, static_cast<std::size_t>(line));
          continue;
        }
        std::memset(y, 0, static_cast<std::size_t>(begin * unit));
        copy_run(plane + row * x_.strides[2] + (first + begin * columns_.stride) * x_.strides[3],
                 columns_.stride * x_.strides[3], unit, end - begin, y + begin * unit);
        std::memset(y + end * unit, 0, static_cast<std::size_t>((columns_.outputs - end) * unit));
      }
    }
  }

 private:
  Operand x_, y_;
  WindowAxis rows_{}, columns_{};
};

template <class T>
class FoldTask final : public PartwiseTask {
 public:
  explicit FoldTask(const Step& step) : x_(step.inputs[0]), y_(step.output) {
    const auto& op = *step.op.as<Fold2d>();
    rows_ = fold_axis(op, 0, y_.shape[2]);
    columns_ = fold_axis(op, 1, y_.shape[3]);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t places = rows_.outputs * columns_.outputs;
    const std::int64_t taps = rows_.taps * columns_.taps, plane = rows_.inputs * columns_.inputs;
    const Range range = context.share(y_.shape[0] * y_.shape[1]);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const T* x = context.pointer<const T>(x_) + i * taps * places;
      T* y = context.pointer<T>(y_) + i * plane;
      fold_plane(x, places, {rows_, columns_}, {0, rows_.outputs}, {0, rows_.inputs}, T(0), y);
    }
  }

 private:
  Operand x_, y_;
  WindowAxis rows_{}, columns_{};
};

std::optional<std::string> refuses_fold2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  return needs_dense(step.inputs[0], "x");
}

}  // namespace

extern const Kernel unfold2d_kernel, fold2d_kernel;
constinit const Kernel unfold2d_kernel{op_def<Unfold2d>, takes_everything, make_task<UnfoldTask>};
constinit const Kernel fold2d_kernel{op_def<Fold2d>, refuses_fold2d, make_real_task<FoldTask>};

}  // namespace tenon::cpu
