// Arithmetic and real functions of two operands with broadcasting.
#include "../elementwise/elementwise.hpp"
#include "point_task.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/real_binary.hpp>

#include <array>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// Types that are computed as stored, without copies: broadcasting walks the outer axes and calls the flat kernel on the
/// innermost ones, which are joined as far as both operands are dense or constant along them.
class DenseTask final : public PartwiseTask {
 public:
  explicit DenseTask(const PointStep& point)
      : a_(point.step.inputs[0]),
        b_(point.step.inputs[1]),
        y_(point.step.output),
        op_(point.step.op),
        function_(point.function),
        unit_(block_bytes(y_.shape.dtype())) {
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
    const Places at{context.pointer<const std::byte>(a_), context.pointer<const std::byte>(b_),
                    context.pointer<std::byte>(y_)};
    if (outer_ == 1) {
      const Range range = flat_share(context, inner_);
      compute(at, range.begin * a_inner_, range.begin * b_inner_, range.begin,
              range.end - range.begin);
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
      compute(at, a_offset, b_offset, row * inner_, inner_);
    }
  }

  /// Whether rows are worth a call each; short ones are gathered to blocks.
  bool has_long_rows() const noexcept {
    constexpr std::int64_t short_row = 64;
    return outer_ == 1 || inner_ >= short_row;
  }

  static std::int64_t broadcast_step(const Operand& operand, int axis, int rank) {
    const int own = axis - (rank - operand.shape.rank());
    if (own < 0 || operand.shape[own] == 1) return 0;
    return operand.strides[static_cast<std::size_t>(own)] / block_bytes(operand.shape.dtype());
  }

 private:
  struct Places {
    const std::byte *a, *b;
    std::byte* y;
  };
  /// `count` results from the y-th on, of the operands' elements from these on.
  void compute(const Places& at, std::int64_t a, std::int64_t b, std::int64_t y,
               std::int64_t count) const noexcept {
    PointCall call{};
    call.x[0] = at.a + a * unit_;
    call.x[1] = at.b + b * unit_;
    call.step[0] = a_inner_;
    call.step[1] = b_inner_;
    call.y = at.y + y * unit_;
    call.count = count;
    function_(call, op_);
  }

  /// Whether an axis with this step continues where the joined inner axes end.
  bool joins(std::int64_t step, std::int64_t inner_step) const {
    if (inner_step < 0) return step == 0 || step == 1;
    return inner_step == 0 ? step == 0 : step == inner_;
  }

  Operand a_, b_, y_;
  OpInstance op_;
  PointFunction function_;
  std::int64_t unit_;
  std::array<std::int64_t, max_rank> a_steps_{}, b_steps_{};
  std::int64_t inner_ = 1, outer_ = 1, a_inner_ = 0, b_inner_ = 0;
  int inner_axis_ = 0;
};

/// Where DenseTask can be used: no gathering along the innermost axis.
bool is_dense(const Step& step) {
  if (!is_computed_as_stored(step.output.shape.dtype())) return false;
  const int rank = step.output.shape.rank();
  for (const Operand& input : step.inputs) {
    if (rank == 0 || step.output.shape[rank - 1] == 1) continue;
    const std::int64_t inner = DenseTask::broadcast_step(input, rank - 1, rank);
    if (inner != 0 && inner != 1) return false;
  }
  return true;
}

template <class T, class F>
void each(const PointCall& call, F f) {
  const auto* a = static_cast<const T*>(call.x[0]);
  const auto* b = static_cast<const T*>(call.x[1]);
  auto* y = static_cast<T*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    y[i] = f(a[i * call.step[0]], b[i * call.step[1]]);
  }
}

/// By the op's own definition, one element at a time.
template <class Op, class T>
void defined(const PointCall& call, const OpInstance&) noexcept {
  each<T>(call, [](T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(Op::of(static_cast<double>(a), static_cast<double>(b)));
    } else {
      return static_cast<T>(Op::of_integer(a, b));
    }
  });
}

