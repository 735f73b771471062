// Selective scans: some channels at a time, through all steps.
#include "../dense_constant.hpp"
#include "../integer_math.hpp"
#include "recurrence.hpp"

#include <tenon/ops/selective_scan.hpp>

#include <algorithm>
#include <optional>

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
                 x_.shape[0], x_.shape[1]),
        width_(width_for(compiler.threads())) {
    if (channels() == 1 && a_.place.kind == Place::Kind::constant && a_.shape.elements() > 0) {
      Operand turned = a_;
      turned.shape = Shape({a_.shape[1], a_.shape[0]}, a_.shape.dtype());
      turned.strides = {a_.strides[1], a_.strides[0]};
      turned_a_ = compiler.prepare(turned, dense_constant());
    }
    compiler.working_memory(
        width_ * (2 * std::int64_t{sizeof(std::int64_t)} +
                  (a_.shape[1] + states() + 3 * Block::steps_at_once) * std::int64_t{sizeof(T)}));
  }

  void run(const TaskContext& context) const noexcept override {
    if (y_.shape.elements() == 0 || !lengths_.are_valid(context, "selective_scan: length")) return;
    const std::int64_t blocks = ceil_div(channels_of_group(), width_);
    const Range range = context.share(x_.shape[0] * groups() * blocks);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t first = i % blocks * width_;
      run_block(context, {.b = i / blocks / groups(),
                          .group = i / blocks % groups(),
                          .first = i / blocks % groups() * channels_of_group() + first,
                          .lanes = std::min(width_, channels_of_group() - first)});
    }
  }

 private:
  using Block = ScanBlock<T>;

  /// Channels [first, first + lanes), counted over all heads, of a row and group.
  struct Channels {
    std::int64_t b, group, first, lanes;
  };
  /// A thread's: places of channels, and rows of them.
  struct Memory {
    std::int64_t *x_places, *dt_places;
    T *a, *h, *added, *decay, *sums;
  };

  std::int64_t steps() const noexcept { return x_.shape[1]; }
  std::int64_t heads() const noexcept { return x_.shape[2]; }
  std::int64_t channels() const noexcept { return x_.shape[3]; }
  std::int64_t groups() const noexcept { return in_.shape[2]; }
  std::int64_t states() const noexcept { return in_.shape[3]; }
  std::int64_t channels_of_group() const noexcept { return heads() / groups() * channels(); }
  std::int64_t all_channels() const noexcept { return heads() * channels(); }

  struct Lane {
    std::int64_t head, channel;
  };
  /// Those of one of the channels that are computed together.
  Lane lane(const Channels& part, std::int64_t i) const noexcept {
    return {(part.first + i) / channels(), (part.first + i) % channels()};
  }

  /// Channels that are computed together: a vector, whose states stay in registers from step to step;
  /// of a single step as many as are read well in a row, in at least two parts for each thread.
  std::int64_t width_for(std::int64_t threads) const noexcept {
    const std::int64_t vector = recurrence_kernels<T>().lanes;
    if (steps() != 1) return vector;
    constexpr std::int64_t most = 4096 / std::int64_t{sizeof(T)};
    const std::int64_t of_part =
        ceil_div(x_.shape[0] * groups() * channels_of_group(), 2 * threads);
    return std::max(ceil_div(std::min(of_part, most), vector), std::int64_t{1}) * vector;
  }

  /// Whether the channels of all heads, along axes 2 and 3, follow each other.
  bool is_row(const Operand& operand) const noexcept {
    return (channels() == 1 || element_stride(operand, 3) == 1) &&
           element_stride(operand, 2) == channels();
  }

  /// With the places of some channels.
  Memory memory_of(const TaskContext& context, const Channels& part) const noexcept {
    Memory memory{};
    memory.x_places = reinterpret_cast<std::int64_t*>(context.working_memory());
    memory.dt_places = memory.x_places + width_;
    memory.a = reinterpret_cast<T*>(memory.dt_places + width_);
    memory.h = memory.a + a_.shape[1] * width_;
    memory.added = memory.h + states() * width_;
    memory.decay = memory.added + Block::steps_at_once * width_;
    memory.sums = memory.decay + Block::steps_at_once * width_;
    for (std::int64_t i = 0; i < part.lanes; ++i) {
      const auto [head, channel] = lane(part, i);
      memory.x_places[i] = head * element_stride(x_, 2) + channel * element_stride(x_, 3);
      memory.dt_places[i] = head * element_stride(dt_, 2);
    }
    return memory;
  }

  void run_block(const TaskContext& context, const Channels& part) const noexcept {
    const std::int64_t length = lengths_.of(context, part.b);
    if (steps() == 1 && length == 1 && state_is_row_) return run_step(context, part);
    Channels some = part;
    for (std::int64_t left = part.lanes; left > 0; left -= some.lanes) {
      some.lanes = std::min(left, recurrence_kernels<T>().lanes);
      run_steps(context, some, length);
      some.first += some.lanes;
    }
  }

  /// A single step, from and to the rows where the states lie.
  void run_step(const TaskContext& context, const Channels& part) const noexcept {
    const Memory memory = memory_of(context, part);
    const T *const x = of_row(context, x_, part), *const dt = of_row(context, dt_, part);
    for (std::int64_t i = 0; i < part.lanes; ++i) {
      memory.decay[i] = dt[memory.dt_places[i]];
      memory.added[i] = memory.decay[i] * x[memory.x_places[i]];
    }
    const T* a = memory.a;
    std::int64_t a_step = width_;
    if (turned_a_) {
      a = prepared_rates(context) + part.first;
      a_step = heads();
    } else {
      copy_rates(context, part, memory.a, width_);
    }
    T* const y = result(context, part);
    recurrence_kernels<T>().scan_row({.lanes = part.lanes,
                                      .states = states(),
                                      .in = of_group(context, in_, part),
                                      .out = of_group(context, out_, part),
                                      .a = a,
                                      .a_step = a_.shape[1] == 1 ? 0 : a_step,
                                      .from = of_row(context, state_, part) + part.first,
                                      .to = y + all_channels(),
                                      .from_step = element_stride(state_, 1),
                                      .to_step = all_channels(),
                                      .added = memory.added,
                                      .decay = memory.decay,
                                      .y = y});
  }

  /// `length` steps of at most a vector of channels.
  void run_steps(const TaskContext& context, const Channels& part,
                 std::int64_t length) const noexcept {
    const std::int64_t vector = recurrence_kernels<T>().lanes;
    const Memory memory = memory_of(context, part);
    T* const y = result(context, part);
    // What lies behind the last channel is computed with, and not used.
    std::fill_n(memory.a, a_.shape[1] * vector, T{});
    std::fill_n(memory.h, states() * vector, T{});
    copy_rates(context, part, memory.a, vector);
    copy_states(of_row(context, state_, part), part, memory.h);
    recurrence_kernels<T>().scan({.lanes = part.lanes,
                                  .steps = length,
                                  .states = states(),
                                  .x = of_row(context, x_, part),
                                  .dt = of_row(context, dt_, part),
                                  .x_step = element_stride(x_, 1),
                                  .dt_step = element_stride(dt_, 1),
                                  .x_places = memory.x_places,
                                  .dt_places = memory.dt_places,
                                  .x_is_row = x_is_row_,
                                  .dt_is_row = dt_is_row_,
                                  .in = of_group(context, in_, part),
                                  .out = of_group(context, out_, part),
                                  .in_step = element_stride(in_, 1),
                                  .out_step = element_stride(out_, 1),
                                  .a = memory.a,
                                  .has_one_decay = a_.shape[1] == 1,
                                  .h = memory.h,
                                  .added = memory.added,
                                  .decay = memory.decay,
                                  .sums = memory.sums,
                                  .y = y,
                                  .y_step = all_channels()});
    finish_recurrence(y, all_channels(), part.lanes, length, steps(), memory.h, states());
  }

  const T* of_row(const TaskContext& context, const Operand& operand,
                  const Channels& part) const noexcept {
    return context.pointer<const T>(operand) + part.b * element_stride(operand, 0);
  }
  const T* of_group(const TaskContext& context, const Operand& operand,
                    const Channels& part) const noexcept {
    return of_row(context, operand, part) + part.group * element_stride(operand, 2);
  }
  T* result(const TaskContext& context, const Channels& part) const noexcept {
    return context.pointer<T>(y_) + part.b * (steps() + states()) * all_channels() + part.first;
  }

  const T* prepared_rates(const TaskContext& context) const noexcept {
    return context.constant<HostBuffer>(*turned_a_).template values<T>().data();
  }
  /// The rates of decay of all channels, a row for each state.
  void copy_rates(const TaskContext& context, const Channels& part, T* to,
                  std::int64_t step) const noexcept {
    const auto* const from = context.pointer<const T>(a_);
    for (std::int64_t n = 0; n < a_.shape[1]; ++n) {
      if (turned_a_) {
        std::copy_n(prepared_rates(context) + n * heads() + part.first, part.lanes, to + n * step);
        continue;
      }
      for (std::int64_t i = 0; i < part.lanes; ++i) {
        const std::int64_t head = lane(part, i).head;
        to[n * step + i] = from[n * element_stride(a_, 1) + head * element_stride(a_, 0)];
      }
    }
  }
  void copy_states(const T* from, const Channels& part, T* h) const noexcept {
    const std::int64_t vector = recurrence_kernels<T>().lanes;
    for (std::int64_t n = 0; n < states(); ++n) {
      const T* const row = from + n * element_stride(state_, 1);
      if (state_is_row_) {
        std::copy_n(row + part.first, part.lanes, h + n * vector);
        continue;
      }
      for (std::int64_t i = 0; i < part.lanes; ++i) {
        const auto [head, channel] = lane(part, i);
        h[n * vector + i] =
            row[head * element_stride(state_, 2) + channel * element_stride(state_, 3)];
      }
    }
  }

  Operand x_, dt_, a_, in_, out_, state_, y_;
  RowLengths lengths_;
  std::int64_t width_;
  std::optional<PreparedIndex> turned_a_;  ///< a[J, N] as [N, J]
  bool x_is_row_ = is_row(x_), state_is_row_ = is_row(state_);
  bool dt_is_row_ = channels() == 1 && element_stride(dt_, 2) == 1;
};

std::optional<std::string> refuses_selective_scan(const Step& step) {
  for (const Operand& input : std::span(step.inputs).first(6)) {
    if (auto why = needs_dtype(input, step.output.shape.dtype(), "an input")) return why;
  }
  if (auto why = needs_dense_rows(step.inputs[3], "in")) return why;
  return needs_dense_rows(step.inputs[4], "out");
}

}  // namespace

extern const Kernel selective_scan_kernel;
constinit const Kernel selective_scan_kernel{op_def<SelectiveScan>, refuses_selective_scan,
                                             make_real_task<SelectiveScanTask>};

}  // namespace tenon::cpu
