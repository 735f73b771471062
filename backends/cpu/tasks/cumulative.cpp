// Running products, maxima and minima.
#include "../integer_math.hpp"
#include "lanes.hpp"
#include "ordered.hpp"

#include <tenon/ops/cumulative.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// Products of reals are kept in f64, as sums are; those of whole numbers in 64 bits.
template <class Op, class T>
using Running =
    std::conditional_t<std::same_as<Op, Cumprod>,
                       std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>, T>;

template <class Op, class T>
class CumulativeTask final : public PartwiseTask {
  using Value = Running<Op, T>;

 public:
  explicit CumulativeTask(const Step& step)
      : x_(step.inputs[0]),
        y_(step.output),
        axis_(static_cast<std::size_t>(step.op.as<Op>()->axis)),
        lanes_(x_, static_cast<int>(axis_)),
        results_(y_, static_cast<int>(axis_)) {}

  void run(const TaskContext& context) const noexcept override {
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    const DType dtype = y_.shape.dtype();
    const std::int64_t step = y_.strides[axis_], unit = block_bytes(dtype);
    const Range range = context.share(lanes_.count());
    for (std::int64_t lane = range.begin; lane < range.end; ++lane) {
      const std::byte* start = x + lanes_.offset(lane);
      std::byte* to = y + results_.offset(lane);
      Value sofar{};
      BlockBuffer buffer, narrowed;
      std::array<Value, block_elements> results;
      for (std::int64_t i = 0; i < lanes_.size(); i += block_elements) {
        const std::int64_t count = std::min(block_elements, lanes_.size() - i);
        const auto* values = static_cast<const T*>(lanes_.read(start, i, count, buffer));
        for (std::int64_t j = 0; j < count; ++j) {
          const auto value = static_cast<Value>(values[j]);
          sofar = i + j == 0 ? value : take(sofar, value);
          results[static_cast<std::size_t>(j)] = sofar;
        }
        std::byte* const stored = step == unit ? to : narrowed.bytes;
        if constexpr (std::same_as<Value, T>) {
          narrow(dtype, results.data(), stored, count);
        } else {
          using Sum = std::conditional_t<std::is_floating_point_v<Value>, double, std::int64_t>;
          narrow_sums(dtype, reinterpret_cast<const Sum*>(results.data()), stored, count);
        }
        if (step != unit) spread_run(stored, unit, count, to, step);
        to += count * step;
      }
    }
  }

 private:
  static Value take(Value sofar, Value x) noexcept {
    if constexpr (std::same_as<Op, Cumprod>) {
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
};

template <class Op>
std::unique_ptr<Task> make_cumulative(const Step& step, Compiler&) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<CumulativeTask<Op, T>>(step);
  });
}

}  // namespace

extern const Kernel cumprod_kernel, cummax_kernel, cummin_kernel;
constinit const Kernel cumprod_kernel{op_def<Cumprod>, takes_everything, make_cumulative<Cumprod>};
constinit const Kernel cummax_kernel{op_def<Cummax>, takes_everything, make_cumulative<Cummax>};
constinit const Kernel cummin_kernel{op_def<Cummin>, takes_everything, make_cumulative<Cummin>};

}  // namespace tenon::cpu
