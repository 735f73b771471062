// Axes folded into one element each. The elements of a result are summed part by part, and the parts in order, so that
// several threads may share a long sum: its bits do not depend on how many do.
#include "../elementwise/stored_folds.hpp"
#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "array/transpose.hpp"
#include "reader.hpp"

#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace tenon::cpu {
namespace {

struct Meaning {
  Gathering gathering;
  double start;
  std::int64_t integer_start;
  bool divides;  ///< by the number of elements
};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t max_integer = std::numeric_limits<std::int64_t>::max();
constexpr Meaning sum_meaning{Gathering::sum, 0, 0, false};
constexpr Meaning mean_meaning{Gathering::sum, 0, 0, true};
constexpr Meaning prod_meaning{Gathering::product, 1, 1, false};
constexpr Meaning max_meaning{Gathering::max, -infinity, -max_integer - 1, false};
constexpr Meaning min_meaning{Gathering::min, infinity, max_integer, false};
constexpr Meaning any_meaning{Gathering::max, 0, 0, false};
constexpr Meaning all_meaning{Gathering::min, 1, 1, false};

/// An axis of x, and what a step along it is worth in the result, in bytes; 0 for a folded one.
struct ReducedAxis {
  std::int64_t size, step, result_step;
};

/// Axes in the order in which their elements lie in memory, which is not that of a permuted view; what repeats, first.
void sort_by_memory(std::span<ReducedAxis> axes) {
  const auto distance = [](const ReducedAxis& axis) {
    return axis.step == 0 ? max_integer : std::abs(axis.step);
  };
  std::ranges::sort(axes, std::greater(), distance);
}

class ReduceTask final : public PartwiseTask {
 public:
  ReduceTask(const Step& step, const IntList& axes, const Meaning& meaning, Compiler& compiler)
      : x_(step.inputs[0]), y_(step.output), meaning_(meaning), outputs_(y_.shape.elements()) {
    find_axes(axes);
    type_ = compute_type(x_.shape.dtype());
    is_whole_ = type_ == Compute::i32 || type_ == Compute::i64;
    sum_type_ = is_extreme() ? type_ : is_whole_ ? Compute::i64 : Compute::f64;
    sum_bytes_ = compute_bytes(sum_type_);
    stored_ = stored_fold(x_.shape.dtype(), meaning.gathering);
    find_way();
    parts_ = ceil_div(elements_, part_elements);
    if (parts_ > 1 && outputs_ * parts_ <= max_partial_sums) {
      partial_sums_ = compiler.scratch(outputs_ * parts_ * sum_bytes_);
      finished_ = compiler.zeroed_scratch(sizeof(std::int32_t));
      may_share_ = true;
    }
  }

  bool runs_in_parts() const noexcept override { return !may_share_; }

  void run(const TaskContext& context) const noexcept override {
    if (may_share_ && context.worker.threads > 1 && !context.alone) {
      fold_shared(context);
    } else {
      const std::int64_t unit = folds_whole_rows() ? row_length_ : line;
      const Range units = context.share(ceil_div(outputs_, unit));
      fold_outputs(context, {units.begin * unit, std::min(units.end * unit, outputs_)});
    }
  }

 private:
  /// How elements are read: rows of adjacent ones to fold; adjacent ones of as many results; rows of a few elements, turned
  /// into such columns; and runs, or single elements, of one result after the other.
  enum class Way : std::uint8_t { rows, columns, turned_rows, runs, elements };

  /// Results are divided among threads so that no two write to one cache line.
  static constexpr std::int64_t line = 16;
  static constexpr std::int64_t lanes = 16, long_row = 64;
  /// AVX2, one thread: sums of 800,000 rows of 10 take 4.2 ms instead of 29.
  static constexpr std::int64_t longest_turned = 16;
  /// Columns of as many elements are not gathered from several rows of the last kept axis.
  static constexpr std::int64_t large_columns = 256;
  /// Rows of columns that are narrower are taken as one where they follow each other without gaps.
  static constexpr std::int64_t wide_columns = 64;
  static constexpr std::int64_t part_elements = 32768;
  static_assert(part_elements % block_elements == 0);
  static constexpr std::int64_t max_partial_sums = 65536;
  static constexpr std::int64_t most_sum_bytes = 8;
  struct Sums {
    alignas(64) std::byte bytes[block_elements * most_sum_bytes];
  };
  /// Elements of a narrow type as kernels compute with them.
  struct Widened {
    alignas(64) std::byte bytes[16384];
  };
  std::int64_t widened_at_once() const noexcept {
    return static_cast<std::int64_t>(sizeof(Widened)) / compute_bytes(type_);
  }

