// Arithmetic and real functions of two operands with broadcasting.
#include "../elementwise/elementwise.hpp"
#include "../elementwise/stored_pairs.hpp"
#include "../elementwise/typed_unary.hpp"
#include "point_task.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/real_binary.hpp>

#include <type_traits>

namespace tenon::cpu {
namespace {

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

template <Arithmetic op, DType dtype>
void stored(const PointCall& call, const OpInstance&) noexcept {
  const StoredPairs run = stored_pair_kernels().arithmetic(dtype, op);
  run(call.x[0], call.step[0], call.x[1], call.step[1], call.y, call.count);
}

/// Null where elements are not computed in their own narrow type.
template <Arithmetic op>
PointFunction stored_function(DType dtype) {
  if (stored_pair_kernels().arithmetic(dtype, op) == nullptr) return nullptr;
  switch (dtype) {
    case DType::i8:
      return stored<op, DType::i8>;
    case DType::u8:
      return stored<op, DType::u8>;
    case DType::i16:
      return stored<op, DType::i16>;
    case DType::u16:
      return stored<op, DType::u16>;
    case DType::u32:
      return stored<op, DType::u32>;
    case DType::f16:
      return stored<op, DType::f16>;
    case DType::bf16:
      return stored<op, DType::bf16>;
    default:
      return nullptr;
  }
}

/// An op with vector code for all types.
template <Binary op, Arithmetic typed>
PointStep vector_point(const Step& step) {
  if (const auto function = stored_function<typed>(step.output.shape.dtype())) {
    return {step, function, Reader::As::raw, Reader::As::raw};
  }
  return point_step(step, {floats<op>, native<typed, Compute::f64>, native<typed, Compute::i32>,
                           native<typed, Compute::i64>});
}

template <Binary op>
void doubles(const PointCall& call, const OpInstance&) noexcept {
  f64_pair_kernel(op)(static_cast<const double*>(call.x[0]), call.step[0],
                      static_cast<const double*>(call.x[1]), call.step[1],
                      static_cast<double*>(call.y), call.count);
}
/// Vector code of f64 where there is some; else `otherwise`.
template <Binary op>
PointFunction doubles_or(PointFunction otherwise) {
  return f64_pair_kernel(op) != nullptr ? doubles<op> : otherwise;
}

template <class Op, Binary op, Arithmetic typed>
PointStep modulo_point(const Step& step) {
  return point_step(step, {floats<op>, doubles_or<op>(defined<Op, double>),
                           native<typed, Compute::i32>, native<typed, Compute::i64>});
}
/// Squares and cubes are products, element by element, so that it does not matter whether exponents are one or many.
void powers(const PointCall& call, const OpInstance&) noexcept {
  each<double>(call, [](double x, double power) {
    if (power == 2) return x * x;
    return power == 3 ? x * x * x : Pow::of(x, power);
  });
}
PointStep pow_point(const Step& step) {
  return point_step(step, {floats<Binary::pow>, doubles_or<Binary::pow>(powers),
                           defined<Pow, std::int32_t>, defined<Pow, std::int64_t>});
}
/// An op with vector code for floating types alone.
template <class Op, Binary op>
PointStep real_point(const Step& step) {
  return point_step(step, {floats<op>, doubles_or<op>(defined<Op, double>), nullptr, nullptr});
}

}  // namespace

#define TENON_VECTOR_BINARY(id, Struct) \
  extern const Kernel id##_kernel;      \
  constinit const Kernel id##_kernel =  \
      point_kernel<Struct, vector_point<Binary::id, Arithmetic::id>>()
#define TENON_MODULO_BINARY(id, Struct) \
  extern const Kernel id##_kernel;      \
  constinit const Kernel id##_kernel =  \
      point_kernel<Struct, modulo_point<Struct, Binary::id, Arithmetic::id>>()
#define TENON_REAL_BINARY(id, Struct) \
  extern const Kernel id##_kernel;    \
  constinit const Kernel id##_kernel = point_kernel<Struct, real_point<Struct, Binary::id>>()

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
constinit const Kernel pow_kernel = point_kernel<Pow, pow_point>();

#undef TENON_VECTOR_BINARY
#undef TENON_MODULO_BINARY
#undef TENON_REAL_BINARY

}  // namespace tenon::cpu
