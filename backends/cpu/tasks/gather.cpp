// Elements and slices picked by data.
#include "../task.hpp"

#include <tenon/ops/gather.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::cpu {
namespace {

std::int64_t load_index(const std::byte* at, DType dtype) noexcept {
  return dtype == DType::i32 ? *reinterpret_cast<const std::int32_t*>(at)
                             : *reinterpret_cast<const std::int64_t*>(at);
}

/// Offsets of an array's elements in the row-major order of some of its axes.
struct Walk {
  int rank = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> steps{};

  Walk(const Operand& operand, int begin, int end) {
    for (int i = begin; i < end; ++i, ++rank) {
      sizes[static_cast<std::size_t>(rank)] = operand.shape[i];
      steps[static_cast<std::size_t>(rank)] = operand.strides[static_cast<std::size_t>(i)];
    }
  }
  std::int64_t count() const noexcept {
    std::int64_t result = 1;
    for (int i = 0; i < rank; ++i) result *= sizes[static_cast<std::size_t>(i)];
    return result;
  }
  std::int64_t offset(std::int64_t position) const noexcept {
    std::int64_t result = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      result += position % sizes[at] * steps[at];
      position /= sizes[at];
    }
    return result;
  }
};

/// A slice [inner axes] of x for each pair of an outer position and an index.
class GatherTask final : public PartwiseTask {
 public:
  explicit GatherTask(const Step& step)
      : x_(step.inputs[0]),
        index_(step.inputs[1]),
        y_(step.output),
        axis_(static_cast<int>(step.op.as<Gather>()->axis)),
        outer_(x_, 0, axis_),
        picks_(index_, 0, index_.shape.rank()) {
    slice_.shape =
        Shape(x_.shape.dims().subspan(static_cast<std::size_t>(axis_ + 1)), x_.shape.dtype());
    std::copy(x_.strides.begin() + axis_ + 1, x_.strides.end(), slice_.strides.begin());
    slice_bytes_ = slice_.shape.elements() * block_bytes(x_.shape.dtype());
    dense_ = slice_.is_contiguous();
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t count = picks_.count();
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    const Range range = context.share(outer_.count() * count);
    Places places;
    Range held{-1, -1};  // which picks these are the places of: often the same in every row
    for (std::int64_t i = range.begin; i < range.end;) {
      const std::int64_t first = i % count;
      const std::int64_t some = std::min({count - first, range.end - i, most_places});
      if (held.begin != first || held.end != first + some) {
        held = {first, first + some};
        if (!find_places(context, held, places)) return;
      }
      if (slice_bytes_ > 0) {
        copy_slices(x + outer_.offset(i / count), places, some, y + i * slice_bytes_);
      }
      i += some;
    }
  }

 private:
  static constexpr std::int64_t most_places = 512;
  using Places = std::array<std::int64_t, most_places>;  ///< bytes along the axis

  bool find_places(const TaskContext& context, const Range& picks, Places& places) const noexcept {
    const std::int64_t limit = x_.shape[axis_];
    const std::int64_t step = x_.strides[static_cast<std::size_t>(axis_)];
    const auto* index = context.pointer<const std::byte>(index_);
    for (std::int64_t k = picks.begin; k < picks.end; ++k) {
      const std::int64_t pick = load_index(index + picks_.offset(k), index_.shape.dtype());
      if (pick < 0 || pick >= limit) {
        context.fault.report(Errc::out_of_range, "gather: index", pick, limit);
        return false;
      }
      places[static_cast<std::size_t>(k - picks.begin)] = pick * step;
    }
    return true;
  }

  void copy_slices(const std::byte* from, const Places& places, std::int64_t count,
                   std::byte* to) const noexcept {
    if (dense_) {
      switch (slice_bytes_) {
        case 1:
          return copy_elements_of<std::uint8_t>(from, places, count, to);
        case 2:
          return copy_elements_of<std::uint16_t>(from, places, count, to);
        case 4:
          return copy_elements_of<std::uint32_t>(from, places, count, to);
        case 8:
          return copy_elements_of<std::uint64_t>(from, places, count, to);
        default:
          break;
      }
    }
    for (std::int64_t k = 0; k < count; ++k, to += slice_bytes_) {
      const std::byte* const slice_at = from + places[static_cast<std::size_t>(k)];
      if (dense_) {
        std::memcpy(to, slice_at, static_cast<std::size_t>(slice_bytes_));
      } else {
        HostView slice = slice_;
        slice.data = const_cast<std::byte*>(slice_at);
        copy_elements(slice, HostView(to, slice.shape));
      }
    }
  }
  template <class T>
  static void copy_elements_of(const std::byte* from, const Places& places, std::int64_t count,
                               std::byte* to) noexcept {
    for (std::int64_t k = 0; k < count; ++k) {
      std::memcpy(to + k * std::int64_t{sizeof(T)}, from + places[static_cast<std::size_t>(k)],
                  sizeof(T));
    }
  }

