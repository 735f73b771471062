// Selective scans: a vector of channels at a time, through all steps.
#include "../integer_math.hpp"
#include "recurrence.hpp"

#include <tenon/ops/selective_scan.hpp>

#include <algorithm>
#include <array>

namespace tenon::cpu {
namespace {

template <class T>
class SelectiveScanTask final : public Task {
 public:
  SelectiveScanTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]),
        dt_(step.inputs[1]),
        a_(step.inputs[2]),
        in_(step.inputs[3]),
        out_(step.inputs[4]),
        state_(step.inputs[5]),
        y_(step.output),
        lengths_(step.op.as<SelectiveScan>()->has_lengths ? std::optional(step.inputs.back())
                                                          : std::nullopt,
                 x_.shape[0], x_.shape[1]) {
    // a and the states of a block.
    const std::int64_t row = recurrence_kernels<T>().lanes * std::int64_t{sizeof(T)};
    compiler.working_memory((a_.shape[1] + states()) * row);
  }

  void run(const TaskContext& context) const noexcept override {
    if (y_.shape.elements() == 0 || !lengths_.are_valid(context, "selective_scan: length")) return;
    const std::int64_t groups = in_.shape[2], of_group = heads() / groups * channels();
    const std::int64_t blocks = ceil_div(of_group, recurrence_kernels<T>().lanes);
    const Range range = context.share(x_.shape[0] * groups * blocks);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t first = i % blocks * recurrence_kernels<T>().lanes;
      run_block(context, i / blocks / groups, i / blocks % groups,
                i / blocks % groups * of_group + first,
                std::min(recurrence_kernels<T>().lanes, of_group - first));
    }
  }

 private:
  std::int64_t steps() const noexcept { return x_.shape[1]; }
  std::int64_t heads() const noexcept { return x_.shape[2]; }
  std::int64_t channels() const noexcept { return x_.shape[3]; }
  std::int64_t states() const noexcept { return in_.shape[3]; }

  /// Whether the channels of all heads, along axes 2 and 3, follow each other.
  bool is_row(const Operand& operand) const noexcept {
    return (channels() == 1 || element_stride(operand, 3) == 1) &&
           element_stride(operand, 2) == channels();
  }

  /// The channels [first, first + lanes), counted over all heads, of a row and group.
  void run_block(const TaskContext& context, std::int64_t b, std::int64_t group, std::int64_t first,
                 std::int64_t lanes) const noexcept {
    const std::int64_t vector = recurrence_kernels<T>().lanes, width = heads() * channels();
    const std::int64_t length = lengths_.of(context, b), decays = a_.shape[1];
    auto* const a = reinterpret_cast<T*>(context.working_memory());
    T* const h = a + decays * vector;
    const auto* const from_a = context.pointer<const T>(a_);
    const auto* const state = context.pointer<const T>(state_) + b * element_stride(state_, 0);
    T* const y = context.pointer<T>(y_) + b * (steps() + states()) * width + first;
    std::fill_n(a, (decays + states()) * vector, T{});

    std::array<std::int64_t, ScanBlock<T>::most_lanes> x_places{}, dt_places{}, a_places{};
    for (std::int64_t i = 0; i < lanes; ++i) {
      const std::int64_t j = (first + i) / channels(), p = (first + i) % channels();
      const auto lane = static_cast<std::size_t>(i);
      x_places[lane] = j * element_stride(x_, 2) + p * element_stride(x_, 3);
      dt_places[lane] = j * element_stride(dt_, 2);
      a_places[lane] = j * element_stride(a_, 0);
      if (state_is_row_) continue;
      const T* const own = state + j * element_stride(state_, 2) + p * element_stride(state_, 3);
      for (std::int64_t n = 0; n < states(); ++n) {
        h[n * vector + i] = own[n * element_stride(state_, 1)];
      }
    }
    for (std::int64_t n = 0; n < states() && state_is_row_; ++n) {
      std::copy_n(state + n * element_stride(state_, 1) + first, lanes, h + n * vector);
    }
    for (std::int64_t n = 0; n < decays; ++n) {
      const T* const of_state = from_a + n * element_stride(a_, 1);
      for (std::int64_t i = 0; i < lanes; ++i) {
        a[n * vector + i] = of_state[a_places[static_cast<std::size_t>(i)]];
      }
    }
    recurrence_kernels<T>().scan({.lanes = lanes,
                                  .steps = length,
                                  .states = states(),
                                  .x = context.pointer<const T>(x_) + b * element_stride(x_, 0),
                                  .dt = context.pointer<const T>(dt_) + b * element_stride(dt_, 0),
                                  .x_step = element_stride(x_, 1),
                                  .dt_step = element_stride(dt_, 1),
                                  .x_places = x_places.data(),
                                  .dt_places = dt_places.data(),
                                  .x_is_row = x_is_row_,
                                  .dt_is_row = dt_is_row_,
                                  .in = context.pointer<const T>(in_) + b * element_stride(in_, 0) +
                                        group * element_stride(in_, 2),
                                  .out = context.pointer<const T>(out_) +
                                         b * element_stride(out_, 0) +
                                         group * element_stride(out_, 2),
                                  .in_step = element_stride(in_, 1),
                                  .in_stride = element_stride(in_, 3),
                                  .out_step = element_stride(out_, 1),
                                  .out_stride = element_stride(out_, 3),
                                  .a = a,
                                  .has_one_decay = decays == 1,
                                  .h = h,
                                  .y = y,
                                  .y_step = width});
    finish_recurrence(y, width, lanes, length, steps(), h, states());
  }

  Operand x_, dt_, a_, in_, out_, state_, y_;
  RowLengths lengths_;
  bool x_is_row_ = is_row(x_), state_is_row_ = is_row(state_);
  bool dt_is_row_ = channels() == 1 && element_stride(dt_, 2) == 1;
};

std::optional<std::string> refuses_selective_scan(const Step& step) {
  for (const Operand& input : std::span(step.inputs).first(6)) {
    if (auto why = needs_dtype(input, step.output.shape.dtype(), "an input")) return why;
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel selective_scan_kernel;
constinit const Kernel selective_scan_kernel{op_def<SelectiveScan>, refuses_selective_scan,
                                             make_real_task<SelectiveScanTask>};

}  // namespace tenon::cpu
