#include "integer_product.hpp"

#include "../convolution/filter.hpp"
#include "../elementwise/unary_of.hpp"
#include "../task.hpp"
#include "int8_kernels.hpp"
#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/quantize_linear.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tenon {

TENON_DEFINE_OP(integer_product, IntegerProduct);

Shape IntegerProduct::infer(std::span<const Shape> in) const {
  const Shape sums = conv.infer(in.first(static_cast<std::size_t>(2 + zero_points)));
  if (stage_count == 0) return sums;
  const Stage& last = stages[stage_count - 1];
  if (last.kind == Kind::bias) return sums;
  if (last.kind != Kind::round) return sums.with_dtype(DType::f32);
  return sums.with_dtype(last.has_zero ? in.back().dtype() : DType::u8);
}

namespace cpu {

using namespace lowering;
namespace {

using Kind = IntegerProduct::Kind;

/// [..., K] as images of K channels and one pixel.
Operand as_pixels(const Operand& operand, std::int64_t rows, std::int64_t columns,
                  std::int64_t row_step, std::int64_t column_step) {
  Operand image = operand;
  image.shape = Shape({rows, columns, 1, 1}, operand.shape.dtype());
  image.strides = {row_step, column_step, row_step, row_step};
  return image;
}

Operand rows_as_pixels(const Operand& operand) {
  const std::int64_t unit = block_bytes(operand.shape.dtype());
  return as_pixels(operand, row_count(operand.shape), row_size(operand.shape),
                   *even_row_step(operand) * unit, unit);
}

/// The right matrix of a product, [K, N] or a vector, as a filter [N, K, 1, 1].
Operand columns_as_filter(const Operand& b) {
  if (b.shape.rank() == 1) return as_pixels(b, 1, b.shape[0], 0, b.strides[0]);
  return as_pixels(b, b.shape[1], b.shape[0], b.strides[1], b.strides[0]);
}

/// The result of a product of matrices as images: a vector b gives one output.
Operand output_as_pixels(const Operand& y, std::int64_t outputs) {
  const std::int64_t unit = block_bytes(y.shape.dtype());
  const std::int64_t rows = outputs == 0 ? 0 : y.shape.elements() / outputs;
  return as_pixels(y, rows, outputs, outputs * unit, unit);
}

/// Follows the steps behind one product.
class Chain {
 public:
  explicit Chain(const Step& product) : first_(product), step_(as_integer_product(product)) {
    op_ = *step_.op.as<IntegerProduct>();
    outputs_ = step_.inputs[1].shape[0];
    const bool is_matmul = product.op.as<MatmulInteger>() != nullptr;
    const bool has_columns = !is_matmul || product.inputs[1].shape.rank() > 1;
    if (has_columns) axis_ = is_matmul ? product.output.shape.rank() - 1 : 1;
  }

  /// Takes a step over if it can; `value`: what it reads of the chain.
  bool take(const Step& next, const Operand& value) {
    const bool is_elementwise = next.kind == Step::Kind::op && !ends_ &&
                                same_sizes(next.output.shape, value.shape) &&
                                op_.stage_count < IntegerProduct::max_stages;
    if (!is_elementwise || !take_op(next, value)) return false;
    step_.op = OpInstance(op_);
    step_.output = first_.op.as<MatmulInteger>() != nullptr
                       ? output_as_pixels(next.output, outputs_)
                       : next.output;
    step_.value = next.value;
    ++taken_;
    return true;
  }

  const Step& step() const noexcept { return step_; }
  int taken() const noexcept { return taken_; }

 private:
  static bool same_sizes(const Shape& a, const Shape& b) {
    return std::ranges::equal(a.dims(), b.dims());
  }

  bool take_op(const Step& next, const Operand& value) {
    if (next.op.as<Add>() != nullptr) return take_add(next, value);
    if (const auto* dequantize = next.op.as<DequantizeLinear>()) {
      if (scaled_ || next.inputs.size() != 2) return false;
      scaled_ = push({Kind::factor, false, 0, 0}, along(next.inputs[1], dequantize->axis));
      return scaled_;
    }
    if (const auto* quantize = next.op.as<QuantizeLinear>()) return take_round(next, *quantize);
    const std::optional<UnaryCall> call = unary_of(next);
    return call && take_limit(*call);
  }

  bool take_add(const Step& next, const Operand& value) {
    const Operand& other = next.inputs[next.inputs[0] == value ? 1 : 0];
    if (scaled_ && !has_room()) return false;
    const Kind kind = scaled_ ? Kind::add : Kind::bias;
    f32_stages_ += scaled_ ? 1 : 0;
    return push({kind, false, 0, 0}, broadcast(other, value.shape.rank()));
  }

