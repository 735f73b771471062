#include "../integer_math.hpp"
#include "../matmul/dense_blocking.hpp"
#include "../matmul/matmul.hpp"
#include "../matmul/merged_linear.hpp"
#include "../matmul/pack_rows.hpp"
#include "../matmul/tiled_values.hpp"
#include "../task.hpp"
#include "extreme.hpp"

#include <tenon/ops/linear.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace tenon::cpu {
namespace {

struct LinearShape {
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
};

LinearShape linear_shape(const Step& step) {
  const Operand &x = step.inputs[0], &w = step.inputs[1];
  const Operand& rows = is_tiled(x) ? step.output : x;
  // Where both are tiled, padding rows at the end are computed, too; their results are not read.
  return {is_tiled(rows) ? tiled_rows(rows) : row_count(rows.shape), w.shape[1], w.shape[0]};
}

const Linear& linear_of(const Step& step) {
  if (const auto* merged = step.op.as<MergedLinear>()) return merged->linear;
  if (const auto* argmax = step.op.as<LinearArgmax>()) return argmax->linear;
  return *step.op.as<Linear>();
}

Activation activation_of(const Step& step, bool exact) {
  const auto* merged = step.op.as<MergedLinear>();
  if (merged == nullptr) return {};
  const auto [function, parameters] = merged->activation;
  const bool is_fast = !exact && function == Unary::gelu;
  return {unary_rows_kernel(), is_fast ? Unary::fast_gelu : function, parameters};
}

/// A step's operands and precision, without its output.
class LinearInputs {
 public:
  struct Prepared {
    LinearArgs args;
    PreparedRows rows;
  };

  LinearInputs(const Step& step, Compiler& compiler)
      : shape_(linear_shape(step)), x_(step.inputs[0]), weights_(step.inputs[1]) {
    const Linear& op = linear_of(step);
    std::size_t next = 2;
    if (op.has_bias) bias_ = step.inputs[next++];
    if (op.has_residual) {
      residual_ = step.inputs[next];
      residual_step_ = *even_row_step(*residual_);
    }
    packed_ = compiler.prepare(weights_, pack_rows());
    if (is_tiled(x_)) {
      form_ = RowForm::bf16;
      return;
    }
    x_step_ = *even_row_step(x_);
    blocking_ =
        dense_blocking({weights_.shape.dtype(), shape_.rows, shape_.outputs, shape_.inputs});
    if (!compiler.exact()) {
      form_ = PreparedRows::form_for(weights_.shape.dtype(), shape_.rows, shape_.inputs);
    }
    if (form_) compiler.prepare_rows_of(x_, *form_, shape_.rows, shape_.inputs);
  }

  const LinearShape& shape() const noexcept { return shape_; }
  bool are_prepared() const noexcept { return form_.has_value(); }
  const DenseBlocking& blocking() const noexcept { return blocking_; }
  /// Bytes at LinearArgs::scratch, for `outputs` rows of W at once.
  std::int64_t scratch_bytes(std::int64_t outputs) const {
    if (form_) return 0;
    return static_cast<std::int64_t>(
        dense_scratch_bytes({weights_.shape.dtype(), shape_.rows, outputs, shape_.inputs}, false));
  }

  void prepare(const TaskContext& context, Prepared& product) const noexcept {
    LinearArgs& args = product.args;
    args.weights = &context.constant<PackedWeights>(packed_);
    if (form_) {
      std::byte* const memory =
          is_tiled(x_) ? context.pointer<std::byte>(x_) : context.prepared(shape_.rows);
      product.rows = PreparedRows(*form_, shape_.rows, shape_.inputs, memory);
      args.prepared = &product.rows;
    } else {
      args.x = context.pointer<const float>(x_);
      args.x_stride = x_step_;
    }
    args.rows = shape_.rows;
    if (bias_) args.bias = context.pointer<const float>(*bias_);
    if (residual_) {
      args.residual = context.pointer<const float>(*residual_);
      args.residual_stride = residual_step_;
    }
  }

 private:
  LinearShape shape_;
  Operand x_, weights_;
  PreparedIndex packed_;
  std::optional<Operand> bias_, residual_;
  std::optional<RowForm> form_;  // of prepared rows; none: f32 as they are
  std::int64_t x_step_ = 0, residual_step_ = 0;
  DenseBlocking blocking_{};  // where x is not tiled
};

class LinearTask final : public Task {
 public:
  LinearTask(const Step& step, Compiler& compiler)
      : inputs_(step, compiler),
        y_(step.output),
        activation_(activation_of(step, compiler.exact())) {
    compiler.working_memory(inputs_.scratch_bytes(inputs_.shape().outputs));
  }

