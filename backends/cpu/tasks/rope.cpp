#include "../elementwise/elementwise.hpp"
#include "reader.hpp"
#include "real.hpp"

#include <tenon/ops/rope.hpp>

#include <cmath>

namespace tenon::cpu {
namespace {

/// Cosines and sines of the angles of every position: [rows][2][pairs].
template <class T>
class TableTask final : public PartwiseTask {
 public:
  TableTask(const Step& step, const Rope& op, std::int64_t pairs, std::int64_t table)
      : positions_(step.inputs[1]),
        pairs_(pairs),
        angles_(pairs),
        frequencies_(op.frequencies(2 * pairs)),
        magnitude_(op.magnitude()),
        table_(table) {
    if (op.has_freq_factors) factors_ = step.inputs[2];
    // Sections lie beside each other: a pair's own is a step from the first.
    const int section_axis = op.sections.empty() ? -1 : positions_.shape.rank() - 2;
    steps_.assign(static_cast<std::size_t>(pairs), 0);
    if (section_axis >= 0) {
      const std::vector<int> sections = op.section_of_pairs(pairs);
      for (std::size_t i = 0; i < steps_.size(); ++i) {
        steps_[i] = sections[i] * positions_.strides[static_cast<std::size_t>(section_axis)];
      }
    }
    for (int i = 0; i < positions_.shape.rank(); ++i) {
      if (i == section_axis) continue;
      angles_ *= positions_.shape[i];
      rows_.push(positions_.shape[i], positions_.strides[static_cast<std::size_t>(i)]);
    }
  }

  void run(const TaskContext& context) const noexcept override {
    const auto* positions = context.pointer<const std::byte>(positions_);
    const auto* factors = factors_ ? context.pointer<const float>(*factors_) : nullptr;
    const Range angles = context.share(angles_);
    for (std::int64_t angle = angles.begin; angle < angles.end; ++angle) {
      const std::int64_t row = angle / pairs_, i = angle % pairs_;
      const auto position = static_cast<double>(*reinterpret_cast<const std::int32_t*>(
          positions + rows_.offset(row) + steps_[static_cast<std::size_t>(i)]));
      const double turned = position * frequencies_[static_cast<std::size_t>(i)] /
                            (factors != nullptr ? static_cast<double>(factors[i]) : 1.0);
      auto* cosines = reinterpret_cast<T*>(context.scratch(table_)) + row * 2 * pairs_;
      cosines[i] = static_cast<T>(std::cos(turned) * magnitude_);
      cosines[pairs_ + i] = static_cast<T>(std::sin(turned) * magnitude_);
    }
  }

 private:
  Operand positions_;
  std::optional<Operand> factors_;
  Loops rows_;
  std::int64_t pairs_;
  std::int64_t angles_;
  std::vector<std::int64_t> steps_;  // in bytes, from a row's first position to a pair's
  std::vector<double> frequencies_;
  double magnitude_;
  std::int64_t table_;
};

void rotate(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
            bool interleaved, float* y, std::int64_t count) noexcept {
  rotate_row(x, cosines, sines, pairs, interleaved, y, count);
}
void rotate(const double* x, const double* cosines, const double* sines, std::int64_t pairs,
            bool interleaved, double* y, std::int64_t count) noexcept {
  const std::int64_t step = interleaved ? 2 : 1, between = interleaved ? 1 : pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double a = x[i * step], b = x[i * step + between];
    y[i * step] = a * cosines[i] - b * sines[i];
    y[i * step + between] = a * sines[i] + b * cosines[i];
  }
  for (std::int64_t i = 2 * pairs; i < count; ++i) y[i] = x[i];
}

template <class T>
class RopeTask final : public PartwiseTask {
 public:
  RopeTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), y_(step.output), op_(*step.op.as<Rope>()) {
    pairs_ = (op_.dims != 0 ? op_.dims : x_.shape[3]) / 2;
    const Operand& positions = step.inputs[1];
    has_own_positions_ = positions.shape.rank() == (op_.sections.empty() ? 2 : 3);
    const std::int64_t rows = x_.shape[1] * (has_own_positions_ ? x_.shape[0] : 1);
    Rope turning = op_;
    turning.dims = 2 * pairs_;
    turning.interleaved = false;
    table_ = compiler.shared_table(
        OpInstance(turning), std::span(step.inputs).subspan(1),
        rows * 2 * pairs_ * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t table) {
          return std::make_unique<TableTask<T>>(step, op_, pairs_, table);
        });
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t heads = x_.shape[2], size = x_.shape[3], length = x_.shape[1];
    const auto* table = reinterpret_cast<const T*>(context.scratch(table_));
    const Range range = context.share(x_.shape[0] * length * heads);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t h = i % heads, row = i / heads, s = row % length, b = row / length;
      const std::byte* x = context.pointer<const std::byte>(x_) + b * x_.strides[0] +
                           s * x_.strides[1] + h * x_.strides[2];
      const T* cosines = table + (has_own_positions_ ? row : s) * 2 * pairs_;
      rotate(reinterpret_cast<const T*>(x), cosines, cosines + pairs_, pairs_, op_.interleaved,
             context.pointer<T>(y_) + i * size, size);
    }
  }

 private:
  Operand x_, y_;
  Rope op_;
  std::int64_t pairs_ = 0;
  bool has_own_positions_ = false;
  std::int64_t table_ = 0;
};

std::optional<std::string> refuses_rope(const Step& step) {
  const DType dtype = is_f64(step) ? DType::f64 : DType::f32;
  if (auto why = needs_dtype(step.inputs[0], dtype, "x")) return why;
  if (step.inputs.size() > 2) {
    if (auto why = needs_dtype(step.inputs[2], DType::f32, "freq_factors")) return why;
  }
  if (step.inputs.size() > 2 && !step.inputs[2].is_contiguous()) return "freq_factors are strided";
  return needs_dense_rows(step.inputs[0], "x");
}

}  // namespace

extern const Kernel rope_kernel;
constinit const Kernel rope_kernel{op_def<Rope>, refuses_rope, make_real_task<RopeTask>};

}  // namespace tenon::cpu
