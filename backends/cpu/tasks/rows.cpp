// Norms and softmax: kernels that take one row after another.
#include "../elementwise/elementwise.hpp"
#include "../integer_math.hpp"
#include "../matmul/tiled_values.hpp"
#include "lanes.hpp"
#include "real.hpp"

#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/softmax.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tenon::cpu {
namespace {

/// The arguments of a row's kernel: weights are null where the op has none.
template <class T>
struct Row {
  const T* x;
  std::array<const T*, 2> weights;
  T* y;
  std::int64_t size;
};

/// Calls body(row) for this thread's rows along `axis`. Rows and weights that are not contiguous or
/// not T go through scratch memory of the thread, some adjacent ones at once; so do rows that are written as tiles, which are
/// f32.
template <class T, class Body>
class RowTask final : public PartwiseTask {
 public:
  RowTask(const Step& step, int axis, Compiler& compiler, Body body)
      : x_(step.inputs[0]),
        y_(step.output),
        x_lanes_(x_, axis),
        y_lanes_(is_tiled(y_) ? x_ : y_, axis),
        body_(std::move(body)) {
    bool direct = is_direct();
    for (std::size_t i = 1; i < step.inputs.size(); ++i) {
      weights_.push_back(step.inputs[i]);
      weight_lanes_.emplace_back(step.inputs[i], 0);
      direct = direct && weight_lanes_.back().is_direct();
    }
    if (is_tiled(y_)) compiler.working_memory(x_lanes_.size() * 4);
    if (direct) return;
    lie_close_ = x_lanes_.lie_close() && y_lanes_.lie_close() && !is_direct();
    row_bytes_ = x_lanes_.size() * static_cast<std::int64_t>(sizeof(T));
    if (!lie_close_) row_bytes_ = round_up(row_bytes_, 64);
    together_ = rows_together();
    scratch_ = compiler.scratch(compiler.threads() * scratch_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const Range lanes = context.share(x_lanes_.count());
    if (lanes.begin >= lanes.end) return;
    std::byte* const own = context.scratch(scratch_) + context.worker.thread * scratch_bytes();
    const std::array<const T*, 2> weights = read_weights(context, own);
    if (is_direct()) {
      run_direct(context, lanes, weights);
    } else {
      run_copied(context, lanes, weights, own + most_weights * row_bytes_);
    }
  }

 private:
  static constexpr std::int64_t most_weights = 2;
  bool is_direct() const noexcept { return x_lanes_.is_direct() && y_lanes_.is_direct(); }
  std::int64_t scratch_bytes() const noexcept {
    return (most_weights + 2 * together_) * row_bytes_;
  }

  /// How many adjacent rows have elements in the same lines of x or y, unless copies of so many are large.
  std::int64_t rows_together() const noexcept {
    constexpr std::int64_t line = 64, most_bytes = 128 << 10;
    const auto wanted = [](const Operand& operand, const Lanes& lanes) {
      const std::int64_t of_line = line / block_bytes(operand.shape.dtype());
      return lanes.is_direct() ? std::int64_t{1} : std::min(lanes.adjacent(), of_line);
    };
    std::int64_t rows = std::max(wanted(x_, x_lanes_), wanted(y_, y_lanes_));
    // Short rows of a narrow type are converted several at a time.
    if (lie_close_)
      rows = std::max(rows, block_elements / std::max<std::int64_t>(x_lanes_.size(), 1));
    return std::clamp<std::int64_t>(most_bytes / std::max<std::int64_t>(row_bytes_, 1), 1, rows);
  }

  std::array<const T*, 2> read_weights(const TaskContext& context, std::byte* own) const noexcept {
    std::array<const T*, 2> result{};
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const auto* weight = context.pointer<const std::byte>(weights_[i]);
      if (!weight_lanes_[i].is_direct()) {
        std::byte* const wide = own + static_cast<std::int64_t>(i) * row_bytes_;
        weight_lanes_[i].read_all(weight, wide);
        weight = wide;
      }
      result[i] = reinterpret_cast<const T*>(weight);
    }
    return result;
  }

