// Resampling of rows, columns and slices: row by row of the result. The rows of x that it mixes are
// resampled along their own axis first, and kept as long as the next rows of the result use them.
#include "../integer_math.hpp"
#include "../task.hpp"
#include "../vision/vision_kernels.hpp"
#include "real.hpp"

#include <tenon/ops/resize.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::cpu {
namespace {

/// What each element of a row is mixed from, as RowMix.
struct RowMixF64 {
  const std::int32_t* inputs;
  const double* weights;  ///< null: one tap of weight 1
  std::int64_t taps, count;
};

/// The kernels of rows that tasks use: vectors in f32, plain loops in f64.
template <class T>
struct ResizeRows;

template <>
struct ResizeRows<float> {
  using Mix = RowMix;
  const VisionKernels& kernels = vision_kernels();

  void mix_row(const float* x, const RowMix& mix, float* y) const noexcept {
    kernels.mix_row(x, mix, y);
  }
  void unmix_row(const float* y, const RowMix& mix, float* x) const noexcept {
    kernels.unmix_row(y, mix, x);
  }
  void mix_rows(const float* const* rows, const float* weights, std::int64_t taps, float* y,
                std::int64_t count) const noexcept {
    kernels.mix_rows(rows, weights, taps, y, count);
  }
  void add_scaled(const float* x, float factor, float* y, std::int64_t count) const noexcept {
    kernels.add_scaled(x, factor, y, count);
  }
};

template <>
struct ResizeRows<double> {
  using Mix = RowMixF64;

  void mix_row(const double* x, const Mix& mix, double* y) const noexcept {
    std::fill_n(y, mix.count, 0.0);
    for (std::int64_t k = 0; k < mix.taps; ++k) {
      const std::int32_t* inputs = mix.inputs + k * mix.count;
      for (std::int64_t i = 0; i < mix.count; ++i) {
        y[i] += (mix.weights == nullptr ? 1.0 : mix.weights[k * mix.count + i]) * x[inputs[i]];
      }
    }
  }
  void unmix_row(const double* y, const Mix& mix, double* x) const noexcept {
    for (std::int64_t k = 0; k < mix.taps; ++k) {
      const std::int32_t* inputs = mix.inputs + k * mix.count;
      for (std::int64_t i = 0; i < mix.count; ++i) {
        x[inputs[i]] += (mix.weights == nullptr ? 1.0 : mix.weights[k * mix.count + i]) * y[i];
      }
    }
  }
  void mix_rows(const double* const* rows, const double* weights, std::int64_t taps, double* y,
                std::int64_t count) const noexcept {
    std::fill_n(y, count, 0.0);
    for (std::int64_t k = 0; k < taps; ++k) add_scaled(rows[k], weights[k], y, count);
  }
  void add_scaled(const double* x, double factor, double* y, std::int64_t count) const noexcept {
    for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
  }
};

/// One axis of a resize, with weights in T.
template <class T>
struct ResampledAxis {
  std::int64_t inputs = 1, outputs = 1, taps = 1;
  std::vector<std::int32_t> places{0};
  std::vector<T> weights{T(1)};
  bool is_copy = true;  ///< one tap of weight 1

  ResampledAxis() = default;
  ResampledAxis(const Resize& op, std::int64_t size, std::int64_t outputs_)
      : inputs(size), outputs(outputs_) {
    const ResizeTaps table = resize_taps(op, size, outputs_);
    taps = table.taps;
    places.assign(table.inputs.begin(), table.inputs.end());
    weights.clear();
    for (const double weight : table.weights) weights.push_back(static_cast<T>(weight));
    is_copy = taps == 1;
  }

  std::int32_t place(std::int64_t tap, std::int64_t output) const noexcept {
    return places[static_cast<std::size_t>(tap * outputs + output)];
  }
  T weight(std::int64_t tap, std::int64_t output) const noexcept {
    return weights[static_cast<std::size_t>(tap * outputs + output)];
  }
  typename ResizeRows<T>::Mix mix() const noexcept {
    return {places.data(), is_copy ? nullptr : weights.data(), taps, outputs};
  }
};

/// Slices, rows and columns; absent axes have one element.
template <class T>
struct ResampledAxes {
  std::int64_t planes = 1;  ///< what the leading axes multiply to
  std::array<ResampledAxis<T>, 3> axes;

  ResampledAxes(const Resize& op, const Shape& from, const Shape& to) {
    const auto count = static_cast<int>(op.sizes.size());
    const int lead = to.rank() - count;
    for (int i = 0; i < lead; ++i) planes *= to[i];
    for (int i = 0; i < count; ++i) {
      axes[static_cast<std::size_t>(3 - count + i)] =
          ResampledAxis<T>(op, from[lead + i], to[lead + i]);
    }
  }
};

template <class T>
class ResizeTask final : public Task {
 public:
  ResizeTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), y_(step.output), resampled_(*step.op.as<Resize>(), x_.shape, y_.shape) {
    row_bytes_ = round_up(columns().outputs * static_cast<std::int64_t>(sizeof(T)), 64);
    compiler.working_memory(slots * row_bytes_);
  }

