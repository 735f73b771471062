// Running products, maxima and minima.
#include "../integer_math.hpp"
#include "lanes.hpp"
#include "ordered.hpp"

#include <tenon/ops/cumulative.hpp>

#include <algorithm>
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
    const std::int64_t step = y_.strides[axis_];
    const Range range = context.share(lanes_.count());
    for (std::int64_t lane = range.begin; lane < range.end; ++lane) {
      const std::byte* start = x + lanes_.offset(lane);
      std::byte* to = y + results_.offset(lane);
      Value sofar{};
      BlockBuffer buffer;
      for (std::int64_t i = 0; i < lanes_.size(); i += block_elements) {
        const std::int64_t count = std::min(block_elements, lanes_.size() - i);
        const auto* values = static_cast<const T*>(lanes_.read(start, i, count, buffer));
        if (i == 0) sofar = static_cast<Value>(values[0]);
        for (std::int64_t j = i == 0 ? 1 : 0; j <= count; ++j) {
          if (j > 0) store(to + (i + j - 1) * step, sofar);
          if (j < count) sofar = take(sofar, static_cast<Value>(values[j]));
        }
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

  void store(std::byte* to, Value value) const noexcept {
    const DType dtype = y_.shape.dtype();
    if constexpr (std::is_floating_point_v<Value>) {
      if (dtype == DType::f32) {
        *reinterpret_cast<float*>(to) = static_cast<float>(value);
      } else {
        store_double(dtype, to, static_cast<double>(value));
      }
    } else {
      store_int64(dtype, to, static_cast<std::int64_t>(value));
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
