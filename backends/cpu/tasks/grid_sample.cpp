// Images looked at in places of a grid: the pixels and weights of a row of places first, then
// channel by channel.
#include "../integer_math.hpp"
#include "../task.hpp"
#include "real.hpp"

#include <tenon/ops/grid_sample.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace tenon::cpu {
namespace {

/// The pixels that a place is mixed from: offsets in a plane, -1 outside of it.
template <class T>
struct GridPixels {
  std::array<std::int32_t, 4> offsets;
  std::array<T, 4> weights, by_column, by_row;
};

template <class T>
class GridTaps {
 public:
  template <class Op>
  GridTaps(const Op& op, const Shape& x)
      : height_(x[2]),
        width_(x[3]),
        is_nearest_(op.mode.text() == "nearest"),
        holds_(op.padding.text() == "border"),
        reflects_(op.padding.text() == "reflection"),
        align_corners_(op.align_corners) {}

  GridPixels<T> at(T column, T row) const noexcept {
    T by_column = 0, by_row = 0;
    const T across = place(column, width_, by_column), down = place(row, height_, by_row);
    if (is_nearest_) {
      return {{offset(std::nearbyint(down), std::nearbyint(across)), -1, -1, -1}, {1}, {}, {}};
    }
    const T left = std::floor(across), top = std::floor(down);
    const T a = across - left, b = down - top;
    return {{offset(top, left), offset(top, left + 1), offset(top + 1, left),
             offset(top + 1, left + 1)},
            {(1 - a) * (1 - b), a * (1 - b), (1 - a) * b, a * b},
            {(b - 1) * by_column, (1 - b) * by_column, -b * by_column, b * by_column},
            {(a - 1) * by_row, -a * by_row, (1 - a) * by_row, a * by_row}};
  }

 private:
  std::int32_t offset(T row, T column) const noexcept {
    const auto r = static_cast<std::int64_t>(row), c = static_cast<std::int64_t>(column);
    const bool inside = r >= 0 && r < height_ && c >= 0 && c < width_;
    return inside ? static_cast<std::int32_t>(r * width_ + c) : -1;
  }

  /// In pixels; `slope` becomes its derivative by the element of the grid.
  T place(T g, std::int64_t size, T& slope) const noexcept {
    const auto count = static_cast<T>(size);
    slope = 0;
    if (g != g) return holds_ || reflects_ ? T(0) : -T(2);
    slope = (align_corners_ ? count - 1 : count) / 2;
    T at = align_corners_ ? (g + 1) * slope : ((g + 1) * count - 1) / 2;
    if (at != at) return holds_ || reflects_ ? T(0) : -T(2);  // infinity along an axis of one
    if (reflects_) {
      const T low = align_corners_ ? T(0) : -T(0.5), span = 2 * slope;
      if (span == 0 || !std::isfinite(at)) {
        slope = 0;
        return 0;
      }
      T from = at - low;
      if (from < 0) {
        slope = -slope;
        from = -from;
      }
      const T rest = std::fmod(from, span);
      const bool is_back = std::fmod(std::floor(from / span), T(2)) != 0;
      at = (is_back ? span - rest : rest) + low;
      if (is_back) slope = -slope;
    }
    if (holds_ || reflects_) {
      if (at <= 0 || at >= count - 1) slope = 0;
      return std::clamp(at, T(0), count - 1);
    }
    return std::clamp(at, -T(2), count + 1);  // zeros from there on
  }

  std::int64_t height_, width_;
  bool is_nearest_, holds_, reflects_, align_corners_;
};

/// A row of places at a time.
template <class Op, class T>
class GridRowTask final : public Task {
  static constexpr bool is_gradient = std::is_same_v<Op, GridSampleGridBackward>;

 public:
  GridRowTask(const Step& step, Compiler& compiler)
      : in_(step.inputs), y_(step.output), taps_(*step.op.as<Op>(), in_[0].shape) {
    compiler.working_memory(in_[1].shape[2] * static_cast<std::int64_t>(sizeof(GridPixels<T>)));
  }