  void run(const TaskContext& context) const noexcept override {
    const ResizeRows<T> kernels;
    const auto& [depth, rows, _] = resampled_.axes;
    const std::int64_t width = columns().outputs;
    const auto* x = context.pointer<const T>(x_);
    auto* y = context.pointer<T>(y_);
    std::array<std::int64_t, slots> held;  // the row of x that each kept row was made from
    held.fill(-1);
    const Range range = context.share(resampled_.planes * depth.outputs * rows.outputs);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t row = i % rows.outputs, slice = i / rows.outputs % depth.outputs;
      const std::int64_t plane = i / rows.outputs / depth.outputs;
      std::array<const T*, slots> sources;
      std::array<T, slots> weights;
      std::size_t count = 0;
      for (std::int64_t d = 0; d < depth.taps; ++d) {
        for (std::int64_t r = 0; r < rows.taps; ++r) {
          const std::int64_t from =
              (plane * depth.inputs + depth.place(d, slice)) * rows.inputs + rows.place(r, row);
          weights[count] = depth.weight(d, slice) * rows.weight(r, row);
          sources[count++] = resampled_row(context, kernels, x, held, from, depth.place(d, slice),
                                           rows.place(r, row));
        }
      }
      const bool is_one = count == 1 && weights[0] == T(1);
      if (is_one) {
        std::memcpy(y + i * width, sources[0], static_cast<std::size_t>(width) * sizeof(T));
      } else {
        kernels.mix_rows(sources.data(), weights.data(), static_cast<std::int64_t>(count),
                         y + i * width, width);
      }
    }
  }

 private:
  /// Taps along an axis are up to four elements in a row: modulo four they do not meet.
  static constexpr std::int64_t slots = 16;
  const ResampledAxis<T>& columns() const noexcept { return resampled_.axes[2]; }

  const T* resampled_row(const TaskContext& context, const ResizeRows<T>& kernels, const T* x,
                         std::array<std::int64_t, slots>& held, std::int64_t from,
                         std::int64_t slice, std::int64_t row) const noexcept {
    const ResampledAxis<T>& axis = columns();
    const T* source = x + from * axis.inputs;
    if (axis.is_copy && axis.inputs == axis.outputs) return source;
    const std::int64_t slot = slice % 4 * 4 + row % 4;
    auto* kept = reinterpret_cast<T*>(context.working_memory() + slot * row_bytes_);
    std::int64_t& of = held[static_cast<std::size_t>(slot)];
    if (of != from) {
      kernels.mix_row(source, axis.mix(), kept);
      of = from;
    }
    return kept;
  }

  Operand x_, y_;
  ResampledAxes<T> resampled_;
  std::int64_t row_bytes_ = 0;
};

Resize forward_op(const ResizeBackward& op, const Shape& upstream) {
  Resize result{.sizes = {},
                .mode = op.mode,
                .coordinates = op.coordinates,
                .rounding = op.rounding,
                .cubic_coefficient = op.cubic_coefficient};
  for (int i = upstream.rank() - static_cast<int>(op.sizes.size()); i < upstream.rank(); ++i) {
    result.sizes.push_back(upstream[i]);
  }
  return result;
}

/// Plane by plane, each the work of one thread.
template <class T>
class ResizeBackwardTask final : public Task {
 public:
  ResizeBackwardTask(const Step& step, Compiler& compiler)
      : upstream_(step.inputs[0]),
        y_(step.output),
        resampled_(forward_op(*step.op.as<ResizeBackward>(), upstream_.shape), y_.shape,
                   upstream_.shape) {
    compiler.working_memory(
        round_up(resampled_.axes[2].inputs * static_cast<std::int64_t>(sizeof(T)), 64));
  }

  void run(const TaskContext& context) const noexcept override {
    const ResizeRows<T> kernels;
    const auto& [depth, rows, columns] = resampled_.axes;
    const std::int64_t width = columns.inputs;
    const std::int64_t plane = depth.inputs * rows.inputs * width;
    const T* upstream = context.pointer<const T>(upstream_);
    auto* y = context.pointer<T>(y_);
    auto* row = reinterpret_cast<T*>(context.working_memory());
    const Range range = context.share(resampled_.planes);
    for (std::int64_t p = range.begin; p < range.end && !context.worker.is_interrupted(); ++p) {
      T* to = y + p * plane;
      std::fill_n(to, plane, T(0));
      for (std::int64_t i = 0; i < depth.outputs * rows.outputs; ++i) {
        const T* from = upstream + (p * depth.outputs * rows.outputs + i) * columns.outputs;
        std::fill_n(row, width, T(0));
        kernels.unmix_row(from, columns.mix(), row);
        for (std::int64_t d = 0; d < depth.taps; ++d) {
          for (std::int64_t r = 0; r < rows.taps; ++r) {
            const std::int64_t slice = i / rows.outputs, line = i % rows.outputs;
            kernels.add_scaled(
                row, depth.weight(d, slice) * rows.weight(r, line),
                to + (depth.place(d, slice) * rows.inputs + rows.place(r, line)) * width, width);
          }
        }
      }
    }
  }

 private:
  Operand upstream_, y_;
  ResampledAxes<T> resampled_;
};

std::optional<std::string> refuses_resize(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  for (const Shape* shape : {&step.inputs[0].shape, &step.output.shape}) {
    for (const std::int64_t size : shape->dims()) {
      if (size > std::numeric_limits<std::int32_t>::max())
        return "an axis of more than 2^31 elements";
    }
  }
  return needs_dense(step.inputs[0], "x");
}

}  // namespace

extern const Kernel resize_kernel, resize_backward_kernel;
constinit const Kernel resize_kernel{op_def<Resize>, refuses_resize, make_real_task<ResizeTask>};
constinit const Kernel resize_backward_kernel{op_def<ResizeBackward>, refuses_resize,
                                              make_real_task<ResizeBackwardTask>};

}  // namespace tenon::cpu