  bool take_limit(const UnaryCall& call) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    IntegerProduct::Stage stage{Kind::limit, false, 0, infinity};
    if (call.function == Unary::relu6) stage.high = 6;
    if (call.function == Unary::clamp) {
      stage.low = call.parameters.p;
      stage.high = call.parameters.q;
    }
    const bool is_limit = call.function == Unary::relu || call.function == Unary::relu6 ||
                          call.function == Unary::clamp;
    if (!is_limit || !scaled_ || !has_room()) return false;
    ++f32_stages_;
    op_.stages[op_.stage_count++] = stage;
    return true;
  }

  bool take_round(const Step& next, const QuantizeLinear& quantize) {
    const bool has_zero = next.inputs.size() > 2;
    if (!scaled_ || (!has_zero && quantize.dtype != DType::u8)) return false;
    const std::optional<Operand> scale = along(next.inputs[1], quantize.axis);
    if (has_zero) {
      const std::optional<Operand> zero = along(next.inputs[2], quantize.axis);
      if (!scale || !zero) return false;
      push({Kind::round, true, 0, 0}, scale);
      step_.inputs.push_back(*zero);
      ends_ = true;
      return true;
    }
    ends_ = push({Kind::round, false, 0, 0}, scale);
    return ends_;
  }

  bool has_room() const { return f32_stages_ < IntegerProduct::max_f32_stages; }

  bool push(const IntegerProduct::Stage& stage, const std::optional<Operand>& operand) {
    if (!operand) return false;
    op_.stages[op_.stage_count++] = stage;
    step_.inputs.push_back(*operand);
    return true;
  }

  /// A scale or zero point, where it is one number or runs along the outputs.
  std::optional<Operand> along(const Operand& parameter, std::int64_t axis) const {
    if (parameter.shape.elements() == 1) return one_number(parameter);
    if (axis != axis_) return std::nullopt;
    return parameter;
  }

  /// An added operand, likewise, by numpy's rules for results of `rank`.
  std::optional<Operand> broadcast(const Operand& operand, int rank) const {
    if (operand.shape.elements() == 1) return one_number(operand);
    const int own = axis_ - (rank - operand.shape.rank());
    if (axis_ < 0 || own < 0 || operand.shape.elements() != operand.shape[own] ||
        operand.shape[own] != outputs_) {
      return std::nullopt;
    }
    Operand row = operand;
    row.shape = Shape({outputs_}, operand.shape.dtype());
    row.strides = {operand.strides[static_cast<std::size_t>(own)]};
    return row;
  }

  static Operand one_number(const Operand& operand) {
    Operand number = operand;
    number.shape = Shape(std::span<const std::int64_t>(), operand.shape.dtype());
    number.strides = {};
    return number;
  }

  const Step& first_;
  Step step_;
  IntegerProduct op_;
  std::int64_t outputs_ = 0;
  int axis_ = -1;  ///< of the sums, along which outputs lie; -1: there is one output
  int taken_ = 0, f32_stages_ = 0;
  bool scaled_ = false, ends_ = false;
};

bool is_integer_product(const Step& step) {
  return step.kind == Step::Kind::op &&
         (step.op.as<Conv2dInteger>() != nullptr || step.op.as<MatmulInteger>() != nullptr);
}

class Merger {
 public:
  Merger(std::vector<Step>& steps, std::span<const Operand> leaves)
      : steps_(steps), values_(trace_values(steps, leaves)), gone_(steps.size(), false) {}