  void run_direct(const TaskContext& context, Range lanes,
                  const std::array<const T*, 2>& weights) const noexcept {
    const bool tiled = is_tiled(y_);
    const PreparedRows tiles =
        tiled ? tiles_of(y_, context.pointer<std::byte>(y_)) : PreparedRows();
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    for (std::int64_t i = lanes.begin; i < lanes.end; ++i) {
      std::byte* const to = tiled ? context.working_memory() : y + y_lanes_.offset(i);
      const Row<T> row{reinterpret_cast<const T*>(x + x_lanes_.offset(i)), weights,
                       reinterpret_cast<T*>(to), x_lanes_.size()};
      body_(row);
      if constexpr (std::is_same_v<T, float>) {
        if (tiled) round_row(row.y, tiles, i);
      }
    }
  }

  void run_copied(const TaskContext& context, Range lanes, const std::array<const T*, 2>& weights,
                  std::byte* own) const noexcept {
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    for (std::int64_t i = lanes.begin, count = 0; i < lanes.end; i += count) {
      const bool x_is_turned = x_lanes_.adjacent_from(i) > 1;
      const bool y_is_turned = y_lanes_.adjacent_from(i) > 1;
      count = std::min(together_, lanes.end - i);
      if (x_is_turned) count = std::min(count, x_lanes_.adjacent_from(i));
      if (y_is_turned) count = std::min(count, y_lanes_.adjacent_from(i));
      std::byte* const from = own;
      std::byte* const to = own + count * row_bytes_;
      if (lie_close_) {
        x_lanes_.read_close(x + x_lanes_.offset(i), count, from);
      } else if (x_is_turned) {
        x_lanes_.read_adjacent(x + x_lanes_.offset(i), count, from, row_bytes_);
      }
      for (std::int64_t r = 0; r < count; ++r) {
        std::byte* const row = from + r * row_bytes_;
        if (!x_is_turned && !lie_close_) x_lanes_.read_all(x + x_lanes_.offset(i + r), row);
        body_({reinterpret_cast<const T*>(row), weights, reinterpret_cast<T*>(to + r * row_bytes_),
               x_lanes_.size()});
        if (!y_is_turned && !lie_close_)
          y_lanes_.write_all(to + r * row_bytes_, y + y_lanes_.offset(i + r));
      }
      if (lie_close_) {
        y_lanes_.write_close(to, count, y + y_lanes_.offset(i));
      } else if (y_is_turned) {
        y_lanes_.write_adjacent(to, row_bytes_, count, y + y_lanes_.offset(i));
      }
    }
  }

  Operand x_, y_;
  std::vector<Operand> weights_;
  Lanes x_lanes_, y_lanes_;
  std::vector<Lanes> weight_lanes_;
  Body body_;
  std::int64_t row_bytes_ = 0, together_ = 1, scratch_ = 0;
  bool lie_close_ = false;  ///< rows of x and of y, one behind the other
};

template <class T, class Body>
std::unique_ptr<Task> row_task(const Step& step, int axis, Compiler& compiler, Body body) {
  return std::make_unique<RowTask<T, Body>>(step, axis, compiler, std::move(body));
}

std::optional<std::string> refuses_rows(const Step& step) {
  const Compute computed = compute_type(step.output.shape.dtype());
  for (const Operand& input : step.inputs) {
    if (compute_type(input.shape.dtype()) != computed) return "types that are computed differently";
  }
  return std::nullopt;
}

int last_axis(const Step& step) { return step.inputs[0].shape.rank() - 1; }

bool rows_write_tiles(const Step& step, std::int64_t size) {
  const auto is_direct = [](const Operand& operand) {
    return Lanes(operand, operand.shape.rank() - 1).is_direct();
  };
  return !is_f64(step) && row_size(step.output.shape) == size &&
         std::ranges::all_of(step.inputs, is_direct);
}

/// The sum of term(i), i < count, as eight sums, which the compiler turns into vectors.
template <class Term>
double sum_of(std::int64_t count, Term&& term) noexcept {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) sums[static_cast<std::size_t>(j)] += term(i + j);
  }
  for (std::int64_t j = 0; i < count; ++i, ++j) sums[static_cast<std::size_t>(j)] += term(i);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// y = (x - centre) * scale * weight + bias
