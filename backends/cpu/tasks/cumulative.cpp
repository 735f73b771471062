// Running sums, products, maxima and minima.
#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "lanes.hpp"
#include "ordered.hpp"

#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/cumulative.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <class Op>
constexpr bool is_extreme = std::same_as<Op, Cummax> || std::same_as<Op, Cummin>;

/// Sums and products of reals are kept in f64, those of whole numbers in 64 bits.
template <class Op, class T>
using Running =
    std::conditional_t<is_extreme<Op>, T,
                       std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>>;

template <class Op>
constexpr Gathering gathering_of = std::same_as<Op, Cumsum>    ? Gathering::sum
                                   : std::same_as<Op, Cumprod> ? Gathering::product
                                   : std::same_as<Op, Cummax>  ? Gathering::max
                                                               : Gathering::min;

template <class Op, class T>
class CumulativeTask final : public PartwiseTask {
  using Value = Running<Op, T>;
  /// What accumulate_columns() takes, and narrow() of extremes or narrow_sums().
  using Wide =
      std::conditional_t<is_extreme<Op>, T,
                         std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>>;

 public:
  explicit CumulativeTask(const Step& step)
      : x_(step.inputs[0]),
        y_(step.output),
        axis_(static_cast<std::size_t>(step.op.as<Op>()->axis)),
        lanes_(x_, static_cast<int>(axis_)),
        results_(y_, static_cast<int>(axis_)),
        are_columns_(
            x_.shape.dtype() != DType::u64 &&
            std::min(lanes_.adjacent(), results_.adjacent()) >=
                (is_computed_as_stored(x_.shape.dtype()) ? min_columns : min_widened_columns)) {}

  void run(const TaskContext& context) const noexcept override {
    const Range range = context.share(lanes_.count());
    for (std::int64_t lane = range.begin, count = 0; lane < range.end; lane += count) {
      const std::int64_t at_once =
          are_columns_ ? std::min(lanes_.adjacent_from(lane), results_.adjacent_from(lane))
                       : std::max(block_elements / std::max(lanes_.size(), one), one);
      count = std::min({at_once, range.end - lane, block_elements});
      const std::byte* const x = context.pointer<const std::byte>(x_) + lanes_.offset(lane);
      std::byte* const y = context.pointer<std::byte>(y_) + results_.offset(lane);
      if (are_columns_) {
        run_columns(x, count, y);
      } else if (count > 1 && lie_close_) {
        run_short_lanes(x, count, y);
      } else if (range.end - lane >= lanes_at_once) {
        count = lanes_at_once;
        run_lanes<at_once_lanes>(context, lane);
      } else {
        count = 1;
        run_lanes<1>(context, lane);
      }
    }
  }

 private:
  static constexpr std::int64_t one = 1;
  /// Integers are added in one cycle, which nothing has to hide.
  static constexpr std::size_t at_once_lanes =
      std::is_integral_v<T> && std::same_as<Op, Cumsum> ? 1 : 4;
  static constexpr auto lanes_at_once = static_cast<std::int64_t>(at_once_lanes);
  /// Of less, a call for each row takes longer than lane by lane.
  static constexpr std::int64_t min_columns = 16, min_widened_columns = 32;

  /// Lanes that lie next to each other, row by row.
  void run_columns(const std::byte* x, std::int64_t count, std::byte* y) const noexcept {
    const DType from = x_.shape.dtype(), to = y_.shape.dtype();
    alignas(64) std::array<Wide, block_elements> values;
    std::fill_n(values.begin(), count, first_value());
    BlockBuffer wide;
    for (std::int64_t i = 0; i < lanes_.size(); ++i) {
      const std::byte* row = x;
      if (!is_computed_as_stored(from)) {
        widen(from, x, wide.bytes, count);
        row = wide.bytes;
      }
      accumulate_columns(compute_type(from), gathering_of<Op>, row, count, 1, 0, values.data());
      if constexpr (is_extreme<Op>) {
        narrow(to, values.data(), y, count);
      } else {
        narrow_sums(to, values.data(), y, count);
      }
      x += x_.strides[axis_];
      y += y_.strides[axis_];
    }
  }

  static constexpr Wide first_value() noexcept {
    using Limits = std::numeric_limits<Wide>;
    if constexpr (std::same_as<Op, Cummax>) {
      return Limits::has_infinity ? -Limits::infinity() : Limits::min();
    } else if constexpr (std::same_as<Op, Cummin>) {
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    } else {
      return std::same_as<Op, Cumprod> ? Wide{1} : -Wide{0};  // -0 is what leaves every x as it is
    }
  }