  void run(std::vector<std::string>& notes) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (is_integer_product(steps_[i])) merge_from(i, notes);
    }
    std::size_t i = 0;
    std::erase_if(steps_, [&](const Step&) { return gone_[i++]; });
  }

 private:
  void merge_from(std::size_t product, std::vector<std::string>& notes) {
    Chain chain(steps_[product]);
    Step accepted = chain.step();
    std::size_t last = product;
    std::vector<std::size_t> path;
    std::vector<std::size_t> readers(accepted.inputs.size(), product);  // of each input
    while (const std::optional<std::size_t> next = only_user(last)) {
      if (!chain.take(steps_[*next], steps_[last].output)) break;
      readers.resize(chain.step().inputs.size(), *next);
      if (!may_stand_at(*next, product, chain.step(), readers)) break;
      path.push_back(last);
      last = *next;
      accepted = chain.step();
    }
    for (const std::size_t step : path) gone_[step] = true;
    notes.push_back(path.empty() ? fmt::format("{}: int8", accepted.value)
                                 : fmt::format("{}: int8, {} steps on its sums merged",
                                               accepted.value, path.size()));
    steps_[last] = std::move(accepted);
  }

  std::optional<std::size_t> only_user(std::size_t step) const {
    const WrittenValue& value = values_[step];
    if (!value.is_private || value.uses.size() != 1) return std::nullopt;
    const std::size_t user = value.uses[0].step;
    if (gone_[user] || steps_[user].kind != Step::Kind::op) return std::nullopt;
    return user;
  }

  /// Whether the operands of `step`, which `readers` read before, are still there at `place`. The
  /// image may share memory with the result: the kernel then reads it before it writes.
  bool may_stand_at(std::size_t place, std::size_t product, const Step& step,
                    std::span<const std::size_t> readers) const {
    for (std::size_t input = 0; input < step.inputs.size(); ++input) {
      const Operand& operand = step.inputs[input];
      if (input > 0 && overlap(operand, step.output)) return false;
      for (std::size_t between = readers[input] + 1; between < place; ++between) {
        const bool is_merged = gone_[between] || is_on_path(product, between, place);
        if (!is_merged && writes_to(steps_[between], access_of(operand))) return false;
      }
    }
    return true;
  }

  /// Whether step `between` is one of the chain from `product` to `place`.
  bool is_on_path(std::size_t product, std::size_t between, std::size_t place) const {
    for (std::size_t at = product; at < place; at = values_[at].uses[0].step) {
      if (at == between) return true;
    }
    return false;
  }

  std::vector<Step>& steps_;
  std::vector<WrittenValue> values_;
  std::vector<bool> gone_;
};

}  // namespace

std::optional<std::string> refuses_integer_product(const Step& step) {
  std::int64_t products = 0;
  if (const auto* conv = step.op.as<Conv2dInteger>()) {
    const Shape& w = step.inputs[1].shape;
    products = w[1] * w[2] * w[3];
    const FilterShape filter{w[0], w[1], w[2], w[3], conv->groups};
    if (filter.is_depthwise() && products > max_int8_taps) return "it has too many taps";
  } else {
    const Operand &a = step.inputs[0], &b = step.inputs[1];
    if (b.shape.rank() > 2) return "its right operand is a batch of matrices";
    if (auto why = needs_even_rows(a, "its left operand")) return why;
    products = row_size(a.shape);
  }
  // The sum of an output's weights has to be exact in f32.
  constexpr std::int64_t max_products = std::int64_t{1} << 17;
  if (products >= max_products) return "it sums too much";
  return std::nullopt;
}

Step as_integer_product(const Step& step) {
  if (step.op.as<IntegerProduct>() != nullptr) return step;
  Step result = step;
  IntegerProduct op;
  op.zero_points = static_cast<int>(step.inputs.size()) - 2;
  if (const auto* conv = step.op.as<Conv2dInteger>()) {
    op.conv = *conv;
  } else {
    result.inputs[0] = rows_as_pixels(step.inputs[0]);
    result.inputs[1] = columns_as_filter(step.inputs[1]);
    result.output = output_as_pixels(step.output, result.inputs[1].shape[0]);
  }
  result.op = OpInstance(op);
  return result;
}

void note_dequantized_products(std::span<const Step> steps, std::span<const Operand> leaves,
                               std::vector<std::string>& notes) {
  const auto is_made_of_codes = [](const Step& step) {
    return step.op.as<DequantizeLinear>() != nullptr && step.inputs[0].shape.dtype() != DType::i32;
  };
  if (std::ranges::none_of(steps, is_made_of_codes)) return;
  const std::vector<WrittenValue> values = trace_values(steps, leaves);
  std::vector<int> dequantized(steps.size());
  for (std::size_t v = 0; v < steps.size(); ++v) {
    if (!is_made_of_codes(steps[v])) continue;
    for (const WrittenValue::Use& use : values[v].uses) {
      if (use.input < 2) ++dequantized[use.step];
    }
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const OpInstance& op = steps[i].op;
    const bool is_product =
        op.as<Conv2d>() != nullptr || op.as<Linear>() != nullptr || op.as<Matmul>() != nullptr;
    if (!is_product || dequantized[i] < 2) continue;
    notes.push_back(
        fmt::format("{}: f32, though its operands are codes; optimize() makes integers of some",
                    steps[i].value));
  }
}

void merge_integer_products(std::vector<Step>& steps, std::span<const Operand> leaves,
                            std::vector<std::string>& notes) {
  if (std::ranges::any_of(steps, is_integer_product)) Merger(steps, leaves).run(notes);
}

}  // namespace cpu
}  // namespace tenon