  void run(const TaskContext& context) const noexcept override {
    std::array<Product, max_joined> products;
    std::array<std::int64_t, max_joined + 1> ends{};  // of the items before each
    const std::size_t count = 1 + joined_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const LinearTask& task = i == 0 ? *this : *joined_[i - 1];
      task.prepare(context, products[i]);
      ends[i + 1] = ends[i] + linear_items(products[i].args);
    }
    context.worker.share(
        ends[count], grain(ends[count]), [&](std::int64_t begin, std::int64_t end) {
          for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t first = std::max(begin, ends[i]), last = std::min(end, ends[i + 1]);
            if (first < last) linear_range(products[i].args, first - ends[i], last - ends[i]);
          }
        });
  }

  /// Only for prepared rows: others are copied to this thread's working memory.
  bool join(std::unique_ptr<Task>& next) override {
    auto* const other = dynamic_cast<LinearTask*>(next.get());
    if (other == nullptr || !inputs_.are_prepared() || !other->inputs_.are_prepared()) return false;
    if (1 + joined_.size() == max_joined) return false;
    joined_.emplace_back(other);
    static_cast<void>(next.release());
    return true;
  }

 private:
  static constexpr std::size_t max_joined = 4;

  /// Items of small f32 products are taken several at a time.
  std::int64_t grain(std::int64_t items) const noexcept {
    constexpr std::int64_t min_products = 1 << 15;  // in a microsecond
    const LinearShape& shape = inputs_.shape();
    const std::int64_t products = shape.rows * shape.inputs * shape.outputs;
    if (inputs_.are_prepared() || products <= 0) return 1;
    return std::clamp<std::int64_t>(items * min_products / products, 1,
                                    std::max<std::int64_t>(items, 1));
  }

  struct Product : LinearInputs::Prepared {
    PreparedRows y_tiles;
    RowCopy copy;
  };

  void prepare(const TaskContext& context, Product& product) const noexcept {
    inputs_.prepare(context, product);
    LinearArgs& args = product.args;
    args.scratch = context.working_memory();
    args.copy = &product.copy;
    args.activation = activation_;
    args.blocking = inputs_.are_prepared() ? nullptr : &inputs_.blocking();
    if (is_tiled(y_)) {
      product.y_tiles = tiles_of(y_, context.pointer<std::byte>(y_));
      args.y_tiles = &product.y_tiles;
    } else {
      args.y = context.pointer<float>(y_);
      args.y_stride = inputs_.shape().outputs;
    }
  }

  LinearInputs inputs_;
  Operand y_;
  Activation activation_;
  std::vector<std::unique_ptr<LinearTask>> joined_;  // computed in one loop with this one
};

/// Each thread keeps the best of the elements that it computes; the last thread to finish reduces
/// them. Measured on two threads at one row, this saves 50 to 100 us of 6.6 ms at W [262144, 640]
/// of q8_0, and 3 to 7 us of 0.6 ms at [49152, 576], compared to storing all sums and searching
/// them on both threads.
class LinearArgmaxTask final : public Task {
  using Best = Extreme<float, true>;

 public:
  LinearArgmaxTask(const Step& step, Compiler& compiler)
      : inputs_(step, compiler), y_(step.output), columns_(step.op.as<LinearArgmax>()->columns) {
    const std::int64_t rows = inputs_.shape().rows;
    at_once_ = std::min(max_at_once, max_sums / std::max<std::int64_t>(rows, 1)) / unit * unit;
    sums_bytes_ = rows * at_once_ * static_cast<std::int64_t>(sizeof(float));
    compiler.working_memory(sums_bytes_ + inputs_.scratch_bytes(at_once_));
    found_ = compiler.scratch(compiler.threads() * rows * static_cast<std::int64_t>(sizeof(Best)));
    finished_ = compiler.zeroed_scratch(sizeof(std::int32_t));
  }

