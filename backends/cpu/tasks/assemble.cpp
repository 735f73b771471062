// Arrays put together from parts and values: concat, pad, select, full, iota.
#include "copy.hpp"
#include "reader.hpp"

#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/select.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tenon::cpu {
namespace {

class ConcatTask final : public PartwiseTask {
 public:
  explicit ConcatTask(const Step& step)
      : parts_(step.inputs), y_(step.output), axis_(static_cast<int>(step.op.as<Concat>()->axis)) {}

  void run(const TaskContext& context) const noexcept override {
    const HostView y = context.frame.view(y_);
    if (y.shape.elements() == 0) return;
    const auto axis = static_cast<std::size_t>(axis_);
    const bool innermost = axis_ + 1 == y.shape.rank();
    const std::int64_t block = innermost ? block_size(y.shape.dtype()) : 1;
    std::int64_t offset = 0;
    for (const Operand& part : parts_) {
      HostView to = y;
      to.data += offset / block * y.strides[axis];
      to.shape = part.shape;
      copy_share(context, context.frame.view(part), to);
      offset += part.shape[axis_];
    }
  }

 private:
  std::vector<Operand> parts_;
  Operand y_;
  int axis_;
};

/// `count` copies of one element of `unit` bytes.
void fill(const std::byte* element, std::int64_t unit, std::byte* to, std::int64_t count) noexcept {
  const auto spread = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof value);
    std::fill_n(reinterpret_cast<T*>(to), count, value);
  };
  switch (unit) {
    case 1:
      return spread(std::uint8_t{});
    case 2:
      return spread(std::uint16_t{});
    case 4:
      return spread(std::uint32_t{});
    default:
      return spread(std::uint64_t{});
  }
}

/// The input's place in the output, and around it slabs of the value, one pair for each axis.
class PadTask final : public PartwiseTask {
 public:
  explicit PadTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), op_(*step.op.as<Pad>()) {
    store_double(y_.shape.dtype(), element_.data(), op_.value);
  }

  void run(const TaskContext& context) const noexcept override {
    HostView inside = context.frame.view(y_);
    if (inside.shape.elements() == 0) return;
    HostView value;
    value.data = const_cast<std::byte*>(element_.data());
    for (int i = 0; i < inside.shape.rank(); ++i) {
      const auto axis = static_cast<std::size_t>(i);
      const std::int64_t before = op_.before[axis], after = op_.after[axis];
      const std::int64_t size = inside.shape[i] - before - after;
      const auto slab = [&](std::int64_t begin, std::int64_t count) {
        HostView to = inside;
        to.data += begin * to.strides[axis];
        to.shape = to.shape.with_dim(i, count);
        HostView from = value;
        from.shape = to.shape;
        copy_share(context, from, to);
      };
      slab(0, before);
      slab(before + size, after);
      inside.data += before * inside.strides[axis];
      inside.shape = inside.shape.with_dim(i, size);
    }
    copy_share(context, context.frame.view(x_), inside);
  }

 private:
  Operand x_, y_;
  Pad op_;
  std::array<std::byte, 8> element_{};
};

/// Padding that repeats elements: row by row of the output, each from one row of the input.
class RepeatingPadTask final : public PartwiseTask {
 public:
  explicit RepeatingPadTask(const Step& step)
      : x_(step.inputs[0]),
        y_(step.output),
        op_(*step.op.as<Pad>()),
        mode_(op_.padding()),
        last_(y_.shape.rank() - 1) {
    for (int i = 0; i < last_; ++i) rows_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const auto last = static_cast<std::size_t>(last_);
    const std::int64_t size = x_.shape[last_], width = y_.shape[last_];
    const std::int64_t before = op_.before[last], after = op_.after[last];
    if (width == 0) return;
    const std::int64_t unit = block_bytes(y_.shape.dtype()), step = x_.strides[last];
    const Range rows = context.share(rows_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::byte* from = context.pointer<const std::byte>(x_) + row_offset(row);
      std::byte* to = context.pointer<std::byte>(y_) + row * width * unit;
      const auto copy_one = [&](std::int64_t place) {
        std::memcpy(to + (before + place) * unit, from + Pad::source_of(mode_, place, size) * step,
                    static_cast<std::size_t>(unit));
      };
      for (std::int64_t i = -before; i < 0; ++i) copy_one(i);
      copy_run(from, step, unit, size, to + before * unit);
      for (std::int64_t i = size; i < size + after; ++i) copy_one(i);
    }
  }

 private:
  /// Of the input's row that a row of the output is made from.
  std::int64_t row_offset(std::int64_t row) const noexcept {
    std::int64_t offset = 0;
    for (int i = last_ - 1; i >= 0; --i) {
      const auto axis = static_cast<std::size_t>(i);
      const std::int64_t place = row % y_.shape[i] - op_.before[axis];
      offset += Pad::source_of(mode_, place, x_.shape[i]) * x_.strides[axis];
      row /= y_.shape[i];
    }
    return offset;
  }

  Operand x_, y_;
  Pad op_;
  Pad::Mode mode_;
  int last_;
  std::int64_t rows_ = 1;
};

