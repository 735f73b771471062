// Means over the cells of boxes, box by box, and their gradient, plane by plane.
#include "../task.hpp"
#include "real.hpp"

#include <tenon/host_view.hpp>
#include <tenon/ops/roi_align.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace tenon::cpu {
namespace {

template <class T>
struct RoiPoint {
  std::int64_t low = 0, high = 0;
  T share = 0;
  bool is_inside = false;
};

/// A box in pixels, divided into cells, and those into parts.
template <class T>
struct RoiGrid {
  std::array<T, 2> first, cell;
  std::array<std::int64_t, 2> parts;

  template <class Op>
  RoiGrid(const Op& op, const T* box) noexcept {
    const auto scale = static_cast<T>(op.scale);
    for (std::size_t i = 0; i < 2; ++i) {  // rows, columns
      first[i] = box[1 - i] * scale - (op.aligned ? T(0.5) : T(0));
      T extent = box[3 - i] * scale - (op.aligned ? T(0.5) : T(0)) - first[i];
      if (!op.aligned) extent = std::max(extent, T(1));
      cell[i] = extent / static_cast<T>(op.size[i]);
      const T wanted =
          std::isfinite(cell[i]) ? std::clamp(std::ceil(cell[i]), T(0), T(0x1p20)) : T(0);
      parts[i] = op.sampling_ratio > 0 ? op.sampling_ratio : static_cast<std::int64_t>(wanted);
    }
  }
  T share() const noexcept {
    return 1 / static_cast<T>(std::max<std::int64_t>(parts[0] * parts[1], 1));
  }
  RoiPoint<T> point(std::size_t axis, std::int64_t i, std::int64_t part,
                    std::int64_t size) const noexcept {
    T at = first[axis] + static_cast<T>(i) * cell[axis] +
           (static_cast<T>(part) + T(0.5)) * cell[axis] / static_cast<T>(parts[axis]);
    if (!(at >= -1 && at <= static_cast<T>(size)) || size == 0) return {};
    at = std::max(at, T(0));
    const auto low = static_cast<std::int64_t>(at);
    if (low >= size - 1) return {size - 1, size - 1, 0, true};
    return {low, low + 1, at - static_cast<T>(low), true};
  }
  /// Calls visit(offset in a plane, weight) for the pixels of a cell.
  template <class Visit>
  void pixels(const Worker& worker, std::int64_t i, std::int64_t j, std::int64_t height,
              std::int64_t width, Visit&& visit) const noexcept {
    for (std::int64_t r = 0; r < parts[0] && !worker.is_interrupted(); ++r) {
      const RoiPoint<T> down = point(0, i, r, height);
      for (std::int64_t s = 0; s < parts[1] && down.is_inside; ++s) {
        const RoiPoint<T> across = point(1, j, s, width);
        if (!across.is_inside) continue;
        const T a = across.share, b = down.share;
        visit(down.low * width + across.low, (1 - a) * (1 - b));
        visit(down.low * width + across.high, a * (1 - b));
        visit(down.high * width + across.low, (1 - a) * b);
        visit(down.high * width + across.high, a * b);
      }
    }
  }
};

/// The image of a box, or -1 after a report.
template <class Op>
std::int64_t roi_image(const TaskContext& context, const Operand& images, std::int64_t images_count,
                       std::int64_t box) noexcept {
  const DType dtype = images.shape.dtype();
  const std::int64_t image =
      load_as_int64(dtype, context.pointer<const std::byte>(images) + box * block_bytes(dtype));
  if (image >= 0 && image < images_count) return image;
  context.fault.report(Errc::out_of_range, Op::name.data(), image, images_count);
  return -1;
}

template <class T>
class RoiAlignTask final : public Task {
 public:
  explicit RoiAlignTask(const Step& step)
      : in_(step.inputs), y_(step.output), op_(*step.op.as<RoiAlign>()) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& x = in_[0].shape;
    const std::int64_t channels = x[1], plane = x[2] * x[3], cells = op_.size[0] * op_.size[1];
    const Range range = context.share(in_[1].shape[0] * op_.size[0]);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t box = i / op_.size[0], row = i % op_.size[0];
      const std::int64_t image = roi_image<RoiAlign>(context, in_[2], x[0], box);
      if (image < 0) return;
      const RoiGrid<T> grid(op_, context.pointer<const T>(in_[1]) + box * 4);
      const T* from = context.pointer<const T>(in_[0]) + image * channels * plane;
      T* y = context.pointer<T>(y_) + box * channels * cells + row * op_.size[1];
      const T share = grid.share();
      for (std::int64_t j = 0; j < op_.size[1]; ++j) {
        for (std::int64_t c = 0; c < channels; ++c) y[c * cells + j] = 0;
        grid.pixels(context.worker, row, j, x[2], x[3], [&](std::int64_t offset, T weight) {
          for (std::int64_t c = 0; c < channels; ++c) {
            y[c * cells + j] += weight * from[c * plane + offset];
          }
        });
        for (std::int64_t c = 0; c < channels; ++c) y[c * cells + j] *= share;
      }
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  RoiAlign op_;
};

template <class T>
class RoiAlignBackwardTask final : public Task {
 public:
  explicit RoiAlignBackwardTask(const Step& step)
      : in_(step.inputs), y_(step.output), op_(*step.op.as<RoiAlignBackward>()) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& x = y_.shape;
    const std::int64_t channels = x[1], plane = x[2] * x[3], cells = op_.size[0] * op_.size[1];
    const Range range = context.share(channels);
    T* y = context.pointer<T>(y_);
    for (std::int64_t c = range.begin; c < range.end; ++c) {
      for (std::int64_t n = 0; n < x[0]; ++n)
        std::fill_n(y + (n * channels + c) * plane, plane, T(0));
    }
    for (std::int64_t box = 0; box < in_[1].shape[0]; ++box) {
      const std::int64_t image = roi_image<RoiAlignBackward>(context, in_[2], x[0], box);
      if (image < 0) return;
      const RoiGrid<T> grid(op_, context.pointer<const T>(in_[1]) + box * 4);
      const T share = grid.share();
      const T* upstream = context.pointer<const T>(in_[3]) + box * channels * cells;
      T* to = y + image * channels * plane;
      for (std::int64_t i = 0; i < cells; ++i) {
        grid.pixels(context.worker, i / op_.size[1], i % op_.size[1], x[2], x[3],
                    [&](std::int64_t offset, T weight) {
                      for (std::int64_t c = range.begin; c < range.end; ++c) {
                        to[c * plane + offset] += weight * share * upstream[c * cells + i];
                      }
                    });
      }
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  RoiAlignBackward op_;
};

std::optional<std::string> refuses_roi(const Step& step) {
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (i != 2) {
      const DType dtype = is_f64(step) ? DType::f64 : DType::f32;
      if (auto why = needs_dtype(step.inputs[i], dtype, "an input")) return why;
    }
    if (auto why = needs_dense(step.inputs[i], "an input")) return why;
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel roi_align_kernel, roi_align_backward_kernel;
constinit const Kernel roi_align_kernel{op_def<RoiAlign>, refuses_roi,
                                        make_real_task<RoiAlignTask>};
constinit const Kernel roi_align_backward_kernel{op_def<RoiAlignBackward>, refuses_roi,
                                                 make_real_task<RoiAlignBackwardTask>};

}  // namespace tenon::cpu