  void run(const TaskContext& context) const noexcept override {
    LinearInputs::Prepared product;
    inputs_.prepare(context, product);
    product.args.y = reinterpret_cast<float*>(context.working_memory());
    product.args.y_stride = at_once_;
    product.args.scratch = context.working_memory() + sums_bytes_;
    std::array<Best, LinearArgmax::max_rows> best;
    context.worker.share(ceil_div(columns_, unit), 1, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t last = std::min(end * unit, columns_);
      for (std::int64_t column = begin * unit; column < last; column += at_once_) {
        look_at(product.args, {column, std::min(column + at_once_, last)}, best.data());
      }
    });
    const std::int64_t rows = inputs_.shape().rows;
    auto* const found = reinterpret_cast<Best*>(context.scratch(found_));
    std::copy_n(best.begin(), rows, found + context.worker.thread * rows);
    const std::atomic_ref finished(*reinterpret_cast<std::int32_t*>(context.zeroed(finished_)));
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < context.worker.threads) return;
    finished.store(0, std::memory_order_relaxed);  // for the next run in a loop
    write_best(found, context.worker.threads, context.pointer<std::byte>(y_));
  }

 private:
  static constexpr std::int64_t unit = 2 * panel_rows;  // the width of a tile
  static constexpr std::int64_t max_at_once = 1024;
  static constexpr std::int64_t max_sums = 8192;  // floats, which stay in L1
  static_assert(max_sums / LinearArgmax::max_rows >= unit);

  /// Computes some columns of all rows and adds them to each row's best.
  static void look_at(LinearArgs args, Range columns, Best* best) noexcept {
    const PackedWeights weights = args.weights->rows(columns.begin, columns.end);
    args.weights = &weights;
    if (args.bias != nullptr) args.bias += columns.begin;
    if (args.residual != nullptr) args.residual += columns.begin;
    linear_range(args, 0, linear_items(args));
    for (std::int64_t row = 0; row < args.rows; ++row) {
      best[row].add(args.y + row * args.y_stride, columns.begin, columns.end - columns.begin);
    }
  }

  /// `found`: every row's best, thread after thread.
  void write_best(const Best* found, int threads, std::byte* y) const noexcept {
    const std::int64_t rows = inputs_.shape().rows;
    const DType dtype = y_.shape.dtype();
    for (std::int64_t row = 0; row < rows; ++row) {
      Best best;
      for (int thread = 0; thread < threads; ++thread) best.add(found[thread * rows + row]);
      store_int64(dtype, y + row * block_bytes(dtype), best.index());
    }
  }

  LinearInputs inputs_;
  Operand y_;
  std::int64_t columns_;
  std::int64_t at_once_ = 0;  // columns
  std::int64_t sums_bytes_ = 0, found_ = 0, finished_ = 0;
};

std::optional<std::string> refuses_linear(const Step& step) {
  const Linear& op = linear_of(step);
  if (auto why = needs_dtype(step.inputs[0], DType::f32, "x")) return why;
  const Operand& weights = step.inputs[1];
  if (weights.place.kind != Place::Kind::constant) return "w is no constant";
  if (!PackedWeights::is_packable(weights.shape.dtype())) {
    return "no packed form for " + std::string(tenon::name(weights.shape.dtype()));
  }
  if (auto why = needs_even_rows(step.inputs[0], "x")) return why;
  std::size_t next = 2;
  if (op.has_bias) {
    if (auto why = needs_dtype(step.inputs[next], DType::f32, "bias")) return why;
    if (auto why = needs_dense(step.inputs[next++], "bias")) return why;
  }
  if (op.has_residual) {
    if (auto why = needs_even_rows(step.inputs[next], "residual")) return why;
  }
  return std::nullopt;
}

bool linear_writes_tiles(const Step& step, std::int64_t row_size) {
  const auto [rows, inputs, outputs] = linear_shape(step);
  return row_size == outputs && outputs % 32 == 0 && !linear_of(step).has_residual &&
         PreparedRows::form_for(step.inputs[1].shape.dtype(), rows, inputs) == RowForm::bf16;
}

}  // namespace

extern const Kernel linear_kernel, merged_linear_kernel, linear_argmax_kernel;
constinit const Kernel linear_kernel{op_def<Linear>, refuses_linear, make_task<LinearTask>,
                                     linear_writes_tiles};
constinit const Kernel merged_linear_kernel{op_def<MergedLinear>, refuses_linear,
                                            make_task<LinearTask>, linear_writes_tiles};
constinit const Kernel linear_argmax_kernel{op_def<LinearArgmax>, refuses_linear,
                                            make_task<LinearArgmaxTask>};

}  // namespace tenon::cpu