void write_normalised(const Row<double>& row, double centre, double scale) noexcept {
  const auto& [weight, bias] = row.weights;
  for (std::int64_t i = 0; i < row.size; ++i) {
    row.y[i] = (row.x[i] - centre) * scale * (weight != nullptr ? weight[i] : 1.0);
  }
  if (bias == nullptr) return;
  for (std::int64_t i = 0; i < row.size; ++i) row.y[i] += bias[i];
}

void rms_norm_f64(const Row<double>& row, double eps) noexcept {
  const double squares = sum_of(row.size, [x = row.x](std::int64_t i) { return x[i] * x[i]; });
  write_normalised(row, 0, 1 / std::sqrt(squares / static_cast<double>(row.size) + eps));
}

void layer_norm_f64(const Row<double>& row, double eps) noexcept {
  const auto count = static_cast<double>(row.size);
  const double mean = sum_of(row.size, [x = row.x](std::int64_t i) { return x[i]; }) / count;
  const double squares =
      sum_of(row.size, [x = row.x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  write_normalised(row, mean, 1 / std::sqrt(squares / count + eps));
}

/// The largest element, or a NaN.
double peak_of(const Row<double>& row) noexcept {
  double peak = 0;
  fold_rows(Compute::f64, Gathering::max, row.x, 0, 1, row.size, &peak);
  return peak;
}

void softmax_f64(const Row<double>& row) noexcept {
  if (row.size == 0) return;
  exp_f64(row.x, peak_of(row), row.y, row.size);
  const double sum = sum_of(row.size, [y = row.y](std::int64_t i) { return y[i]; });
  for (std::int64_t i = 0; i < row.size; ++i) row.y[i] /= sum;
}

void log_softmax_f64(const Row<double>& row) noexcept {
  if (row.size == 0) return;
  const double peak = peak_of(row);
  double sum = 0;
  for (std::int64_t i = 0; i < row.size; i += block_elements) {
    const std::int64_t count = std::min(block_elements, row.size - i);
    std::array<double, block_elements> powers;
    exp_f64(row.x + i, peak, powers.data(), count);
    sum += sum_of(count, [&](std::int64_t j) { return powers[static_cast<std::size_t>(j)]; });
  }
  const double shift = std::log(sum);
  for (std::int64_t i = 0; i < row.size; ++i) row.y[i] = row.x[i] - peak - shift;
}

/// As Columns of elementwise.hpp, with steps in bytes.
struct ColumnsF64 {
  const std::byte* from;
  std::int64_t from_step;
  std::byte* to;
  std::int64_t to_step;
  std::int64_t rows, columns;

  const double* row(std::int64_t i) const noexcept {
    return reinterpret_cast<const double*>(from + i * from_step);
  }
  double* result(std::int64_t i) const noexcept {
    return reinterpret_cast<double*>(to + i * to_step);
  }
};
using ColumnNumbers = std::array<double, column_block>;

/// The sums of sum_of() for each column.
struct ColumnSumsF64 {
  std::array<ColumnNumbers, 8> parts{};

  void add(const double* row, std::int64_t columns, std::int64_t number) noexcept {
    auto& part = parts[static_cast<std::size_t>(number) % parts.size()];
    accumulate_columns(Compute::f64, Gathering::sum, row, columns, 1, 0, part.data());
  }
  void add_to(ColumnNumbers& sums, std::int64_t columns) const noexcept {
    ColumnNumbers all{};
    for (const ColumnNumbers& part : parts) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) all[c] += part[c];
    }
    for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) sums[c] += all[c];
  }
};