std::unique_ptr<Task> make_pad(const Step& step, Compiler&) {
  const bool repeats =
      step.output.shape.rank() > 0 && step.op.as<Pad>()->padding() != Pad::Mode::constant;
  if (repeats) return std::make_unique<RepeatingPadTask>(step);
  return std::make_unique<PadTask>(step);
}

class SelectTask final : public PartwiseTask {
 public:
  explicit SelectTask(const Step& step)
      : x_(step.inputs[0]), index_(step.inputs[1]), y_(step.output) {}

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t index =
        load_as_int64(index_.shape.dtype(), context.pointer<const std::byte>(index_));
    if (index < 0 || index >= x_.shape[0]) {
      context.fault.report(Errc::out_of_range, "select: index", index, x_.shape[0]);
      return;
    }
    HostView from = context.frame.view(x_);
    from.data += index * from.strides[0];
    std::copy(from.strides.begin() + 1, from.strides.end(), from.strides.begin());
    from.shape = y_.shape;
    copy_share(context, from, context.frame.view(y_));
  }

 private:
  Operand x_, index_, y_;
};

class UpdateSliceTask final : public PartwiseTask {
 public:
  explicit UpdateSliceTask(const Step& step)
      : x_(step.inputs[0]), index_(step.inputs[1]), y_(step.inputs[2]) {}

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t index =
        load_as_int64(index_.shape.dtype(), context.pointer<const std::byte>(index_));
    if (index < 0 || index >= x_.shape[0]) {
      context.fault.report(Errc::out_of_range, "update_slice: index", index, x_.shape[0]);
      return;
    }
    HostView to = context.frame.view(x_);
    to.data += index * to.strides[0];
    std::copy(to.strides.begin() + 1, to.strides.end(), to.strides.begin());
    to.shape = y_.shape;
    copy_share(context, context.frame.view(y_), to);
  }

 private:
  Operand x_, index_, y_;
};

class FullTask final : public PartwiseTask {
 public:
  explicit FullTask(const Step& step) : y_(step.output), count_(y_.shape.elements()) {
    store_double(y_.shape.dtype(), element_.data(), step.op.as<Full>()->value);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    if (range.begin >= range.end) return;
    const std::int64_t unit = block_bytes(y_.shape.dtype());
    fill(element_.data(), unit, context.pointer<std::byte>(y_) + range.begin * unit,
         range.end - range.begin);
  }

 private:
  Operand y_;
  std::int64_t count_;
  std::array<std::byte, 8> element_{};
};

/// y[i] = first + i * step, computed in `Whole`, an integer type that holds all of them, or those of
/// T modulo its range.
template <class T, class Whole>
void count_up(std::byte* y, std::int64_t first, std::int64_t step, std::int64_t count) {
  using Wrapping = std::make_unsigned_t<Whole>;
  auto* to = reinterpret_cast<T*>(y);
  Wrapping next = static_cast<Wrapping>(first);
  for (std::int64_t i = 0; i < count; ++i, next += static_cast<Wrapping>(step)) {
    to[i] = static_cast<T>(static_cast<Whole>(next));
  }
}

class IotaTask final : public PartwiseTask {
 public:
  explicit IotaTask(const Step& step) : y_(step.output), op_(*step.op.as<Iota>()) {
    const std::int64_t last = op_.start + std::max<std::int64_t>(y_.shape[0] - 1, 0) * op_.step;
    const auto fits = [](std::int64_t value) { return value == static_cast<std::int32_t>(value); };
    is_small_ = fits(op_.start) && fits(last);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, y_.shape[0]);
    const DType dtype = y_.shape.dtype();
    const std::int64_t unit = block_bytes(dtype), count = range.end - range.begin;
    const std::int64_t first = op_.start + range.begin * op_.step;
    auto* const y = context.pointer<std::byte>(y_) + range.begin * unit;
    if (dtype == DType::i64 || dtype == DType::u64) {
      count_up<std::int64_t, std::int64_t>(y, first, op_.step, count);
    } else if (dtype == DType::i32 || dtype == DType::u32) {
      count_up<std::int32_t, std::int32_t>(y, first, op_.step, count);
    } else if (dtype == DType::f32 && is_small_) {
      count_up<float, std::int32_t>(y, first, op_.step, count);
    } else if (dtype == DType::f64 && is_small_) {
      count_up<double, std::int32_t>(y, first, op_.step, count);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        store_int64(dtype, y + i * unit, first + i * op_.step);
      }
    }
  }

 private:
  Operand y_;
  Iota op_;
  bool is_small_ = false;  ///< i32 holds every value
};

}  // namespace

extern const Kernel concat_kernel, pad_kernel, select_kernel, update_slice_kernel, full_kernel,
    iota_kernel;
constinit const Kernel concat_kernel{op_def<Concat>, takes_everything, make_task<ConcatTask>};
constinit const Kernel pad_kernel{op_def<Pad>, takes_everything, make_pad};
constinit const Kernel select_kernel{op_def<Select>, takes_everything, make_task<SelectTask>};
constinit const Kernel update_slice_kernel{op_def<UpdateSlice>, takes_everything,
                                           make_task<UpdateSliceTask>};
constinit const Kernel full_kernel{op_def<Full>, takes_everything, make_task<FullTask>};
constinit const Kernel iota_kernel{op_def<Iota>, takes_everything, make_task<IotaTask>};

}  // namespace tenon::cpu
