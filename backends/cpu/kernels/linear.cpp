#include "../matmul/dense_blocking.hpp"
#include "../matmul/matmul.hpp"
#include "../matmul/merged_linear.hpp"
#include "../matmul/tiled_values.hpp"
#include "../task.hpp"

#include <tenon/ops/linear.hpp>

#include <algorithm>
#include <array>
#include <memory>
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
  // Where both are tiled nobody knows how many rows are none; results of these are not read.
  return {is_tiled(rows) ? tiled_rows(rows) : row_count(rows.shape), w.shape[1], w.shape[0]};
}

const Linear& linear_of(const Step& step) {
  const auto* merged = step.op.as<MergedLinear>();
  return merged != nullptr ? merged->linear : *step.op.as<Linear>();
}

Activation activation_of(const Step& step, bool exact) {
  const auto* merged = step.op.as<MergedLinear>();
  if (merged == nullptr) return {};
  const auto [function, parameters] = merged->activation;
  const bool is_fast = !exact && function == Unary::gelu;
  return {unary_rows_kernel(), is_fast ? Unary::fast_gelu : function, parameters};
}

class LinearTask final : public Task {
 public:
  LinearTask(const Step& step, Compiler& compiler)
      : shape_(linear_shape(step)),
        x_(step.inputs[0]),
        weights_(step.inputs[1]),
        y_(step.output),
        activation_(activation_of(step, compiler.exact())) {
    const Linear& op = linear_of(step);
    std::size_t next = 2;
    if (op.has_bias) bias_ = step.inputs[next++];
    if (op.has_residual) residual_ = step.inputs[next];
    compiler.pack(weights_);
    if (is_tiled(x_)) {
      form_ = RowForm::bf16;
      return;
    }
    x_step_ = *even_row_step(x_);
    if (!compiler.exact()) {
      form_ = PreparedRows::form_for(weights_.shape.dtype(), shape_.rows, shape_.inputs);
    }
    if (form_) {
      compiler.prepare_rows_of(x_, *form_, shape_.rows, shape_.inputs);
    } else {
      compiler.working_memory(static_cast<std::int64_t>(dense_scratch_bytes(
          {weights_.shape.dtype(), shape_.rows, shape_.outputs, shape_.inputs}, false)));
    }
  }

  void run(const TaskContext& context) const noexcept override {
    std::array<Product, most_joined> products;
    std::array<std::int64_t, most_joined + 1> ends{};  // of the items before each
    const std::size_t count = 1 + joined_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const LinearTask& task = i == 0 ? *this : *joined_[i - 1];
      task.prepare(context, products[i]);
      ends[i + 1] = ends[i] + linear_items(products[i].args);
    }
    context.worker.share(ends[count], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t first = std::max(begin, ends[i]), last = std::min(end, ends[i + 1]);
        if (first < last) linear_range(products[i].args, first - ends[i], last - ends[i]);
      }
    });
  }

  /// Products of prepared rows: others have copies in this thread's working memory.
  bool join(std::unique_ptr<Task>& next) override {
    auto* const other = dynamic_cast<LinearTask*>(next.get());
    if (other == nullptr || !form_ || !other->form_) return false;
    if (1 + joined_.size() == most_joined) return false;
    joined_.emplace_back(other);
    static_cast<void>(next.release());
    return true;
  }

 private:
  static constexpr std::size_t most_joined = 4;

  struct Product {
    LinearArgs args;
    PreparedRows rows, y_tiles;
    RowCopy copy;
  };

  void prepare(const TaskContext& context, Product& product) const noexcept {
    LinearArgs& args = product.args;
    args.weights = context.packed_weights(weights_);
    if (form_) {
      std::byte* const memory =
          is_tiled(x_) ? context.pointer<std::byte>(x_) : context.prepared(shape_.rows);
      product.rows = PreparedRows(*form_, shape_.rows, shape_.inputs, memory);
      args.prepared = &product.rows;
    } else {
      args.x = context.pointer<const float>(x_);
      args.x_stride = x_step_;
      args.scratch = context.working_memory();
      args.copy = &product.copy;
    }
    args.rows = shape_.rows;
    args.activation = activation_;
    if (is_tiled(y_)) {
      product.y_tiles = tiles_of(y_, context.pointer<std::byte>(y_));
      args.y_tiles = &product.y_tiles;
    } else {
      args.y = context.pointer<float>(y_);
      args.y_stride = shape_.outputs;
    }
    if (bias_) args.bias = context.pointer<const float>(*bias_);
    if (residual_) {
      args.residual = context.pointer<const float>(*residual_);
      args.residual_stride = shape_.outputs;
    }
  }

  LinearShape shape_;
  Operand x_, weights_, y_;
  Activation activation_;
  std::optional<Operand> bias_, residual_;
  std::optional<RowForm> form_;  // of prepared rows; none: f32 as they are
  std::int64_t x_step_ = 0;
  std::vector<std::unique_ptr<LinearTask>> joined_;  // whose work is shared with this one's
};

std::optional<std::string> refuses(const Step& step) {
  const Linear& op = linear_of(step);
  if (auto why = needs_dtype(step.inputs[0], DType::f32, "x")) return why;
  const Operand& weights = step.inputs[1];
  if (weights.place.kind != Place::Kind::constant) return "w is no constant";
  if (!PackedWeights::is_packable(weights.shape.dtype())) {
    return "no packed form for " + std::string(tenon::name(weights.shape.dtype()));
  }
  if (!weights.is_contiguous()) return "w is strided";
  if (auto why = needs_dense_rows(step.inputs[0], "x")) return why;
  if (!even_row_step(step.inputs[0])) return "rows of x lie unevenly";
  std::size_t next = 2;
  if (op.has_bias) {
    if (auto why = needs_dtype(step.inputs[next], DType::f32, "bias")) return why;
    if (auto why = needs_dense(step.inputs[next++], "bias")) return why;
  }
  if (op.has_residual) {
    if (auto why = needs_dense(step.inputs[next], "residual")) return why;
  }
  return std::nullopt;
}

bool writes_tiles(const Step& step, std::int64_t row_size) {
  const auto [rows, inputs, outputs] = linear_shape(step);
  return row_size == outputs && outputs % 32 == 0 && !linear_of(step).has_residual &&
         PreparedRows::form_for(step.inputs[1].shape.dtype(), rows, inputs) == RowForm::bf16;
}

std::unique_ptr<Task> make(const Step& step, Compiler& compiler) {
  return std::make_unique<LinearTask>(step, compiler);
}

}  // namespace

extern const Kernel linear_kernel, merged_linear_kernel;
constinit const Kernel linear_kernel{op_def<Linear>, refuses, make, writes_tiles};
constinit const Kernel merged_linear_kernel{op_def<MergedLinear>, refuses, make, writes_tiles};

}  // namespace tenon::cpu
