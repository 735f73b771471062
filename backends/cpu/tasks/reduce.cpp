// Axes folded into one element. Each result is one thread's, summed in one fixed order.
#include "../elementwise/elementwise.hpp"
#include "../integer_math.hpp"
#include "reader.hpp"

#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace tenon::cpu {
namespace {

struct Meaning {
  Gathering gathering;
  double start;
  std::int64_t integer_start;
  bool divides;             ///< by the number of elements
  std::optional<Fold> row;  ///< the kernel for f32 rows
};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t max_integer = std::numeric_limits<std::int64_t>::max();
constexpr Meaning sum_meaning{Gathering::sum, 0, 0, false, Fold::sum};
constexpr Meaning mean_meaning{Gathering::sum, 0, 0, true, Fold::mean};
constexpr Meaning prod_meaning{Gathering::product, 1, 1, false, std::nullopt};
constexpr Meaning max_meaning{Gathering::max, -infinity, -max_integer - 1, false, Fold::max};
constexpr Meaning min_meaning{Gathering::min, infinity, max_integer, false, Fold::min};
constexpr Meaning any_meaning{Gathering::max, 0, 0, false, std::nullopt};
constexpr Meaning all_meaning{Gathering::min, 1, 1, false, std::nullopt};

class ReduceTask final : public Task {
 public:
  ReduceTask(const Step& step, const IntList& axes, const Meaning& meaning)
      : x_(step.inputs[0]), y_(step.output), meaning_(meaning), outputs_(y_.shape.elements()) {
    const Shape& shape = x_.shape;
    std::array<bool, max_rank> is_folded{};
    for (const std::int64_t axis : axes.span()) is_folded[static_cast<std::size_t>(axis)] = true;
    for (int i = 0; i < shape.rank(); ++i) {
      const auto axis = static_cast<std::size_t>(i);
      (is_folded[axis] ? folded_ : kept_).push(shape[i], x_.strides[axis]);
      if (is_folded[axis]) elements_ *= shape[i];
    }
    type_ = compute_type(shape.dtype());
    const std::int64_t unit = block_bytes(shape.dtype());
    is_whole_ = type_ == Compute::i32 || type_ == Compute::i64;
    has_rows_ = shape.dtype() == DType::f32 && meaning_.row && elements_ > 0 &&
                (folded_.rank == 0 || (folded_.rank == 1 && folded_.steps[0] == unit));
    // Adjacent elements along a kept axis are folded in parallel.
    has_columns_ = kept_.rank > 0 && kept_.steps[static_cast<std::size_t>(kept_.rank - 1)] == unit;
  }

  void run(const TaskContext& context) const noexcept override {
    constexpr std::int64_t line = 16;
    const Range lines = context.share(ceil_div(outputs_, line));
    const Range range{lines.begin * line, std::min(lines.end * line, outputs_)};
    if (range.begin >= range.end) return;
    if (has_rows_) {
      rows(context, range);
    } else if (has_columns_) {
      columns(context, range);
    } else {
      gathered_rows(context, range);
    }
  }

 private:
  static constexpr std::int64_t lanes = 16, shortest_row = 64;
  struct Sums {
    alignas(64) std::byte bytes[block_elements * 8];
  };

  void rows(const TaskContext& context, Range range) const noexcept {
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<float>(y_);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      y[i] =
          fold_row(*meaning_.row, reinterpret_cast<const float*>(x + kept_.offset(i)), elements_);
    }
  }

  void columns(const TaskContext& context, Range range) const noexcept {
    const auto* x = context.pointer<const std::byte>(x_);
    const DType dtype = x_.shape.dtype();
    const std::int64_t unit = block_bytes(dtype);
    // Of one row of the last kept axis where these are long, and gathered from several otherwise.
    const std::int64_t length = kept_.sizes[static_cast<std::size_t>(kept_.rank - 1)];
    const bool are_long = kept_.rank == 1 || length >= shortest_row;
    Sums sums;
    BlockBuffer stored, wide;
    std::int64_t count = 0;
    for (std::int64_t i = range.begin; i < range.end; i += count) {
      count = std::min(block_elements, range.end - i);
      if (are_long) count = std::min(count, length - i % length);
      const std::int64_t first = are_long ? kept_.offset(i) : 0;
      start(sums, count);
      for (std::int64_t j = 0; j < elements_; ++j) {
        const std::byte* row = x + folded_.offset(j) + first;
        if (!are_long) {
          kept_.gather(row, unit, i, count, stored.bytes);
          row = stored.bytes;
        }
        if (!is_computed_as_stored(dtype)) {
          widen(dtype, row, wide.bytes, count);
          row = wide.bytes;
        }
        accumulate(type_, meaning_.gathering, row, count, sums.bytes, count);
      }
      finish_block(context, sums, i, count);
    }
  }

