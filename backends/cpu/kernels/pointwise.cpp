// Kernels that work element by element: unary and binary ops, gates and casts.
#include "../elementwise/elementwise.hpp"
#include "../task.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/unary.hpp>

#include <array>
#include <cstring>

namespace tenon::cpu {
namespace {

/// Threads share flat arrays in pieces of this many elements, so that neighbours do not write to
/// one cache line.
constexpr std::int64_t piece = 256;

Range flat_share(const TaskContext& context, std::int64_t count) noexcept {
  const Range pieces = context.share((count + piece - 1) / piece);
  return {pieces.begin * piece, std::min(pieces.end * piece, count)};
}

std::optional<std::string> refuses_flat(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dense(input, "an input")) return why;
  }
  return std::nullopt;
}

class UnaryTask final : public Task {
 public:
  explicit UnaryTask(const Step& step)
      : x_(step.inputs[0]),
        y_(step.output),
        op_(*find_unary(step.op.def()->name)),
        count_(y_.shape.elements()) {}
  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    if (range.begin >= range.end) return;
    unary(op_, context.pointer<const float>(x_) + range.begin,
          context.pointer<float>(y_) + range.begin, range.end - range.begin);
  }

 private:
  Operand x_, y_;
  Unary op_;
  std::int64_t count_;
};

class GluTask final : public Task {
 public:
  explicit GluTask(const Step& step)
      : gate_(step.inputs[0]),
        up_(step.inputs[1]),
        y_(step.output),
        activation_(*find_unary(step.op.as<Glu>()->activation.text())),
        rows_(row_count(y_.shape)),
        size_(row_size(y_.shape)),
        gate_step_(*even_row_step(gate_)),
        up_step_(*even_row_step(up_)) {}
  void run(const TaskContext& context) const noexcept override {
    // One long row is shared in pieces, many rows by rows.
    const auto* gate = context.pointer<const float>(gate_);
    const auto* up = context.pointer<const float>(up_);
    auto* y = context.pointer<float>(y_);
    if (rows_ == 1) {
      const Range range = flat_share(context, size_);
      if (range.begin < range.end) {
        gated(activation_, gate + range.begin, up + range.begin, y + range.begin,
              range.end - range.begin);
      }
      return;
    }
    const Range rows = context.share(rows_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gated(activation_, gate + row * gate_step_, up + row * up_step_, y + row * size_, size_);
    }
  }

 private:
  Operand gate_, up_, y_;
  Unary activation_;
  std::int64_t rows_, size_, gate_step_, up_step_;
};

std::optional<std::string> refuses_glu(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dense_rows(input, "an input")) return why;
    if (!even_row_step(input)) return "rows of an input lie unevenly";
  }
  return std::nullopt;
}

/// Broadcasting walks the outer axes and calls the flat kernel on the innermost ones, which are
/// joined as far as both operands are dense or constant along them.
class BinaryTask final : public Task {
 public:
  explicit BinaryTask(const Step& step)
      : a_(step.inputs[0]),
        b_(step.inputs[1]),
        y_(step.output),
        op_(*find_binary(step.op.def()->name)) {
    const int rank = y_.shape.rank();
    for (int i = 0; i < rank; ++i) {
      a_steps_[static_cast<std::size_t>(i)] = broadcast_step(a_, i, rank);
      b_steps_[static_cast<std::size_t>(i)] = broadcast_step(b_, i, rank);
    }
    inner_axis_ = rank;
    std::int64_t a_step = -1, b_step = -1;
    while (inner_axis_ > 0) {
      const auto axis = static_cast<std::size_t>(inner_axis_ - 1);
      const std::int64_t size = y_.shape[inner_axis_ - 1];
      if (size != 1) {
        if (!joins(a_steps_[axis], a_step) || !joins(b_steps_[axis], b_step)) break;
        a_step = a_step < 0 ? a_steps_[axis] : a_step;
        b_step = b_step < 0 ? b_steps_[axis] : b_step;
      }
      inner_ *= size;
      --inner_axis_;
    }
    a_inner_ = std::max<std::int64_t>(a_step, 0);
    b_inner_ = std::max<std::int64_t>(b_step, 0);
    for (int i = 0; i < inner_axis_; ++i) outer_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const auto* a = context.pointer<const float>(a_);
    const auto* b = context.pointer<const float>(b_);
    auto* y = context.pointer<float>(y_);
    if (outer_ == 1) {
      const Range range = flat_share(context, inner_);
      if (range.begin < range.end) {
        binary(op_, a + range.begin * a_inner_, a_inner_, b + range.begin * b_inner_, b_inner_,
               y + range.begin, range.end - range.begin);
      }
      return;
    }
    const Range rows = context.share(outer_);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::int64_t rest = row, a_offset = 0, b_offset = 0;
      for (int i = inner_axis_ - 1; i >= 0; --i) {
        const std::int64_t index = rest % y_.shape[i];
        rest /= y_.shape[i];
        a_offset += index * a_steps_[static_cast<std::size_t>(i)];
        b_offset += index * b_steps_[static_cast<std::size_t>(i)];
      }
      binary(op_, a + a_offset, a_inner_, b + b_offset, b_inner_, y + row * inner_, inner_);
    }
  }

  static std::int64_t broadcast_step(const Operand& operand, int axis, int rank) {
    const int own = axis - (rank - operand.shape.rank());
    return own < 0 || operand.shape[own] == 1 ? 0
                                              : operand.strides[static_cast<std::size_t>(own)] / 4;
  }

 private:
  /// Whether an axis with this step goes on where the joined inner axes end.
  bool joins(std::int64_t step, std::int64_t inner_step) const {
    if (inner_step < 0) return step == 0 || step == 1;
    return inner_step == 0 ? step == 0 : step == inner_;
  }

  Operand a_, b_, y_;
  Binary op_;
  std::array<std::int64_t, max_rank> a_steps_{}, b_steps_{};
  std::int64_t inner_ = 1, outer_ = 1, a_inner_ = 0, b_inner_ = 0;
  int inner_axis_ = 0;
};