  /// Lanes of a few adjacent elements, one behind the other.
  void run_short_lanes(const std::byte* x, std::int64_t count, std::byte* y) const noexcept {
    const DType dtype = x_.shape.dtype();
    BlockBuffer wide;
    if (!is_computed_as_stored(dtype)) {
      widen(dtype, x, wide.bytes, count * lanes_.size());
      x = wide.bytes;
    }
    std::array<Value, block_elements> buffer;
    Value* const results = is_kept_as_stored_ ? reinterpret_cast<Value*>(y) : buffer.data();
    const auto scan_some = [&]<std::size_t lanes>(std::integral_constant<std::size_t, lanes>,
                                                  std::int64_t first) {
      std::array<const T*, lanes> from;
      std::array<Value*, lanes> to;
      std::array<Value, lanes> sofar{};
      for (std::size_t l = 0; l < lanes; ++l) {
        const std::int64_t start = (first + static_cast<std::int64_t>(l)) * lanes_.size();
        from[l] = reinterpret_cast<const T*>(x) + start;
        to[l] = results + start;
      }
      scan<lanes>(from, lanes_.size(), true, sofar, to);
    };
    std::int64_t i = 0;
    for (; i + lanes_at_once <= count; i += lanes_at_once) {
      scan_some(std::integral_constant<std::size_t, at_once_lanes>{}, i);
    }
    for (; i < count; ++i) scan_some(std::integral_constant<std::size_t, 1>{}, i);
    if (!is_kept_as_stored_) store(results, count * lanes_.size(), y);
  }

  /// Several lanes, element by element of each in turn: one does not wait for the other's sum.
  template <std::size_t lanes>
  void run_lanes(const TaskContext& context, std::int64_t first) const noexcept {
    constexpr std::int64_t piece = block_elements / static_cast<std::int64_t>(lanes);
    const std::int64_t step = y_.strides[axis_], unit = block_bytes(y_.shape.dtype());
    const bool is_in_place = is_kept_as_stored_ && step == unit;
    std::array<const std::byte*, lanes> x;
    std::array<std::byte*, lanes> y;
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::int64_t lane = first + static_cast<std::int64_t>(l);
      x[l] = context.pointer<const std::byte>(x_) + lanes_.offset(lane);
      y[l] = context.pointer<std::byte>(y_) + results_.offset(lane);
    }
    std::array<Value, lanes> sofar{};
    std::array<BlockBuffer, lanes> buffers;
    std::array<Value, block_elements> results;
    std::array<const T*, lanes> from;
    std::array<Value*, lanes> to;
    for (std::int64_t i = 0; i < lanes_.size(); i += piece) {
      const std::int64_t count = std::min(piece, lanes_.size() - i);
      for (std::size_t l = 0; l < lanes; ++l) {
        from[l] = static_cast<const T*>(lanes_.read(x[l], i, count, buffers[l]));
        to[l] = is_in_place ? reinterpret_cast<Value*>(y[l])
                            : results.data() + static_cast<std::int64_t>(l) * piece;
      }
      scan<lanes>(from, count, i == 0, sofar, to);
      for (std::size_t l = 0; l < lanes; ++l) {
        if (!is_in_place) {
          BlockBuffer narrowed;
          std::byte* const stored = step == unit ? y[l] : narrowed.bytes;
          store(to[l], count, stored);
          if (step != unit) spread_run(stored, unit, count, y[l], step);
        }
        y[l] += count * step;
      }
    }
  }

  template <std::size_t lanes>
  static void scan(const std::array<const T*, lanes>& x, std::int64_t count, bool is_first,
                   std::array<Value, lanes>& sofar,
                   const std::array<Value*, lanes>& results) noexcept {
    std::array<Value, lanes> value = sofar;
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::size_t l = 0; l < lanes; ++l) {
        const auto next = static_cast<Value>(x[l][j]);
        value[l] = is_first && j == 0 ? next : take(value[l], next);
        results[l][j] = value[l];
      }
    }
    sofar = value;
  }

  void store(const Value* values, std::int64_t count, std::byte* y) const noexcept {
    const DType dtype = y_.shape.dtype();
    if constexpr (std::same_as<Value, T>) {
      narrow(dtype, values, y, count);
    } else {
      narrow_sums(dtype, reinterpret_cast<const Wide*>(values), y, count);
    }
  }

  static Value take(Value sofar, Value x) noexcept {
    if constexpr (std::same_as<Op, Cumsum>) {
      return sofar + x;
    } else if constexpr (std::same_as<Op, Cumprod>) {
      return sofar * x;
    } else if constexpr (std::same_as<Op, Cummax>) {
      return sofar != sofar || sofar >= x ? sofar : x;
    } else {
      return sofar != sofar || sofar <= x ? sofar : x;
    }
  }

  Operand x_, y_;
  std::size_t axis_;
  Lanes lanes_, results_;
  bool are_columns_;  ///< lanes that lie next to each other
  bool lie_close_ = lanes_.lie_close() && results_.lie_close();
  /// Results go to y without a buffer between: those of f64 and i64, and extremes of f32 and i32.
  bool is_kept_as_stored_ = sizeof(Value) == sizeof(T) && x_.shape.dtype() == y_.shape.dtype() &&
                            is_computed_as_stored(y_.shape.dtype());
};

template <class Op>
std::unique_ptr<Task> make_cumulative(const Step& step, Compiler&) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<CumulativeTask<Op, T>>(step);
  });
}

}  // namespace

extern const Kernel cumsum_kernel, cumprod_kernel, cummax_kernel, cummin_kernel;
constinit const Kernel cumsum_kernel{op_def<Cumsum>, takes_everything, make_cumulative<Cumsum>};
constinit const Kernel cumprod_kernel{op_def<Cumprod>, takes_everything, make_cumulative<Cumprod>};
constinit const Kernel cummax_kernel{op_def<Cummax>, takes_everything, make_cumulative<Cummax>};
constinit const Kernel cummin_kernel{op_def<Cummin>, takes_everything, make_cumulative<Cummin>};

}  // namespace tenon::cpu