  void run(const TaskContext& context) const noexcept override {
    const Shape &x = in_[0].shape, &grid = in_[1].shape;
    const std::int64_t rows = grid[1], count = grid[2], channels = x[1], plane = x[2] * x[3];
    const auto* places = context.pointer<const T>(in_[1]);
    auto* pixels = reinterpret_cast<GridPixels<T>*>(context.working_memory());
    const Range range = context.share(grid[0] * rows);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t image = i / rows, row = i % rows;
      const T* from = places + i * count * 2;
      for (std::int64_t j = 0; j < count; ++j) pixels[j] = taps_.at(from[2 * j], from[2 * j + 1]);
      const T* first = context.pointer<const T>(in_[0]) + image * channels * plane;
      T* y = context.pointer<T>(y_);
      if constexpr (is_gradient) std::fill_n(y + i * count * 2, count * 2, T(0));
      for (std::int64_t c = 0; c < channels; ++c) {
        const T* const from_plane = first + c * plane;
        const std::int64_t line = ((image * channels + c) * rows + row) * count;
        if constexpr (is_gradient) {
          const T* upstream = context.pointer<const T>(in_[2]) + line;
          add_slopes(from_plane, pixels, count, upstream, y + i * count * 2);
        } else {
          mix(from_plane, pixels, count, y + line);
        }
      }
    }
  }

 private:
  static void mix(const T* plane, const GridPixels<T>* pixels, std::int64_t count, T* y) noexcept {
    for (std::int64_t j = 0; j < count; ++j) {
      T sum = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        const std::int32_t offset = pixels[j].offsets[k];
        if (offset >= 0) sum += pixels[j].weights[k] * plane[offset];
      }
      y[j] = sum;
    }
  }
  static void add_slopes(const T* plane, const GridPixels<T>* pixels, std::int64_t count,
                         const T* upstream, T* y) noexcept {
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::size_t k = 0; k < 4; ++k) {
        const std::int32_t offset = pixels[j].offsets[k];
        if (offset < 0) continue;
        const T amount = plane[offset] * upstream[j];
        y[2 * j] += pixels[j].by_column[k] * amount;
        y[2 * j + 1] += pixels[j].by_row[k] * amount;
      }
    }
  }

  std::vector<Operand> in_;
  Operand y_;
  GridTaps<T> taps_;
};

/// A plane of x at a time: places may meet anywhere in it.
template <class T>
class GridPlaneTask final : public Task {
 public:
  explicit GridPlaneTask(const Step& step)
      : in_(step.inputs), y_(step.output), taps_(*step.op.as<GridSampleBackward>(), y_.shape) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape &x = y_.shape, &grid = in_[1].shape;
    const std::int64_t plane = x[2] * x[3], places = grid[1] * grid[2];
    const Range range = context.share(x[0] * x[1]);
    for (std::int64_t p = range.begin; p < range.end && !context.worker.is_interrupted(); ++p) {
      const T* from = context.pointer<const T>(in_[1]) + p / x[1] * places * 2;
      const T* upstream = context.pointer<const T>(in_[2]) + p * places;
      T* y = context.pointer<T>(y_) + p * plane;
      std::fill_n(y, plane, T(0));
      for (std::int64_t j = 0; j < places; ++j) {
        const GridPixels<T> pixels = taps_.at(from[2 * j], from[2 * j + 1]);
        for (std::size_t k = 0; k < 4; ++k) {
          if (pixels.offsets[k] >= 0) y[pixels.offsets[k]] += pixels.weights[k] * upstream[j];
        }
      }
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  GridTaps<T> taps_;
};

template <class T>
using SampleTask = GridRowTask<GridSample, T>;
template <class T>
using GridGradientTask = GridRowTask<GridSampleGridBackward, T>;

std::optional<std::string> refuses_grid(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dense(input, "an input")) return why;
  }
  const Shape& x = step.inputs[0].shape;
  if (x[2] > (std::int64_t{1} << 30) / x[3]) return "a plane of more than 2^30 pixels";
  return std::nullopt;
}

}  // namespace

extern const Kernel grid_sample_kernel, grid_sample_backward_kernel,
    grid_sample_grid_backward_kernel;
constinit const Kernel grid_sample_kernel{op_def<GridSample>, refuses_grid,
                                          make_real_task<SampleTask>};
constinit const Kernel grid_sample_backward_kernel{op_def<GridSampleBackward>, refuses_grid,
                                                   make_real_task<GridPlaneTask>};
constinit const Kernel grid_sample_grid_backward_kernel{
    op_def<GridSampleGridBackward>, refuses_grid, make_real_task<GridGradientTask>};

}  // namespace tenon::cpu