template <Binary op>
void floats(const PointCall& call, const OpInstance&) noexcept {
  binary(op, static_cast<const float*>(call.x[0]), call.step[0],
         static_cast<const float*>(call.x[1]), call.step[1], static_cast<float*>(call.y),
         call.count);
}

template <Arithmetic op, Compute type>
void native(const PointCall& call, const OpInstance&) noexcept {
  arithmetic(type, op, call.x[0], call.step[0], call.x[1], call.step[1], call.y, call.count);
}

/// An op with vector code for all types.
template <Binary op, Arithmetic typed>
PointStep vector_point(const Step& step) {
  return point_step(step, {floats<op>, native<typed, Compute::f64>, native<typed, Compute::i32>,
                           native<typed, Compute::i64>});
}

template <PointStep (*point)(const Step&)>
std::unique_ptr<Task> make_vector(const Step& step, Compiler& compiler) {
  if (is_dense(step)) {
    auto task = std::make_unique<DenseTask>(point(step));
    if (task->has_long_rows()) return task;
  }
  return std::make_unique<PointTask>(point(step), compiler);
}

/// Moduli have vector code for all types but f64.
template <class Op, Binary op, Arithmetic typed>
PointStep modulo_point(const Step& step) {
  return point_step(step, {floats<op>, defined<Op, double>, native<typed, Compute::i32>,
                           native<typed, Compute::i64>});
}
/// Squares and cubes are products, element by element, so that it does not matter whether exponents are one or many.
void powers(const PointCall& call, const OpInstance&) noexcept {
  each<double>(call, [](double x, double power) {
    if (power == 2) return x * x;
    return power == 3 ? x * x * x : Pow::of(x, power);
  });
}
PointStep pow_point(const Step& step) {
  return point_step(
      step, {floats<Binary::pow>, powers, defined<Pow, std::int32_t>, defined<Pow, std::int64_t>});
}
/// An op with vector code for f32 alone.
template <class Op, Binary op>
PointStep real_point(const Step& step) {
  return point_step(step, {floats<op>, defined<Op, double>, nullptr, nullptr});
}

}  // namespace

template <class Op, PointStep (*point)(const Step&)>
constexpr Kernel vector_kernel() {
  return {op_def<Op>, takes_everything, make_vector<point>, nullptr, point};
}

#define TENON_VECTOR_BINARY(id, Struct) \
  extern const Kernel id##_kernel;      \
  constinit const Kernel id##_kernel =  \
      vector_kernel<Struct, vector_point<Binary::id, Arithmetic::id>>()
#define TENON_MODULO_BINARY(id, Struct) \
  extern const Kernel id##_kernel;      \
  constinit const Kernel id##_kernel =  \
      vector_kernel<Struct, modulo_point<Struct, Binary::id, Arithmetic::id>>()
#define TENON_REAL_BINARY(id, Struct) \
  extern const Kernel id##_kernel;    \
  constinit const Kernel id##_kernel = vector_kernel<Struct, real_point<Struct, Binary::id>>()

TENON_VECTOR_BINARY(add, Add);
TENON_VECTOR_BINARY(sub, Sub);
TENON_VECTOR_BINARY(mul, Mul);
TENON_VECTOR_BINARY(div, Div);
TENON_VECTOR_BINARY(minimum, Minimum);
TENON_VECTOR_BINARY(maximum, Maximum);
TENON_MODULO_BINARY(remainder, Remainder);
TENON_MODULO_BINARY(fmod, Fmod);
TENON_REAL_BINARY(atan2, Atan2);
TENON_REAL_BINARY(hypot, Hypot);

extern const Kernel pow_kernel;
constinit const Kernel pow_kernel = vector_kernel<Pow, pow_point>();

#undef TENON_VECTOR_BINARY
#undef TENON_MODULO_BINARY
#undef TENON_REAL_BINARY

}  // namespace tenon::cpu
