// RWKV-7's recurrence: a vector of values of a head at a time, through all steps.
#include "../integer_math.hpp"
#include "recurrence.hpp"

#include <tenon/ops/wkv7.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cpu {
namespace {

template <class T>
class Wkv7Task final : public Task {
 public:
  Wkv7Task(const Step& step, Compiler& compiler)
      : in_(step.inputs),
        v_(in_[3]),
        y_(step.output),
        lengths_(step.op.as<Wkv7>()->has_lengths ? std::optional(step.inputs.back()) : std::nullopt,
                 v_.shape[0], v_.shape[1]),
        every_state_(step.op.as<Wkv7>()->every_state) {
    const std::int64_t row = recurrence_kernels<T>().lanes * std::int64_t{sizeof(T)};
    compiler.working_memory(in_[0].shape[3] * row);
  }

  void run(const TaskContext& context) const noexcept override {
    if (y_.shape.elements() == 0 || !lengths_.are_valid(context, "wkv7: length")) return;
    const std::int64_t vector = recurrence_kernels<T>().lanes;
    const std::int64_t heads = v_.shape[2], blocks = ceil_div(v_.shape[3], vector);
    const Range range = context.share(y_.shape[0] * heads * blocks);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      run_block(context, i / blocks / heads, i / blocks % heads, i % blocks * vector);
    }
  }

 private:
  /// Values [first, first + lanes) of a row and head.
  void run_block(const TaskContext& context, std::int64_t b, std::int64_t head,
                 std::int64_t first) const noexcept {
    const std::int64_t vector = recurrence_kernels<T>().lanes;
    const std::int64_t lanes = std::min(vector, v_.shape[3] - first);
    const std::int64_t steps = v_.shape[1], states = in_[0].shape[3];
    const std::int64_t length = lengths_.of(context, b), width = v_.shape[2] * v_.shape[3];
    const auto row = [&](std::size_t i) {
      return StepRows<T>{context.pointer<const T>(in_[i]) + b * element_stride(in_[i], 0) +
                             head * element_stride(in_[i], 2),
                         element_stride(in_[i], 1)};
    };
    auto* const h = reinterpret_cast<T*>(context.working_memory());
    std::fill_n(h, states * vector, T{});
    const StepRows<T> state = row(6);
    for (std::int64_t n = 0; n < states; ++n) {
      std::copy_n(state.values + n * state.step + first, lanes, h + n * vector);
    }
    StepRows<T> v = row(3);
    v.values += first;
    const std::int64_t y_step = every_state_ ? states * width : width;
    const std::int64_t of_row = every_state_ ? steps * y_step : (steps + states) * width;
    T* const y = context.pointer<T>(y_) + b * of_row + head * v_.shape[3] + first;
    recurrence_kernels<T>().wkv7({.lanes = lanes,
                                  .steps = length,
                                  .states = states,
                                  .r = row(0),
                                  .w = row(1),
                                  .k = row(2),
                                  .v = v,
                                  .a = row(4),
                                  .b = row(5),
                                  .h = h,
                                  .y = y,
                                  .y_step = y_step,
                                  .every_state = every_state_,
                                  .y_stride = width});
    if (every_state_) {
      for (std::int64_t n = length * states; n < steps * states; ++n) {
        std::copy_n(h + n % states * vector, lanes, y + n * width);
      }
    } else {
      finish_recurrence(y, width, lanes, length, steps, h, states);
    }
  }

  std::vector<Operand> in_;
  Operand v_, y_;
  RowLengths lengths_;
  bool every_state_;
};

std::optional<std::string> refuses_wkv7(const Step& step) {
  for (const Operand& input : std::span(step.inputs).first(7)) {
    if (auto why = needs_dtype(input, step.output.shape.dtype(), "an input")) return why;
    if (auto why = needs_dense_rows(input, "an input")) return why;
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel wkv7_kernel;
constinit const Kernel wkv7_kernel{op_def<Wkv7>, refuses_wkv7, make_real_task<Wkv7Task>};

}  // namespace tenon::cpu