std::optional<std::string> refuses_binary(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  const int rank = step.output.shape.rank();
  for (const Operand& input : step.inputs) {
    if (rank == 0 || step.output.shape[rank - 1] == 1) continue;
    const std::int64_t inner = BinaryTask::broadcast_step(input, rank - 1, rank);
    if (inner != 0 && inner != 1) return "the last axis of an input is strided";
  }
  return std::nullopt;
}

class CastTask final : public Task {
 public:
  explicit CastTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), count_(y_.shape.elements()) {}
  void run(const TaskContext& context) const noexcept override {
    const Range range = flat_share(context, count_);
    if (range.begin >= range.end) return;
    const auto n = range.end - range.begin;
    const auto* x =
        context.pointer<const std::byte>(x_) + range.begin * block_bytes(x_.shape.dtype());
    auto* y = context.pointer<std::byte>(y_) + range.begin * block_bytes(y_.shape.dtype());
    const auto words = [](auto* p) {
      return reinterpret_cast<
          std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(p)>>,
                             const std::uint16_t*, std::uint16_t*>>(p);
    };
    const auto* xf = reinterpret_cast<const float*>(x);
    auto* yf = reinterpret_cast<float*>(y);
    switch (x_.shape.dtype()) {
      case DType::f16:
        return f16_to_f32(words(x), yf, n);
      case DType::bf16:
        return bf16_to_f32(words(x), yf, n);
      default:
        break;
    }
    switch (y_.shape.dtype()) {
      case DType::f16:
        return f32_to_f16(xf, words(y), n);
      case DType::bf16:
        return f32_to_bf16(xf, words(y), n);
      default:
        std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
    }
  }

 private:
  Operand x_, y_;
  std::int64_t count_;
};

std::optional<std::string> refuses_cast(const Step& step) {
  const DType from = step.inputs[0].shape.dtype(), to = step.output.shape.dtype();
  const auto is_half = [](DType d) { return d == DType::f16 || d == DType::bf16; };
  const bool known = (is_half(from) && to == DType::f32) ||
                     (from == DType::f32 && (is_half(to) || to == DType::f32));
  if (!known)
    return "from " + std::string(tenon::name(from)) + " to " + std::string(tenon::name(to));
  return needs_dense(step.inputs[0], "x");
}

template <class T>
std::unique_ptr<Task> make(const Step& step, Compiler&) {
  return std::make_unique<T>(step);
}

}  // namespace

#define TENON_POINTWISE(id, Struct, refuses, TaskType) \
  extern const Kernel id##_kernel;                     \
  constinit const Kernel id##_kernel { op_def<Struct>, refuses, make<TaskType> }

TENON_POINTWISE(add, Add, refuses_binary, BinaryTask);
TENON_POINTWISE(sub, Sub, refuses_binary, BinaryTask);
TENON_POINTWISE(mul, Mul, refuses_binary, BinaryTask);
TENON_POINTWISE(div, Div, refuses_binary, BinaryTask);
TENON_POINTWISE(minimum, Minimum, refuses_binary, BinaryTask);
TENON_POINTWISE(maximum, Maximum, refuses_binary, BinaryTask);
TENON_POINTWISE(neg, Neg, refuses_flat, UnaryTask);
TENON_POINTWISE(abs, Abs, refuses_flat, UnaryTask);
TENON_POINTWISE(square, Square, refuses_flat, UnaryTask);
TENON_POINTWISE(sqrt, Sqrt, refuses_flat, UnaryTask);
TENON_POINTWISE(rsqrt, Rsqrt, refuses_flat, UnaryTask);
TENON_POINTWISE(reciprocal, Reciprocal, refuses_flat, UnaryTask);
TENON_POINTWISE(exp, Exp, refuses_flat, UnaryTask);
TENON_POINTWISE(log, Log, refuses_flat, UnaryTask);
TENON_POINTWISE(tanh, Tanh, refuses_flat, UnaryTask);
TENON_POINTWISE(erf, Erf, refuses_flat, UnaryTask);
TENON_POINTWISE(sigmoid, Sigmoid, refuses_flat, UnaryTask);
TENON_POINTWISE(relu, Relu, refuses_flat, UnaryTask);
TENON_POINTWISE(silu, Silu, refuses_flat, UnaryTask);
TENON_POINTWISE(gelu, Gelu, refuses_flat, UnaryTask);
TENON_POINTWISE(gelu_tanh, GeluTanh, refuses_flat, UnaryTask);
TENON_POINTWISE(glu, Glu, refuses_glu, GluTask);
TENON_POINTWISE(cast, Cast, refuses_cast, CastTask);

#undef TENON_POINTWISE

}  // namespace tenon::cpu