  /// Element j of a row belongs to sum j mod 16, wherever blocks end.
  void gathered_rows(const TaskContext& context, Range range) const noexcept {
    const auto* x = context.pointer<const std::byte>(x_);
    const DType dtype = x_.shape.dtype();
    const std::int64_t unit = block_bytes(dtype);
    Sums sums;
    BlockBuffer stored, wide;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::byte* row = x + kept_.offset(i);
      start(sums, lanes);
      for (std::int64_t j = 0; j < elements_; j += block_elements) {
        const std::int64_t count = std::min(block_elements, elements_ - j);
        const std::int64_t whole = count / lanes * lanes;
        folded_.gather(row, unit, j, count, stored.bytes);
        const std::byte* values = stored.bytes;
        std::int64_t value_bytes = unit;
        if (!is_computed_as_stored(dtype)) {
          widen(dtype, stored.bytes, wide.bytes, count);
          values = wide.bytes;
          value_bytes = compute_bytes(type_);
        }
        accumulate(type_, meaning_.gathering, values, whole, sums.bytes, lanes);
        accumulate(type_, meaning_.gathering, values + whole * value_bytes, count - whole,
                   sums.bytes, lanes);
      }
      for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
        accumulate(is_whole_ ? Compute::i64 : Compute::f64, meaning_.gathering,
                   sums.bytes + half * 8, half, sums.bytes, half);
      }
      finish(context, sums, 0, i);
    }
  }

  void start(Sums& sums, std::int64_t count) const noexcept {
    if (is_whole_) {
      std::fill_n(reinterpret_cast<std::int64_t*>(sums.bytes), count, meaning_.integer_start);
    } else {
      std::fill_n(reinterpret_cast<double*>(sums.bytes), count, meaning_.start);
    }
  }

  void finish(const TaskContext& context, const Sums& sums, std::int64_t from,
              std::int64_t output) const noexcept {
    const DType dtype = y_.shape.dtype();
    std::byte* const y = context.pointer<std::byte>(y_) + output * block_bytes(dtype);
    if (is_whole_) {
      return store_int64(dtype, y, reinterpret_cast<const std::int64_t*>(sums.bytes)[from]);
    }
    double value = reinterpret_cast<const double*>(sums.bytes)[from];
    if (meaning_.divides) value /= static_cast<double>(elements_);
    if (dtype == DType::f32) {
      *reinterpret_cast<float*>(y) = static_cast<float>(value);
    } else {
      store_double(dtype, y, value);
    }
  }

  void finish_block(const TaskContext& context, const Sums& sums, std::int64_t output,
                    std::int64_t count) const noexcept {
    if (is_whole_ || y_.shape.dtype() != DType::f32) {
      for (std::int64_t j = 0; j < count; ++j) finish(context, sums, j, output + j);
      return;
    }
    const auto* const values = reinterpret_cast<const double*>(sums.bytes);
    auto* const y = context.pointer<float>(y_) + output;
    const double divisor = meaning_.divides ? static_cast<double>(elements_) : 1.0;
    for (std::int64_t j = 0; j < count; ++j) y[j] = static_cast<float>(values[j] / divisor);
  }

  Operand x_, y_;
  Meaning meaning_;
  Loops kept_, folded_;
  Compute type_ = Compute::f32;
  std::int64_t outputs_, elements_ = 1;
  bool is_whole_ = false, has_rows_ = false, has_columns_ = false;
};

template <class Op, const Meaning& meaning>
std::unique_ptr<Task> make_reduce(const Step& step, Compiler&) {
  return std::make_unique<ReduceTask>(step, step.op.as<Op>()->axes, meaning);
}

}  // namespace

#define TENON_REDUCE(id, Struct)                                        \
  extern const Kernel id##_kernel;                                      \
  constinit const Kernel id##_kernel {                                  \
    op_def<Struct>, takes_everything, make_reduce<Struct, id##_meaning> \
  }

TENON_REDUCE(sum, Sum);
TENON_REDUCE(mean, Mean);
TENON_REDUCE(prod, Prod);
TENON_REDUCE(max, Max);
TENON_REDUCE(min, Min);
TENON_REDUCE(any, Any);
TENON_REDUCE(all, All);

#undef TENON_REDUCE

}  // namespace tenon::cpu