  Operand x_, index_, y_;
  int axis_;
  Walk outer_, picks_;
  HostView slice_;
  std::int64_t slice_bytes_ = 0;
  bool dense_ = false;
};

/// One element for each index.
class TakeAlongTask final : public PartwiseTask {
 public:
  explicit TakeAlongTask(const Step& step)
      : x_(step.inputs[0]),
        index_(step.inputs[1]),
        y_(step.output),
        axis_(static_cast<std::size_t>(step.op.as<TakeAlong>()->axis)),
        pick_rows_(index_, 0, index_.shape.rank() - 1),
        rows_(x_, 0, x_.shape.rank() - 1) {
    // Positions are those of the index, whose place along the axis comes from the index's value.
    const auto last = static_cast<std::size_t>(x_.shape.rank() - 1);
    rows_.sizes = pick_rows_.sizes;
    if (axis_ != last) rows_.steps[axis_] = 0;
    x_step_ = axis_ == last ? 0 : x_.strides[last];
    pick_step_ = index_.strides[last];
    columns_ = index_.shape[static_cast<int>(last)];
  }

  void run(const TaskContext& context) const noexcept override {
    const bool narrow = index_.shape.dtype() == DType::i32;
    switch (block_bytes(x_.shape.dtype())) {
      case 1:
        return narrow ? take<std::uint8_t, std::int32_t>(context)
                      : take<std::uint8_t, std::int64_t>(context);
      case 2:
        return narrow ? take<std::uint16_t, std::int32_t>(context)
                      : take<std::uint16_t, std::int64_t>(context);
      case 4:
        return narrow ? take<std::uint32_t, std::int32_t>(context)
                      : take<std::uint32_t, std::int64_t>(context);
      default:
        return narrow ? take<std::uint64_t, std::int32_t>(context)
                      : take<std::uint64_t, std::int64_t>(context);
    }
  }

 private:
  /// The thread's share, row by row of the innermost axis.
  template <class T, class Index>
  void take(const TaskContext& context) const noexcept {
    const std::int64_t limit = x_.shape[static_cast<int>(axis_)], step = x_.strides[axis_];
    auto* const y = context.pointer<T>(y_);
    const Range range = context.share(pick_rows_.count() * columns_);
    for (std::int64_t i = range.begin; i < range.end;) {
      const std::int64_t row = i / columns_, first = i % columns_;
      const std::int64_t count = std::min(columns_ - first, range.end - i);
      const std::byte* x =
          context.pointer<const std::byte>(x_) + rows_.offset(row) + first * x_step_;
      const std::byte* index =
          context.pointer<const std::byte>(index_) + pick_rows_.offset(row) + first * pick_step_;
      for (std::int64_t j = 0; j < count; ++j, x += x_step_, index += pick_step_) {
        const std::int64_t pick = *reinterpret_cast<const Index*>(index);
        if (pick < 0 || pick >= limit) {
          context.fault.report(Errc::out_of_range, "take_along: index", pick, limit);
          return;
        }
        y[i + j] = *reinterpret_cast<const T*>(x + pick * step);
      }
      i += count;
    }
  }

  Operand x_, index_, y_;
  std::size_t axis_;
  Walk pick_rows_, rows_;  ///< of all axes but the innermost
  std::int64_t x_step_ = 0, pick_step_ = 0, columns_ = 0;
};

}  // namespace

extern const Kernel gather_kernel, take_along_kernel;
constinit const Kernel gather_kernel{op_def<Gather>, takes_everything, make_task<GatherTask>};
constinit const Kernel take_along_kernel{op_def<TakeAlong>, takes_everything,
                                         make_task<TakeAlongTask>};

}  // namespace tenon::cpu
