// Axes folded into one element each. The elements of a result are summed part by part, and the parts in order, so that
// several threads may share a long sum: its bits do not depend on how many do.
#include "../elementwise/elementwise.hpp"
#include "../integer_math.hpp"
#include "array/transpose.hpp"
#include "reader.hpp"

#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

struct Meaning {
  Gathering gathering;
  double start;
  std::int64_t integer_start;
  bool divides;                                                ///< by the number of elements
  double (*row)(const float* x, std::int64_t count) noexcept;  ///< of adjacent elements; or null
};

double max_of(const float* x, std::int64_t count) noexcept {
  return static_cast<double>(max_row(x, count));
}
double min_of(const float* x, std::int64_t count) noexcept {
  return static_cast<double>(min_row(x, count));
}

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t max_integer = std::numeric_limits<std::int64_t>::max();
constexpr Meaning sum_meaning{Gathering::sum, 0, 0, false, sum_row};
constexpr Meaning mean_meaning{Gathering::sum, 0, 0, true, sum_row};
constexpr Meaning prod_meaning{Gathering::product, 1, 1, false, nullptr};
constexpr Meaning max_meaning{Gathering::max, -infinity, -max_integer - 1, false, max_of};
constexpr Meaning min_meaning{Gathering::min, infinity, max_integer, false, min_of};
constexpr Meaning any_meaning{Gathering::max, 0, 0, false, nullptr};
constexpr Meaning all_meaning{Gathering::min, 1, 1, false, nullptr};