void column_peaks(const ColumnsF64& x, ColumnNumbers& peaks) noexcept {
  std::fill_n(peaks.begin(), x.columns, -std::numeric_limits<double>::infinity());
  accumulate_columns(Compute::f64, Gathering::max, x.from, x.columns, x.rows, x.from_step,
                     peaks.data());
}

/// y = e^(x - peak)
void column_powers(const double* x, const ColumnNumbers& peaks, std::int64_t columns,
                   double* y) noexcept {
  arithmetic(Compute::f64, Arithmetic::sub, x, 1, peaks.data(), 1, y, columns);
  exp_f64(y, 0, y, columns);
}

/// With the bits of softmax_f64.
void softmax_columns_f64(const ColumnsF64& x) noexcept {
  ColumnNumbers peaks, sums{};
  column_peaks(x, peaks);
  ColumnSumsF64 parts;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    column_powers(x.row(i), peaks, x.columns, x.result(i));
    parts.add(x.result(i), x.columns, i);
  }
  parts.add_to(sums, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double* const y = x.result(i);
    arithmetic(Compute::f64, Arithmetic::div, y, 1, sums.data(), 1, y, x.columns);
  }
}

/// With the bits of log_softmax_f64.
void log_softmax_columns_f64(const ColumnsF64& x) noexcept {
  ColumnNumbers peaks, powers, sums{};
  column_peaks(x, peaks);
  for (std::int64_t first = 0; first < x.rows; first += block_elements) {
    ColumnSumsF64 parts;
    const std::int64_t last = std::min(first + block_elements, x.rows);
    for (std::int64_t i = first; i < last; ++i) {
      column_powers(x.row(i), peaks, x.columns, powers.data());
      parts.add(powers.data(), x.columns, i - first);
    }
    parts.add_to(sums, x.columns);
  }
  for (std::size_t c = 0; c < static_cast<std::size_t>(x.columns); ++c) sums[c] = std::log(sums[c]);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double* const y = x.result(i);
    arithmetic(Compute::f64, Arithmetic::sub, x.row(i), 1, peaks.data(), 1, y, x.columns);
    arithmetic(Compute::f64, Arithmetic::sub, y, 1, sums.data(), 1, y, x.columns);
  }
}

std::unique_ptr<Task> make_rms_norm(const Step& step, Compiler& compiler) {
  const double eps = step.op.as<RmsNorm>()->eps;
  if (is_f64(step)) {
    return row_task<double>(step, last_axis(step), compiler,
                            [eps](const Row<double>& row) { rms_norm_f64(row, eps); });
  }
  return row_task<float>(step, last_axis(step), compiler,
                         [eps = static_cast<float>(eps)](const Row<float>& row) {
                           rms_norm_row(row.x, row.weights[0], eps, row.y, row.size);
                         });
}

std::unique_ptr<Task> make_layer_norm(const Step& step, Compiler& compiler) {
  const double eps = step.op.as<LayerNorm>()->eps;
  if (is_f64(step)) {
    return row_task<double>(step, last_axis(step), compiler,
                            [eps](const Row<double>& row) { layer_norm_f64(row, eps); });
  }
  return row_task<float>(
      step, last_axis(step), compiler, [eps = static_cast<float>(eps)](const Row<float>& row) {
        layer_norm_row(row.x, row.weights[0], row.weights[1], eps, row.y, row.size);
      });
}

/// Softmax along an axis that is not the last in memory: of several adjacent lanes at once, which are columns.
class ColumnTask final : public PartwiseTask {
 public:
  struct Functions {
    void (*floats)(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept;
    void (*f64)(const ColumnsF64& x) noexcept;
  };

  ColumnTask(const Step& step, int axis, Compiler& compiler, Functions functions)
      : x_(step.inputs[0]),
        y_(step.output),
        x_lanes_(x_, axis),
        y_lanes_(y_, axis),
        x_step_(x_.strides[static_cast<std::size_t>(axis)]),
        y_step_(y_.strides[static_cast<std::size_t>(axis)]),
        functions_(functions) {
    if (!is_computed_as_stored(x_.shape.dtype())) {
      compiler.working_memory(power_bytes(x_lanes_.size()));
    }
  }

