#include "adapt.hpp"

#include "integer_math.hpp"
#include "lower/memory_access.hpp"
#include "matmul/pack_rows.hpp"
#include "matmul/packed_weights.hpp"
#include "registered_kernels.hpp"
#include "task.hpp"

#include <tenon/error.hpp>
#include <tenon/kernel.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/embedding.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/integer_product.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/quantize.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

namespace tenon::cpu {

using namespace lowering;
namespace {

constexpr std::int64_t copy_alignment = 64;

std::optional<std::string> kernel_refuses(const Step& step) {
  if (step.kind == Step::Kind::copy) return std::nullopt;
  std::optional<std::string> why;
  if (registered_kernel_for(step, &why) != nullptr) return std::nullopt;
  if (const Kernel* kernel = kernel_of(step.op.def())) return kernel->refuses(step);
  return why ? why : fmt::format("no kernel for {}", step.op.def()->name);
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

Operand dense_as(const Shape& shape) {
  Operand operand;
  operand.shape = shape.without_tags().with_layout({});
  operand.strides = dense_strides(operand.shape);
  return operand;
}

/// The same elements under other sizes, by the strides given.
Operand viewed(const Operand& operand, std::initializer_list<std::int64_t> dims,
               std::initializer_list<std::int64_t> strides) {
  Operand view = operand;
  view.shape =
      Shape(std::span<const std::int64_t>(dims.begin(), dims.size()), operand.shape.dtype());
  view.strides = {};
  std::ranges::copy(strides, view.strides.begin());
  return view;
}

/// An axis of one element before axis `before`.
Operand with_axis(const Operand& operand, int before) {
  Operand view = operand;
  view.shape = operand.shape.with_axis(before, Axis(1));
  const auto at = view.strides.begin() + before;
  std::copy_backward(at, view.strides.end() - 1, view.strides.end());
  *at = 0;
  return view;
}

Operand transposed(const Operand& matrix) {
  return viewed(matrix, {matrix.shape[1], matrix.shape[0]}, {matrix.strides[1], matrix.strides[0]});
}

/// Makes the steps that stand for one.
class Adapter {
 public:
  /// Takes scratch memory from byte `first` on.
  Adapter(const Step& step, std::int64_t first) : step_(step), end_(first) {}

  /// False where nothing helps.
  bool run() {
    if (const auto* linear = step_.op.as<Linear>()) {
      const Operand& w = step_.inputs[1];
      const bool is_packed =
          w.place.kind == Place::Kind::constant && PackedWeights::is_packable(w.shape.dtype());
      if (!is_packed || wide_type() == DType::f64) return multiply_by_matrix(*linear);
    }
    if (const auto* glu = step_.op.as<Glu>(); glu != nullptr && wide_type() == DType::f64) {
      return activate_and_multiply(*glu);
    }
    if (step_.op.as<MatmulInteger>() != nullptr && step_.inputs[1].shape.rank() > 2) {
      return multiply_matrix_by_matrix();
    }
    Step step = step_;
    if (step.op.as<GroupedLinear>() != nullptr) {
      Operand& w = step.inputs[1];
      const bool is_packed = wide_type() == DType::f32 && are_groups_packed(w);
      if (is_block(w.shape.dtype()) && !is_packed) w = widened(w);
    }
    if (step.op.as<Matmul>() != nullptr) vectors_as_matrices(step);
    if (step.op.as<Attention>() != nullptr) spread_mask(step);
    return fix_operands(step);
  }

  std::vector<Step> take_steps() { return std::move(steps_); }
  std::int64_t end() const noexcept { return end_; }
  std::string note() const {
    return fmt::format("{}: {}, {} bytes in each run", step_.value, fmt::to_string(what_), bytes_);
  }

 private:
  /// Has what a step makes in scratch memory.
  Operand scratch(const Shape& shape) {
    Operand operand = dense_as(shape);
    operand.place.kind = Place::Kind::shared_scratch;
    operand.place.offset = end_;
    end_ += round_up(operand.shape.bytes(), copy_alignment);
    return operand;
  }

  void push(OpInstance op, std::vector<Operand> inputs, const Operand& output) {
    Step step;
    step.op = std::move(op);
    step.inputs = std::move(inputs);
    step.output = output;
    step.value = step_.value;
    step.line = step_.line;
    steps_.push_back(std::move(step));
  }

  void say(std::string_view what, const Shape& shape) {
    if (what_.size() > 0) what_.append(std::string_view(", "));
    fmt::format_to(std::back_inserter(what_), "{} {}", what, to_string(shape));
  }

  /// The operand's elements, densely.
  Operand copied(const Operand& operand) {
    const Operand copy = scratch(operand.shape);
    Step step;
    step.kind = Step::Kind::copy;
    step.inputs = {operand};
    step.output = copy;
    step.value = step_.value;
    step.line = step_.line;
    steps_.push_back(std::move(step));
    say("copies", copy.shape);
    bytes_ += copy.shape.bytes();
    return copy;
  }

  /// The type that operands are widened to.
  DType wide_type() const {
    return step_.output.shape.dtype() == DType::f64 ? DType::f64 : DType::f32;
  }
  bool is_narrow(DType dtype) const {
    return is_half(dtype) || (dtype == DType::f32 && wide_type() == DType::f64);
  }

  /// The operand in wide_type(), itself where it is that; only for real and block types.
  Operand widened(const Operand& operand) {
    const DType dtype = operand.shape.dtype(), to = wide_type();
    if (dtype == to) return operand;
    const Operand wide = scratch(operand.shape.with_dtype(to));
    push(is_block(dtype) ? OpInstance(Dequantize{.dtype = to}) : OpInstance(Cast{.dtype = to}),
         {operand}, wide);
    say("widens", operand.shape);
    bytes_ += wide.shape.bytes();
    return wide;
  }
  bool is_widenable(const Operand& operand) const {
    const DType dtype = operand.shape.dtype();
    return dtype == wide_type() || is_narrow(dtype) || is_block(dtype);
  }

  /// Where a step in f32 writes what `output` shall hold; finish() then narrows it.
  Operand wide_output(const Operand& output) {
    if (!is_half(output.shape.dtype())) return output;
    return scratch(output.shape.with_dtype(DType::f32));
  }
  void finish(const Operand& wide, const Operand& output) {
    if (!is_half(output.shape.dtype())) return;
    push(OpInstance(Cast{.dtype = output.shape.dtype()}), {wide}, output);
    say("narrows", output.shape);
    bytes_ += output.shape.bytes();
  }

  /// [..., K] as [rows, K], copied where no one step leads from row to row.
  Operand rows_of(const Operand& operand) {
    const Operand even = needs_even_rows(operand, "") ? copied(operand) : operand;
    const std::int64_t unit = block_bytes(even.shape.dtype());
    return viewed(even, {row_count(even.shape), row_size(even.shape)},
                  {*even_row_step(even) * unit, unit});
  }

  /// A linear layer whose weight is computed, or has no packed form.
  bool multiply_by_matrix(const Linear& linear) {
    const std::vector<Operand>& in = step_.inputs;
    const bool are_widenable =
        std::ranges::all_of(in, [this](const Operand& operand) { return is_widenable(operand); });
    if (!are_widenable) return false;
    const Operand x = rows_of(widened(in[0]));
    const Operand w = transposed(widened(in[1]));
    const Operand wide = wide_output(step_.output);
    const Operand y = rows_of(wide);
    // The product is stored before the other operands are read.
    const bool is_read_later = std::any_of(
        in.begin() + 2, in.end(), [&](const Operand& operand) { return overlap(operand, y); });
    const Operand sums = is_read_later ? scratch(y.shape) : y;
    std::vector<Operand> added;
    std::size_t next = 2;
    if (linear.has_bias) added.push_back(widened(in[next++]));
    if (linear.has_residual) added.push_back(rows_of(widened(in[next])));
    push(OpInstance(Matmul()), {x, w}, added.empty() ? y : sums);
    for (std::size_t i = 0; i < added.size(); ++i) {
      push(OpInstance(Add()), {sums, added[i]}, i + 1 == added.size() ? y : sums);
    }
    say("is a matmul with", in[1].shape);
    finish(wide, step_.output);
    return accepted();
  }

  /// A gate in f64.
  bool activate_and_multiply(const Glu& glu) {
    const std::string_view word = glu.activation.text();
    const OpInstance activation = word == "silu"        ? OpInstance(Silu{})
                                  : word == "gelu"      ? OpInstance(Gelu{})
                                  : word == "gelu_tanh" ? OpInstance(GeluTanh{})
                                  : word == "relu"      ? OpInstance(Relu{})
                                                        : OpInstance(Sigmoid{});
    const Operand gate = scratch(step_.output.shape);
    push(activation, {step_.inputs[0]}, gate);
    push(OpInstance(Mul()), {gate, step_.inputs[1]}, step_.output);
    say("computes the activation alone:", gate.shape);
    bytes_ += gate.shape.bytes();
    return accepted();
  }

  /// A batch of integer products whose right operands differ: one after the other.
  bool multiply_matrix_by_matrix() {
    constexpr std::int64_t most = 1024;
    const Shape& y = step_.output.shape;
    const Operand& b = step_.inputs[1];
    const int rows = step_.inputs[0].shape.rank() > 1 ? 1 : 0;  // axes of a matrix of the result
    const Shape batch(y.dims().first(static_cast<std::size_t>(y.rank() - 1 - rows)), y.dtype());
    if (batch.elements() > most) return false;
    const Operand a =
        needs_dense_rows(step_.inputs[0], "") ? copied(step_.inputs[0]) : step_.inputs[0];
    for_each_index(batch, [&](std::span<const std::int64_t> index) {
      std::vector<Operand> inputs = step_.inputs;
      inputs[0] = matrix_of(a, index, 1 + rows);
      inputs[1] = matrix_of(b, index, 2);
      push(step_.op, std::move(inputs), matrix_of(step_.output, index, 1 + rows));
    });
    say("multiplies matrix by matrix", b.shape);
    return accepted();
  }

  /// The last `rank` axes of an operand, at an index of those that lead its product, to which its
  /// own broadcast.
  static Operand matrix_of(const Operand& operand, std::span<const std::int64_t> index, int rank) {
    Operand matrix = operand;
    const int leading = operand.shape.rank() - rank;
    const std::size_t skipped = index.size() - static_cast<std::size_t>(std::max(leading, 0));
    for (int i = 0; i < leading; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (operand.shape[i] != 1) {
        matrix.place.offset += index[skipped + at] * operand.strides[at];
      }
      matrix.shape = matrix.shape.without_axis(0);
    }
    matrix.strides = {};
    std::copy_n(operand.strides.begin() + std::max(leading, 0), matrix.shape.rank(),
                matrix.strides.begin());
    return matrix;
  }

  /// A vector is a matrix of one row on the left, of one column on the right.
  static void vectors_as_matrices(Step& step) {
    Operand &a = step.inputs[0], &b = step.inputs[1], &y = step.output;
    const bool left = a.shape.rank() == 1, right = b.shape.rank() == 1;
    if (left) a = with_axis(a, 0);
    if (right) b = with_axis(b, 1);
    if (right) y.shape = y.shape.with_axis(y.shape.rank(), Axis(1));
    if (left) y.shape = y.shape.with_axis(y.shape.rank() - 1, Axis(1));
    y.strides = dense_strides(y.shape);
  }

  /// A mask that is the same for all keys, key by key.
  void spread_mask(Step& step) {
    const auto& op = *step.op.as<Attention>();
    if (!op.has_mask) return;
    Operand& mask = step.inputs[op.mask_index()];
    const std::int64_t keys = op.key_count(step.inputs);
    if (mask.shape.rank() == 0) mask = with_axis(mask, 0);
    const int last = mask.shape.rank() - 1;
    if (mask.shape[last] != 1 || keys == 1) return;
    mask.shape = mask.shape.with_dim(last, keys);
    mask.strides[static_cast<std::size_t>(last)] = 0;
    mask = copied(mask);
  }

  enum class Fix : std::uint8_t { none, copy, widen };

  /// What may be done to an input: nothing, and what changes it.
  std::vector<Fix> fixes_of(const Step& step, std::size_t input) const {
    std::vector<Fix> fixes{Fix::none};
    if (step.op.def()->traits.updates_input == static_cast<int>(input)) return fixes;
    if (!lies_as_copied(step.inputs[input])) fixes.push_back(Fix::copy);
    if (is_narrow(step.inputs[input].shape.dtype())) fixes.push_back(Fix::widen);
    return fixes;
  }

  /// Whether a copy would have the same strides, those of empty and single axes too, which kernels
  /// may look at.
  static bool lies_as_copied(const Operand& operand) {
    const Strides dense = dense_strides(operand.shape);
    return std::equal(dense.begin(), dense.begin() + operand.shape.rank(), operand.strides.begin());
  }

  Operand fixed(const Operand& operand, Fix fix) const {
    if (fix == Fix::none) return operand;
    return dense_as(fix == Fix::copy ? operand.shape : operand.shape.with_dtype(wide_type()));
  }

  /// Copies inputs that lie apart and widens halves: of all ways that the kernel takes, the one
  /// that moves the fewest bytes.
  bool fix_operands(Step step) {
    if (auto* embedding = step.op.as<Embedding>(); embedding && is_half(embedding->dtype)) {
      step.op = OpInstance(Embedding{.dtype = DType::f32});
    }
    struct Way {
      std::int64_t bytes = 0;
      std::vector<Fix> fixes;
    };
    std::vector<Way> ways(1);
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      std::vector<Way> longer;
      for (const Way& way : ways) {
        for (const Fix fix : fixes_of(step, i)) {
          Way next = way;
          next.fixes.push_back(fix);
          if (fix != Fix::none) next.bytes += fixed(step.inputs[i], fix).shape.bytes();
          longer.push_back(std::move(next));
        }
      }
      ways = std::move(longer);
    }
    std::ranges::sort(ways, [](const Way& a, const Way& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.fixes < b.fixes;
    });
    for (const Way& way : ways) {
      Step wanted = step;
      for (std::size_t i = 0; i < way.fixes.size(); ++i) {
        wanted.inputs[i] = fixed(step.inputs[i], way.fixes[i]);
      }
      if (fits(wanted)) {
        emit(std::move(step), way.fixes, wanted.output.shape.dtype());
        return accepted();
      }
    }
    return false;
  }

  /// Whether the op is defined for these types, and its kernel takes them. Then the output has the
  /// type that follows: that of the step, or f32 instead of a half.
  static bool fits(Step& step) {
    std::vector<Shape> types;
    for (const Operand& input : step.inputs) types.push_back(input.shape);
    try {
      const Shape shape = step.op.def()->infer(step.op.attributes(), types);
      if (!(shape == step.output.shape)) {
        if (shape.dtype() != DType::f32 || !is_half(step.output.shape.dtype())) return false;
        step.output = dense_as(shape);
      }
    } catch (const Error&) {
      return false;
    }
    return !kernel_refuses(step);
  }

  void emit(Step step, std::span<const Fix> fixes, DType computed) {
    for (std::size_t i = 0; i < fixes.size(); ++i) {
      if (fixes[i] == Fix::copy) step.inputs[i] = copied(step.inputs[i]);
      if (fixes[i] == Fix::widen) step.inputs[i] = widened(step.inputs[i]);
    }
    const Operand output = step.output;
    if (computed != output.shape.dtype()) step.output = wide_output(output);
    const Operand wide = step.output;
    steps_.push_back(std::move(step));
    if (computed != output.shape.dtype()) finish(wide, output);
  }

  bool accepted() const {
    return std::ranges::all_of(steps_, [](const Step& step) { return !kernel_refuses(step); });
  }

  const Step& step_;
  std::int64_t end_;
  std::vector<Step> steps_;
  fmt::memory_buffer what_;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::optional<std::string> why_not_run(const Step& step) {
  std::optional<std::string> why = kernel_refuses(step);
  if (!why || Adapter(step, 0).run()) return std::nullopt;
  return why;
}

std::int64_t adapt_steps(std::vector<Step>& steps, std::int64_t first,
                         std::vector<std::string>& notes) {
  std::int64_t end = first;
  std::vector<Step> result;
  for (Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      end = std::max(end, adapt_steps(step.body, first, notes));
      result.push_back(std::move(step));
      continue;
    }
    if (!kernel_refuses(step)) {
      result.push_back(std::move(step));
      continue;
    }
    Adapter adapter(step, first);
    if (!adapter.run()) {
      throw Error(Errc::internal, step.value, "a step that no kernel takes was given to the CPU");
    }
    notes.push_back(adapter.note());
    end = std::max(end, adapter.end());
    for (Step& made : adapter.take_steps()) result.push_back(std::move(made));
  }
  steps = std::move(result);
  return end;
}

}  // namespace tenon::cpu
