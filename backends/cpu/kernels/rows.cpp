// Kernels that take one row after another: norms, softmax, reductions of the last axis.
#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/softmax.hpp>

namespace tenon::cpu {
namespace {

/// Calls body(x row, y row) for this thread's rows of a step whose rows lie evenly.
template <class Body>
class RowTask final : public Task {
 public:
  RowTask(const Step& step, std::int64_t y_step, Body body)
      : x_(step.inputs[0]),
        y_(step.output),
        rows_(row_count(x_.shape)),
        size_(row_size(x_.shape)),
        x_step_(*even_row_step(x_)),
        y_step_(y_step),
        body_(std::move(body)) {}

  void run(const TaskContext& context) const noexcept override {
    const Range rows = context.share(rows_);
    const auto* x = context.pointer<const float>(x_);
    auto* y = context.pointer<float>(y_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      body_(context, x + row * x_step_, y + row * y_step_, size_);
    }
  }

 private:
  Operand x_, y_;
  std::int64_t rows_, size_, x_step_, y_step_;
  Body body_;
};

template <class Body>
std::unique_ptr<Task> row_task(const Step& step, std::int64_t y_step, Body body) {
  return std::make_unique<RowTask<Body>>(step, y_step, std::move(body));
}

std::optional<std::string> refuses_rows(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  if (auto why = needs_dense_rows(step.inputs[0], "x")) return why;
  if (!even_row_step(step.inputs[0])) return "rows of x lie unevenly";
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], "a weight")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make_rms_norm(const Step& step, Compiler&) {
  const auto eps = static_cast<float>(step.op.as<RmsNorm>()->eps);
  std::optional<Operand> weight;
  if (step.inputs.size() > 1) weight = step.inputs[1];
  return row_task(
      step, row_size(step.output.shape),
      [eps, weight](const TaskContext& context, const float* x, float* y, std::int64_t size) {
        rms_norm_row(x, weight ? context.pointer<const float>(*weight) : nullptr, eps, y, size);
      });
}

std::unique_ptr<Task> make_layer_norm(const Step& step, Compiler&) {
  const auto eps = static_cast<float>(step.op.as<LayerNorm>()->eps);
  std::optional<Operand> weight, bias;
  if (step.inputs.size() > 1) weight = step.inputs[1];
  if (step.inputs.size() > 2) bias = step.inputs[2];
  return row_task(
      step, row_size(step.output.shape),
      [eps, weight, bias](const TaskContext& context, const float* x, float* y, std::int64_t size) {
        layer_norm_row(x, weight ? context.pointer<const float>(*weight) : nullptr,
                       bias ? context.pointer<const float>(*bias) : nullptr, eps, y, size);
      });
}

std::optional<std::string> refuses_softmax(const Step& step) {
  if (step.op.as<Softmax>()->axis != step.inputs[0].shape.rank() - 1)
    return "not along the last axis";
  return refuses_rows(step);
}

std::unique_ptr<Task> make_softmax(const Step& step, Compiler&) {
  return row_task(step, row_size(step.output.shape),
                  [](const TaskContext&, const float* x, float* y, std::int64_t size) {
                    softmax_row(x, y, size);
                  });
}

template <class Op>
std::optional<std::string> refuses_fold(const Step& step) {
  const IntList& axes = step.op.as<Op>()->axes;
  const int rank = step.inputs[0].shape.rank();
  if (rank == 0 || axes.size() != 1 || axes[0] != rank - 1) return "not over the last axis alone";
  if (row_size(step.inputs[0].shape) == 0) return "nothing to reduce";
  return refuses_rows(step);
}

template <Fold op>
std::unique_ptr<Task> make_fold(const Step& step, Compiler&) {
  return row_task(step, 1, [](const TaskContext&, const float* x, float* y, std::int64_t size) {
    *y = fold_row(op, x, size);
  });
}

}  // namespace

extern const Kernel rms_norm_kernel, layer_norm_kernel, softmax_kernel, sum_kernel, mean_kernel,
    max_kernel, min_kernel;
constinit const Kernel rms_norm_kernel{op_def<RmsNorm>, refuses_rows, make_rms_norm};
constinit const Kernel layer_norm_kernel{op_def<LayerNorm>, refuses_rows, make_layer_norm};
constinit const Kernel softmax_kernel{op_def<Softmax>, refuses_softmax, make_softmax};
constinit const Kernel sum_kernel{op_def<Sum>, refuses_fold<Sum>, make_fold<Fold::sum>};
constinit const Kernel mean_kernel{op_def<Mean>, refuses_fold<Mean>, make_fold<Fold::mean>};
constinit const Kernel max_kernel{op_def<Max>, refuses_fold<Max>, make_fold<Fold::max>};
constinit const Kernel min_kernel{op_def<Min>, refuses_fold<Min>, make_fold<Fold::min>};

}  // namespace tenon::cpu