  void find_axes(const IntList& folded) {
    const Shape& shape = x_.shape;
    std::array<bool, max_rank> is_folded{};
    for (const std::int64_t axis : folded.span()) is_folded[static_cast<std::size_t>(axis)] = true;
    std::vector<ReducedAxis> inner, outer;
    std::int64_t result_step = y_.shape.elements() * block_bytes(y_.shape.dtype());
    for (int i = 0; i < shape.rank(); ++i) {
      const auto axis = static_cast<std::size_t>(i);
      if (is_folded[axis]) {
        elements_ *= shape[i];
        inner.push_back({shape[i], x_.strides[axis], 0});
      } else if (shape[i] > 1) {
        result_step /= shape[i];
        outer.push_back({shape[i], x_.strides[axis], result_step});
      }
    }
    sort_by_memory(inner);
    sort_by_memory(outer);
    for (const ReducedAxis& axis : inner) folded_.push(axis.size, axis.step);
    for (const ReducedAxis& axis : outer) {
      kept_.push(axis.size, axis.step);
      results_.push(axis.size, axis.result_step);
    }
    if (kept_.rank > 0) {
      const auto last = static_cast<std::size_t>(kept_.rank - 1);
      row_length_ = kept_.sizes[last];
      column_step_ = kept_.steps[last];
    }
  }

  void find_way() {
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    const bool has_row =
        folded_.rank == 0 || (folded_.rank == 1 && folded_.steps[0] == unit && elements_ > 0);
    if (has_row) {
      const bool is_turned = elements_ > 1 && elements_ <= longest_turned && kept_.rank > 0 &&
                             column_step_ != unit && has_long_rows();
      const bool are_columns = elements_ <= 1 && column_step_ == unit;
      way_ = is_turned ? Way::turned_rows : are_columns ? Way::columns : Way::rows;
    } else if (kept_.rank > 0 && column_step_ == unit) {
      way_ = Way::columns;
    } else {
      way_ = find_runs(unit) ? Way::runs : Way::elements;
    }
  }

  /// Whether the elements of a result are runs of adjacent ones that begin at the first of the `lanes` sums.
  bool find_runs(std::int64_t unit) {
    if (folded_.rank == 0 || elements_ == 0 || !is_stored_as_computed()) return false;
    const auto inner = static_cast<std::size_t>(folded_.rank - 1);
    run_ = folded_.sizes[inner];
    if (folded_.rank > 1) {
      runs_ = folded_.sizes[inner - 1];
      run_step_ = folded_.steps[inner - 1];
    }
    return folded_.steps[inner] == unit &&
           (run_ % lanes == 0 ||
            (lanes % run_ == 0 && (folded_.rank <= 2 || run_ * runs_ % lanes == 0)));
  }