class ReduceTask final : public PartwiseTask {
 public:
  ReduceTask(const Step& step, const IntList& axes, const Meaning& meaning, Compiler& compiler)
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
    has_rows_ = shape.dtype() == DType::f32 && meaning_.row != nullptr &&
                (folded_.rank == 0 || (folded_.rank == 1 && folded_.steps[0] == unit));
    find_runs(unit);
    if (kept_.rank > 0) {
      const auto last = static_cast<std::size_t>(kept_.rank - 1);
      row_length_ = kept_.sizes[last];
      column_step_ = kept_.steps[last];
      // Adjacent elements along a kept axis are folded in parallel, and short rows are turned into
      // such columns.
      const bool are_short = folded_.rank == 1 && folded_.steps[0] == unit && elements_ > 0 &&
                             column_step_ != unit && has_long_rows();
      const bool may_be_nan = !is_whole_ && (meaning_.gathering == Gathering::max ||
                                             meaning_.gathering == Gathering::min);
      has_short_rows_ = are_short && !has_rows_ && !may_be_nan && elements_ <= longest_short &&
                        is_computed_as_stored(shape.dtype()) && shape.dtype() != DType::u64;
      turns_rows_ = are_short && !has_short_rows_ &&
                    elements_ <= (has_rows_ ? longest_turned_row : longest_turned);
      has_rows_ = has_rows_ && !turns_rows_;
      has_columns_ = turns_rows_ || (!has_rows_ && column_step_ == unit);
    }
    parts_ = ceil_div(elements_, part_elements);
    has_row_groups_ =
        (has_rows_ || has_short_rows_) && kept_.rank > 0 && parts_ == 1 && has_long_rows();
    if (parts_ > 1 && outputs_ * parts_ <= max_partial_sums) {
      partial_sums_ = compiler.scratch(outputs_ * parts_ * sum_bytes);
      finished_ = compiler.zeroed_scratch(sizeof(std::int32_t));
      may_share_ = true;
    }
  }

  bool runs_in_parts() const noexcept override { return !may_share_; }

  void run(const TaskContext& context) const noexcept override {
    if (may_share_ && context.worker.threads > 1 && !context.alone) {
      fold_shared(context);
    } else {
      const Range lines = context.share(ceil_div(outputs_, line));
      fold_outputs(context, {lines.begin * line, std::min(lines.end * line, outputs_)});
    }
  }

 private:
  /// Results are divided among threads so that no two write to one cache line.
  static constexpr std::int64_t line = 16;
  static constexpr std::int64_t lanes = 16, shortest_row = 64;
  /// AVX2, one thread: sums of 800,000 rows of 10 take 4.2 ms instead of 29, of 250,000 rows of 32 4.4
  /// instead of 6.6; longer rows are as fast one by one. fold_rows, for the types that it takes, is
  /// faster from fewer elements on.
  static constexpr std::int64_t longest_turned = 48, longest_turned_row = 16;
  /// Of types that are computed as they are stored, such as f64: rows one by one, without a call each. Extremes that look
  /// for NaNs are faster turned.
  static constexpr std::int64_t longest_short = 256;
  static constexpr std::int64_t part_elements = 32768;
  static_assert(part_elements % block_elements == 0);
  static constexpr std::int64_t max_partial_sums = 65536;
  static constexpr std::int64_t sum_bytes = 8;
  struct Sums {
    alignas(64) std::byte bytes[block_elements * sum_bytes];
  };

  /// Runs that begin at the first of the `lanes` sums.
  void find_runs(std::int64_t unit) {
    if (folded_.rank == 0 || elements_ == 0 || !is_computed_as_stored(x_.shape.dtype())) return;
    const auto inner = static_cast<std::size_t>(folded_.rank - 1);
    run_ = folded_.sizes[inner];
    if (folded_.rank > 1) {
      runs_ = folded_.sizes[inner - 1];
      run_step_ = folded_.steps[inner - 1];
    }
    has_runs_ = folded_.steps[inner] == unit &&
                (run_ % lanes == 0 ||
                 (lanes % run_ == 0 && (folded_.rank <= 2 || run_ * runs_ % lanes == 0)));
  }

  void fold_outputs(const TaskContext& context, Range range) const noexcept {
    Sums sums, part;
    std::int64_t count = 0;
    for (std::int64_t i = range.begin; i < range.end; i += count) {
      count = together(i, range.end);
      fold(context, i, count, part_at(0), sums);
      for (std::int64_t p = 1; p < parts_; ++p) {
        fold(context, i, count, part_at(p), part);
        add(part.bytes, count, sums.bytes);
      }
      finish(context, sums.bytes, i, count);
    }
  }

  /// Threads share the parts of all results; the last one to be done adds them up.
  void fold_shared(const TaskContext& context) const noexcept {
    const std::int64_t at_once = has_columns_ ? block_elements : 1;
    const Range items = context.share(ceil_div(outputs_, at_once) * parts_);
    std::byte* const partial = context.scratch(partial_sums_);
    Sums sums;
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t p = item % parts_, first = item / parts_ * at_once;
      const std::int64_t last = std::min(first + at_once, outputs_);
      std::int64_t count = 0;
      for (std::int64_t i = first; i < last; i += count) {
        count = together(i, last);
        fold(context, i, count, part_at(p), sums);
        std::memcpy(partial + (p * outputs_ + i) * sum_bytes, sums.bytes,
                    static_cast<std::size_t>(count * sum_bytes));
      }
    }
    const std::atomic_ref finished(*reinterpret_cast<std::int32_t*>(context.zeroed(finished_)));
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < context.worker.threads) return;
    finished.store(0, std::memory_order_relaxed);  // for the next run in a loop
    for (std::int64_t p = 1; p < parts_; ++p) {
      add(partial + p * outputs_ * sum_bytes, outputs_, partial);
    }
    finish(context, partial, 0, outputs_);
  }

  Range part_at(std::int64_t number) const noexcept {
    return {number * part_elements, std::min((number + 1) * part_elements, elements_)};
  }

  /// How many results from the i-th on are folded at once: of one row of the last kept axis where
  /// these are long, and gathered from several otherwise.
  std::int64_t together(std::int64_t i, std::int64_t end) const noexcept {
    if (!has_columns_ && !has_row_groups_) return 1;
    const std::int64_t count = std::min(block_elements, end - i);
    return has_long_rows() ? std::min(count, row_length_ - i % row_length_) : count;
  }
  bool has_long_rows() const noexcept { return kept_.rank == 1 || row_length_ >= shortest_row; }

  /// The sums of results [output, output + count) over some of their elements.
  void fold(const TaskContext& context, std::int64_t output, std::int64_t count, Range elements,
            Sums& sums) const noexcept {
    if (has_columns_) return fold_columns(context, output, count, elements, sums);
    const auto* x = context.pointer<const std::byte>(x_) + kept_.offset(output);
    if (has_short_rows_) return fold_short(x, count, sums.bytes);
    if (!has_rows_) return fold_row(x, elements, sums);
    if (has_row_groups_) {
      return fold_rows(meaning_.gathering, reinterpret_cast<const float*>(x), column_step_, count,
                       elements_, reinterpret_cast<double*>(sums.bytes));
    }
    const auto* row = reinterpret_cast<const float*>(x) + elements.begin;
    const double sum =
        elements_ == 0 ? meaning_.start : meaning_.row(row, elements.end - elements.begin);
    std::memcpy(sums.bytes, &sum, sizeof sum);
  }

  void fold_short(const std::byte* x, std::int64_t rows, std::byte* sums) const noexcept {
    switch (type_) {
      case Compute::i32:
        return fold_short_of<std::int32_t, std::int64_t>(x, rows, sums);
      case Compute::i64:
        return fold_short_of<std::int64_t, std::int64_t>(x, rows, sums);
      case Compute::f32:
        return fold_short_of<float, double>(x, rows, sums);
      case Compute::f64:
        return fold_short_of<double, double>(x, rows, sums);
    }
  }
  template <class T, class Sum>
  void fold_short_of(const std::byte* x, std::int64_t rows, std::byte* sums) const noexcept {
    using U = std::conditional_t<std::is_same_v<Sum, double>, double, std::uint64_t>;  // wraps
    const auto fold = [&](auto f) {
      constexpr std::size_t partial = 8;
      const Sum start =
          is_whole_ ? static_cast<Sum>(meaning_.integer_start) : static_cast<Sum>(meaning_.start);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto* const row = reinterpret_cast<const T*>(x + r * column_step_);
        std::array<Sum, partial> part;
        part.fill(start);
        std::int64_t i = 0;
        for (; i + std::int64_t{partial} <= elements_; i += std::int64_t{partial}) {
          for (std::size_t j = 0; j < partial; ++j) {
            part[j] = f(part[j], static_cast<Sum>(row[i + static_cast<std::int64_t>(j)]));
          }
        }
        for (std::size_t j = 0; i < elements_; ++i, ++j)
          part[j] = f(part[j], static_cast<Sum>(row[i]));
        for (std::size_t half = partial / 2; half > 0; half /= 2) {
          for (std::size_t j = 0; j < half; ++j) part[j] = f(part[j], part[j + half]);
        }
        std::memcpy(sums + r * sum_bytes, part.data(), sizeof(Sum));
      }
    };
    switch (meaning_.gathering) {
      case Gathering::sum:
        return fold(
            [](Sum a, Sum b) { return static_cast<Sum>(static_cast<U>(a) + static_cast<U>(b)); });
      case Gathering::product:
        return fold(
            [](Sum a, Sum b) { return static_cast<Sum>(static_cast<U>(a) * static_cast<U>(b)); });
      case Gathering::max:
        return fold([](Sum a, Sum b) { return b > a ? b : a; });
      case Gathering::min:
        return fold([](Sum a, Sum b) { return b < a ? b : a; });
    }
  }

  void fold_columns(const TaskContext& context, std::int64_t output, std::int64_t count,
                    Range elements, Sums& sums) const noexcept {
    start(sums, count);
    if (turns_rows_) return fold_turned(context, output, count, sums);
    const auto* x = context.pointer<const std::byte>(x_);
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    const std::int64_t first = has_long_rows() ? kept_.offset(output) : 0;
    if (lie_close(count)) return fold_close(x + first, count, elements, sums);
    BlockBuffer stored;
    for (std::int64_t j = elements.begin; j < elements.end; ++j) {
      const std::byte* row = x + folded_.offset(j) + first;
      if (!has_long_rows()) {
        kept_.gather(row, unit, output, count, stored.bytes);
        row = stored.bytes;
      }
      accumulate_row(row, count, sums.bytes);
    }
  }

  /// Whether rows of `count` elements follow each other without gaps, several of them in a block. Only of sums whose parts
  /// threads share: threads that divide the results would divide the rows, and the bits depend on what is taken as one.
  bool lie_close(std::int64_t count) const noexcept {
    const DType dtype = x_.shape.dtype();
    return may_share_ && kept_.rank == 1 && folded_.rank == 1 && count == row_length_ &&
           column_step_ == block_bytes(dtype) && folded_.steps[0] == count * column_step_ &&
           2 * count <= block_elements && is_computed_as_stored(dtype);
  }

  /// As many rows as a block holds are taken as one, whose sums are then added up.
  void fold_close(const std::byte* x, std::int64_t count, Range elements,
                  Sums& sums) const noexcept {
    const std::int64_t rows = block_elements / count, width = rows * count;
    start(sums, width);
    accumulate(type_, meaning_.gathering, x + elements.begin * folded_.steps[0],
               (elements.end - elements.begin) * count, sums.bytes, width);
    for (std::int64_t row = 1; row < rows; ++row) {
      add(sums.bytes + row * count * sum_bytes, count, sums.bytes);
    }
  }

  /// Rows of a few elements, side by side: all of them, as there is one part.
  void fold_turned(const TaskContext& context, std::int64_t output, std::int64_t count,
                   Sums& sums) const noexcept {
    const auto* x = context.pointer<const std::byte>(x_) + kept_.offset(output);
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    alignas(64) std::byte columns[4 * sizeof(BlockBuffer)];
    const std::int64_t room =
        static_cast<std::int64_t>(sizeof columns) / (elements_ * unit) / lanes * lanes;
    for (std::int64_t i = 0; i < count; i += room) {
      const std::int64_t some = std::min(room, count - i);
      transpose(x + i * column_step_, column_step_, columns, some * unit, elements_, some, unit);
      for (std::int64_t j = 0; j < elements_; ++j) {
        accumulate_row(columns + j * some * unit, some, sums.bytes + i * sum_bytes);
      }
    }
  }

  /// Adds `count` elements as they are stored, side by side, to a sum each.
  void accumulate_row(const std::byte* row, std::int64_t count, std::byte* sums) const noexcept {
    const DType dtype = x_.shape.dtype();
    BlockBuffer wide;
    if (!is_computed_as_stored(dtype)) {
      widen(dtype, row, wide.bytes, count);
      row = wide.bytes;
    }
    accumulate(type_, meaning_.gathering, row, count, sums, count);
  }

  /// Element j of a row belongs to sum j mod 16, wherever blocks end; blocks of f32 are folded as they are and belong to
  /// the first one.
  void fold_row(const std::byte* row, Range elements, Sums& sums) const noexcept {
    start(sums, lanes);
    has_runs_ ? fold_runs(row, elements, sums) : fold_blocks(row, elements, sums);
    for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
      add(sums.bytes + half * sum_bytes, half, sums.bytes);
    }
  }

  void fold_blocks(const std::byte* row, Range elements, Sums& sums) const noexcept {
    const DType dtype = x_.shape.dtype();
    const std::int64_t unit = block_bytes(dtype);
    BlockBuffer stored, wide;
    for (std::int64_t j = elements.begin; j < elements.end; j += block_elements) {
      const std::int64_t count = std::min(block_elements, elements.end - j);
      const std::int64_t whole = count / lanes * lanes;
      const std::byte* values = stored.bytes;
      if (const auto offset = folded_.run_at(unit, j, count)) {
        values = row + *offset;
      } else {
        folded_.gather(row, unit, j, count, stored.bytes);
      }
      std::int64_t value_bytes = unit;
      if (!is_computed_as_stored(dtype)) {
        widen(dtype, values, wide.bytes, count);
        values = wide.bytes;
        value_bytes = compute_bytes(type_);
      }
      if (type_ == Compute::f32 && meaning_.row != nullptr) {
        const double part = meaning_.row(reinterpret_cast<const float*>(values), count);
        add(reinterpret_cast<const std::byte*>(&part), 1, sums.bytes);
        continue;
      }
      accumulate(type_, meaning_.gathering, values, whole, sums.bytes, lanes);
      accumulate(type_, meaning_.gathering, values + whole * value_bytes, count - whole, sums.bytes,
                 lanes);
    }
  }

  /// Both ends of `elements` are at whole runs, or at whole `lanes` of a run.
  void fold_runs(const std::byte* row, Range elements, Sums& sums) const noexcept {
    for (std::int64_t j = elements.begin; j < elements.end;) {
      const std::int64_t within = j % (run_ * runs_), inside = within % run_;
      const std::byte* const from = row + folded_.offset(j);
      if (inside != 0 || elements.end - j < run_) {
        const std::int64_t count = std::min(run_ - inside, elements.end - j);
        accumulate(type_, meaning_.gathering, from, count, sums.bytes, lanes);
        j += count;
      } else {
        const std::int64_t rows = std::min(runs_ - within / run_, (elements.end - j) / run_);
        accumulate_rows(type_, meaning_.gathering, from, run_, rows, run_step_, sums.bytes);
        j += rows * run_;
      }
    }
  }

  void add(const std::byte* part, std::int64_t count, std::byte* sums) const noexcept {
    accumulate(is_whole_ ? Compute::i64 : Compute::f64, meaning_.gathering, part, count, sums,
               count);
  }

  void start(Sums& sums, std::int64_t count) const noexcept {
    if (is_whole_) {
      std::fill_n(reinterpret_cast<std::int64_t*>(sums.bytes), count, meaning_.integer_start);
    } else {
      std::fill_n(reinterpret_cast<double*>(sums.bytes), count, meaning_.start);
    }
  }

  /// Stores results [output, output + count).
  void finish(const TaskContext& context, const std::byte* sums, std::int64_t output,
              std::int64_t count) const noexcept {
    const DType dtype = y_.shape.dtype();
    std::byte* const y = context.pointer<std::byte>(y_) + output * block_bytes(dtype);
    if (is_whole_) {
      return narrow_sums(dtype, reinterpret_cast<const std::int64_t*>(sums), y, count);
    }
    const auto* const values = reinterpret_cast<const double*>(sums);
    if (!meaning_.divides) return narrow_sums(dtype, values, y, count);
    const auto divisor = static_cast<double>(elements_);
    std::array<double, block_elements> means;
    for (std::int64_t i = 0; i < count; i += block_elements) {
      const std::int64_t some = std::min(block_elements, count - i);
      for (std::int64_t j = 0; j < some; ++j) {
        means[static_cast<std::size_t>(j)] = values[i + j] / divisor;
      }
      narrow_sums(dtype, means.data(), y + i * block_bytes(dtype), some);
    }
  }

  Operand x_, y_;
  Meaning meaning_;
  Loops kept_, folded_;
  Compute type_ = Compute::f32;
  std::int64_t outputs_, elements_ = 1, parts_ = 1;
  std::int64_t row_length_ = 0, column_step_ = 0;  ///< of the last kept axis
  /// Whether the elements of a row are runs of adjacent ones: of `run_` elements, and runs_ of them
  /// run_step_ bytes apart.
  bool has_runs_ = false;
  std::int64_t run_ = 1, runs_ = 1, run_step_ = 0;
  std::int64_t partial_sums_ = 0, finished_ = 0;
  bool is_whole_ = false, has_rows_ = false, has_columns_ = false, may_share_ = false;
  bool turns_rows_ = false, has_row_groups_ = false, has_short_rows_ = false;
};

template <class Op, const Meaning& meaning>
std::unique_ptr<Task> make_reduce(const Step& step, Compiler& compiler) {
  return std::make_unique<ReduceTask>(step, step.op.as<Op>()->axes, meaning, compiler);
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