  static bool takes(const Step& step, int axis) {
    constexpr std::int64_t most_bytes = 128 << 10;
    const Operand &x = step.inputs[0], &y = step.output;
    const std::int64_t min_columns = x.shape.dtype() == DType::f64 ? 16 : 4;  // fewer: one by one
    return x.shape.dtype() == y.shape.dtype() && !is_tiled(y) &&
           std::min(Lanes(x, axis).adjacent(), Lanes(y, axis).adjacent()) >= min_columns &&
           (is_computed_as_stored(x.shape.dtype()) || power_bytes(x.shape[axis]) <= most_bytes);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range lanes = context.share(x_lanes_.count());
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    for (std::int64_t i = lanes.begin, count = 0; i < lanes.end; i += count) {
      count = std::min(
          {lanes.end - i, x_lanes_.adjacent_from(i), y_lanes_.adjacent_from(i), column_block});
      const std::byte* const from = x + x_lanes_.offset(i);
      std::byte* const to = y + y_lanes_.offset(i);
      if (x_.shape.dtype() == DType::f64) {
        functions_.f64({from, x_step_, to, y_step_, x_lanes_.size(), count});
      } else {
        functions_.floats({x_.shape.dtype(), from, x_step_, x_lanes_.size(), count}, to, y_step_,
                          reinterpret_cast<float*>(context.working_memory()));
      }
    }
  }

 private:
  /// Of a narrow type: its powers of e are kept as f32.
  static constexpr std::int64_t power_bytes(std::int64_t rows) noexcept {
    return rows * column_block * static_cast<std::int64_t>(sizeof(float));
  }

  Operand x_, y_;
  Lanes x_lanes_, y_lanes_;
  std::int64_t x_step_, y_step_;  ///< bytes
  Functions functions_;
};

std::unique_ptr<Task> make_softmax(const Step& step, Compiler& compiler) {
  const auto axis = static_cast<int>(step.op.as<Softmax>()->axis);
  if (ColumnTask::takes(step, axis)) {
    return std::make_unique<ColumnTask>(
        step, axis, compiler, ColumnTask::Functions{softmax_columns, softmax_columns_f64});
  }
  if (is_f64(step)) return row_task<double>(step, axis, compiler, softmax_f64);
  return row_task<float>(step, axis, compiler,
                         [](const Row<float>& row) { softmax_row(row.x, row.y, row.size); });
}

std::unique_ptr<Task> make_log_softmax(const Step& step, Compiler& compiler) {
  const auto axis = static_cast<int>(step.op.as<LogSoftmax>()->axis);
  if (ColumnTask::takes(step, axis)) {
    return std::make_unique<ColumnTask>(
        step, axis, compiler, ColumnTask::Functions{log_softmax_columns, log_softmax_columns_f64});
  }
  if (is_f64(step)) return row_task<double>(step, axis, compiler, log_softmax_f64);
  return row_task<float>(step, axis, compiler,
                         [](const Row<float>& row) { log_softmax_row(row.x, row.y, row.size); });
}

}  // namespace

extern const Kernel rms_norm_kernel, layer_norm_kernel, softmax_kernel, log_softmax_kernel;
constinit const Kernel rms_norm_kernel{op_def<RmsNorm>, refuses_rows, make_rms_norm,
                                       rows_write_tiles};
constinit const Kernel layer_norm_kernel{op_def<LayerNorm>, refuses_rows, make_layer_norm,
                                         rows_write_tiles};
constinit const Kernel softmax_kernel{op_def<Softmax>, refuses_rows, make_softmax};
constinit const Kernel log_softmax_kernel{op_def<LogSoftmax>, refuses_rows, make_log_softmax};

}  // namespace tenon::cpu