  bool is_stored_as_computed() const noexcept { return is_computed_as_stored(x_.shape.dtype()); }

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
    const std::int64_t at_once = folds_whole_rows() ? row_length_
                                 : has_columns()    ? block_elements
                                                    : 1;
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
        std::memcpy(partial + (p * outputs_ + i) * sum_bytes_, sums.bytes,
                    static_cast<std::size_t>(count * sum_bytes_));
      }
    }
    const std::atomic_ref finished(*reinterpret_cast<std::int32_t*>(context.zeroed(finished_)));
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < context.worker.threads) return;
    finished.store(0, std::memory_order_relaxed);  // for the next run in a loop
    for (std::int64_t p = 1; p < parts_; ++p) {
      add(partial + p * outputs_ * sum_bytes_, outputs_, partial);
    }
    finish(context, partial, 0, outputs_);
  }

  Range part_at(std::int64_t number) const noexcept {
    return {number * part_elements, std::min((number + 1) * part_elements, elements_)};
  }

  bool has_columns() const noexcept { return way_ == Way::columns || way_ == Way::turned_rows; }
  bool has_long_rows() const noexcept { return kept_.rank == 1 || row_length_ >= long_row; }
  /// Whether columns are read where they lie, and not gathered from several rows of the last kept axis.
  bool has_columns_in_place() const noexcept {
    return way_ == Way::columns && (has_long_rows() || row_length_ * elements_ >= large_columns);
  }
  /// Whether the results along the last kept axis are folded together, whatever part of all a thread has: which rows are
  /// taken as one decides on the bits.
  bool folds_whole_rows() const noexcept {
    return has_columns_in_place() && row_length_ <= wide_columns;
  }

  /// How many results from the i-th on are folded at once.
  std::int64_t together(std::int64_t i, std::int64_t end) const noexcept {
    const std::int64_t count = std::min(block_elements, end - i);
    if (way_ == Way::columns && !has_columns_in_place()) return count;
    const bool are_rows = way_ == Way::rows && parts_ == 1 && kept_.rank > 0;
    return are_rows || has_columns() ? std::min(count, row_length_ - i % row_length_) : 1;
  }

  /// The sums of results [output, output + count) over some of their elements.
  void fold(const TaskContext& context, std::int64_t output, std::int64_t count, Range elements,
            Sums& sums) const noexcept {
    const auto* const x = context.pointer<const std::byte>(x_);
    if (way_ == Way::columns && !has_columns_in_place()) {
      return fold_gathered(x, output, count, elements, sums);
    }
    const std::byte* const from = x + kept_.offset(output);
    if (elements.begin == elements.end) return start(sums, count);
    switch (way_) {
      case Way::rows:
        return fold_rows(from, count, elements, sums);
      case Way::columns:
        return fold_columns(from, count, elements, sums);
      case Way::turned_rows:
        return fold_turned(from, count, sums);
      case Way::runs:
      case Way::elements:
        return fold_row(from, elements, sums);
    }
  }

  /// `count` rows, or a part of one.
  void fold_rows(const std::byte* x, std::int64_t count, Range elements,
                 Sums& sums) const noexcept {
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    const std::int64_t length = elements.end - elements.begin;
    x += elements.begin * unit;
    if (is_stored_as_computed()) {
      return cpu::fold_rows(type_, meaning_.gathering, x, column_step_, count, length, sums.bytes);
    }
    if (stored_ != nullptr) return stored_->rows(x, column_step_, count, length, sums.bytes);
    Widened wide;
    const std::int64_t room = std::max<std::int64_t>(widened_at_once() / length, 1);
    for (std::int64_t r = 0; r < count; r += room, x += room * column_step_) {
      const std::int64_t rows = std::min(room, count - r);
      std::byte* const to = sums.bytes + r * sum_bytes_;
      const std::int64_t piece = std::min(length, widened_at_once());
      for (std::int64_t i = 0; i < length; i += piece) {
        const std::int64_t some = std::min(piece, length - i);
        widen_rows(x + i * unit, column_step_, rows, some, wide);
        alignas(most_sum_bytes)
            std::byte part[most_sum_bytes];  // of a row that is longer than what is widened at once
        cpu::fold_rows(type_, meaning_.gathering, wide.bytes, some * compute_bytes(type_), rows,
                       some, i == 0 ? to : part);
        if (i > 0) add(part, 1, to);
      }
    }
  }

  /// Rows that are `step` bytes apart, without gaps and widened.
  void widen_rows(const std::byte* x, std::int64_t step, std::int64_t rows, std::int64_t count,
                  Widened& to) const noexcept {
    const DType dtype = x_.shape.dtype();
    if (step == count * block_bytes(dtype)) return widen(dtype, x, to.bytes, rows * count);
    for (std::int64_t r = 0; r < rows; ++r) {
      widen(dtype, x + r * step, to.bytes + r * count * compute_bytes(type_), count);
    }
  }

  /// `count` columns that lie side by side.
  void fold_columns(const std::byte* x, std::int64_t count, Range elements,
                    Sums& sums) const noexcept {
    start(sums, count);
    const auto inner = static_cast<std::size_t>(std::max(folded_.rank - 1, 0));
    const std::int64_t length = folded_.rank == 0 ? 1 : folded_.sizes[inner];
    const std::int64_t step = folded_.rank == 0 ? 0 : folded_.steps[inner];
    for (std::int64_t j = elements.begin; j < elements.end;) {
      const std::int64_t rows = std::min(length - j % length, elements.end - j);
      add_rows(x + folded_.offset(j), count, rows, step, sums.bytes);
      j += rows;
    }
  }

  /// Adds `rows` rows of `count` columns to the columns' sums.
  void add_rows(const std::byte* x, std::int64_t count, std::int64_t rows, std::int64_t step,
                std::byte* sums) const noexcept {
    if (stored_ != nullptr || is_stored_as_computed()) {
      return add_joined_rows(x, count, rows, step, sums);
    }
    Widened wide;
    const std::int64_t room = widened_at_once() / count;
    for (std::int64_t r = 0; r < rows; r += room) {
      const std::int64_t some = std::min(room, rows - r);
      widen_rows(x + r * step, step, some, count, wide);
      accumulate_columns(type_, meaning_.gathering, wide.bytes, count, some,
                         count * compute_bytes(type_), sums);
    }
  }

  /// Rows of few columns that follow each other without gaps are taken several as one.
  void add_joined_rows(const std::byte* x, std::int64_t count, std::int64_t rows, std::int64_t step,
                       std::byte* sums) const noexcept {
    const std::int64_t joined = folds_whole_rows() ? wide_columns / count : 1;
    const std::int64_t lines = joined > 1 ? rows / joined : 0;
    if (lines < 2 || step != count * block_bytes(x_.shape.dtype())) {
      return add_columns(x, count, rows, step, sums);
    }
    Sums wide;
    start(wide, joined * count);
    add_columns(x, joined * count, lines, joined * step, wide.bytes);
    const std::int64_t done = lines * joined;
    add_columns(x + done * step, count, rows - done, step, wide.bytes);
    for (std::int64_t j = 0; j < joined; ++j) {
      add(wide.bytes + j * count * sum_bytes_, count, sums);
    }
  }
  void add_columns(const std::byte* x, std::int64_t count, std::int64_t rows, std::int64_t step,
                   std::byte* sums) const noexcept {
    stored_ != nullptr ? stored_->columns(x, count, rows, step, sums)
                       : accumulate_columns(type_, meaning_.gathering, x, count, rows, step, sums);
  }

  /// Columns of several rows of the last kept axis.
  void fold_gathered(const std::byte* x, std::int64_t output, std::int64_t count, Range elements,
                     Sums& sums) const noexcept {
    start(sums, count);
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    BlockBuffer stored;
    for (std::int64_t j = elements.begin; j < elements.end; ++j) {
      kept_.gather(x + folded_.offset(j), unit, output, count, stored.bytes);
      add_rows(stored.bytes, count, 1, 0, sums.bytes);
    }
  }

  /// Rows of a few elements, side by side: all of them, as there is one part.
  void fold_turned(const std::byte* x, std::int64_t count, Sums& sums) const noexcept {
    start(sums, count);
    const std::int64_t unit = block_bytes(x_.shape.dtype());
    alignas(64) std::byte columns[4 * sizeof(BlockBuffer)];
    const std::int64_t room =
        std::min(static_cast<std::int64_t>(sizeof columns) / (elements_ * unit) / lanes * lanes,
                 block_elements);
    for (std::int64_t i = 0; i < count; i += room) {
      const std::int64_t some = std::min(room, count - i);
      transpose(x + i * column_step_, column_step_, columns, some * unit, elements_, some, unit);
      add_rows(columns, some, elements_, some * unit, sums.bytes + i * sum_bytes_);
    }
  }

  /// The elements of one result: number j belongs to sum j mod 16, wherever blocks end.
  void fold_row(const std::byte* row, Range elements, Sums& sums) const noexcept {
    start(sums, lanes);
    way_ == Way::runs ? fold_runs(row, elements, sums) : fold_blocks(row, elements, sums);
    for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
      add(sums.bytes + half * sum_bytes_, half, sums.bytes);
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
      if (!is_stored_as_computed()) {
        widen(dtype, values, wide.bytes, count);
        values = wide.bytes;
        value_bytes = compute_bytes(type_);
      }
      if (is_extreme()) {  // the same in any order but for the sign of a zero
        alignas(most_sum_bytes) std::byte one[most_sum_bytes];
        cpu::fold_rows(type_, meaning_.gathering, values, 0, 1, count, one);
        add(one, 1, sums.bytes);
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
        is_extreme()
            ? pick_runs(from, rows, sums)
            : accumulate_rows(type_, meaning_.gathering, from, run_, rows, run_step_, sums.bytes);
        j += rows * run_;
      }
    }
  }

  bool is_extreme() const noexcept {
    return meaning_.gathering == Gathering::max || meaning_.gathering == Gathering::min;
  }

  /// Extremes of whole runs, then of these: they are the same in any order.
  void pick_runs(const std::byte* x, std::int64_t rows, Sums& sums) const noexcept {
    Sums picked;
    for (std::int64_t r = 0; r < rows; r += block_elements) {
      const std::int64_t some = std::min(block_elements, rows - r);
      cpu::fold_rows(type_, meaning_.gathering, x + r * run_step_, run_step_, some, run_,
                     picked.bytes);
      for (std::int64_t i = 0; i < some; i += lanes) {
        add(picked.bytes + i * sum_bytes_, std::min(lanes, some - i), sums.bytes);
      }
    }
  }

  void add(const std::byte* part, std::int64_t count, std::byte* sums) const noexcept {
    accumulate(sum_type_, meaning_.gathering, part, count, sums, count);
  }

  void start(Sums& sums, std::int64_t count) const noexcept {
    switch (sum_type_) {
      case Compute::i32: {
        using Limits = std::numeric_limits<std::int32_t>;
        const std::int64_t first =
            std::clamp<std::int64_t>(meaning_.integer_start, Limits::min(), Limits::max());
        return fill(sums, count, static_cast<std::int32_t>(first));
      }
      case Compute::i64:
        return fill(sums, count, meaning_.integer_start);
      case Compute::f32:
        return fill(sums, count, static_cast<float>(meaning_.start));
      case Compute::f64:
        return fill(sums, count, meaning_.start);
    }
  }
  template <class T>
  static void fill(Sums& sums, std::int64_t count, T value) noexcept {
    std::fill_n(reinterpret_cast<T*>(sums.bytes), count, value);
  }

  /// Stores results [output, output + count), which lie as y has them unless x is a permuted view.
  void finish(const TaskContext& context, const std::byte* sums, std::int64_t output,
              std::int64_t count) const noexcept {
    const std::int64_t unit = block_bytes(y_.shape.dtype());
    auto* const y = context.pointer<std::byte>(y_);
    if (results_.rank <= 1) return narrow_results(sums, count, y + output * unit);
    BlockBuffer results;
    for (std::int64_t i = 0; i < count; i += block_elements) {
      const std::int64_t some = std::min(block_elements, count - i);
      narrow_results(sums + i * sum_bytes_, some, results.bytes);
      results_.scatter(results.bytes, unit, output + i, some, y);
    }
  }

  void narrow_results(const std::byte* sums, std::int64_t count, std::byte* y) const noexcept {
    const DType dtype = y_.shape.dtype();
    if (is_extreme()) return narrow(dtype, sums, y, count);
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
  Loops kept_, folded_;  ///< of x, in the order of its memory
  Loops results_;        ///< of y: the axes of kept_
  Compute type_ = Compute::f32;
  Compute sum_type_ = Compute::f64;  ///< of what is kept of elements: see Gathering
  std::int64_t sum_bytes_ = most_sum_bytes;
  std::int64_t outputs_, elements_ = 1, parts_ = 1;
  std::int64_t row_length_ = 1, column_step_ = 0;  ///< of the last kept axis
  Way way_ = Way::elements;
  /// Of Way::runs: runs of `run_` elements, and runs_ of them run_step_ bytes apart.
  std::int64_t run_ = 1, runs_ = 1, run_step_ = 0;
  std::int64_t partial_sums_ = 0, finished_ = 0;
  bool is_whole_ = false, may_share_ = false;
  const StoredFold* stored_ = nullptr;  ///< of elements that are narrower than type_
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
