// What gives bools or is chosen by them.
#include "../elementwise/independent.hpp"
#include "../elementwise/stored_pairs.hpp"
#include "point_task.hpp"

#include <tenon/ops/compare.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/where.hpp>

#include <type_traits>

namespace tenon::cpu {
namespace {

template <Comparison op, Compute type>
void compared(const PointCall& call, const OpInstance&) noexcept {
  compare(type, op, call.x[0], call.step[0], call.x[1], call.step[1],
          static_cast<std::uint8_t*>(call.y), call.count);
}

template <Comparison op>
PointFunction comparison(Compute type) {
  switch (type) {
    case Compute::i32:
      return compared<op, Compute::i32>;
    case Compute::i64:
      return compared<op, Compute::i64>;
    case Compute::f32:
      return compared<op, Compute::f32>;
    case Compute::f64:
      break;
  }
  return compared<op, Compute::f64>;
}

template <Comparison op, DType dtype>
void compared_stored(const PointCall& call, const OpInstance&) noexcept {
  const StoredPairs run = stored_pair_kernels().comparison(dtype, op);
  run(call.x[0], call.step[0], call.x[1], call.step[1], call.y, call.count);
}

/// Null where elements are not compared in their own narrow type.
template <Comparison op>
PointFunction stored_comparison(DType dtype) {
  if (stored_pair_kernels().comparison(dtype, op) == nullptr) return nullptr;
  switch (dtype) {
    case DType::i8:
      return compared_stored<op, DType::i8>;
    case DType::u8:
      return compared_stored<op, DType::u8>;
    case DType::i16:
      return compared_stored<op, DType::i16>;
    case DType::u16:
      return compared_stored<op, DType::u16>;
    case DType::u32:
      return compared_stored<op, DType::u32>;
    case DType::f16:
      return compared_stored<op, DType::f16>;
    case DType::bf16:
      return compared_stored<op, DType::bf16>;
    default:
      return nullptr;
  }
}

template <Comparison op>
PointStep compare_point(const Step& step) {
  if (const auto function = stored_comparison<op>(step.inputs[0].shape.dtype())) {
    return {step, function, Reader::As::raw, Reader::As::raw};
  }
  return {step, comparison<op>(compute_type(step.inputs[0].shape.dtype())), Reader::As::computed,
          Reader::As::raw};
}

/// Kinds of numbers, by their magnitude against infinity.
struct Nan {
  template <class T>
  static bool of(T x) {
    return x != x;
  }
};
struct Infinite {
  template <class T>
  static bool of(T x) {
    return __builtin_fabs(x) == __builtin_inf();
  }
};
struct Finite {
  template <class T>
  static bool of(T x) {
    return __builtin_fabs(x) < __builtin_inf();
  }
};

template <class Kind, class T>
void classified(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const T*>(call.x[0]);
  auto* y = static_cast<std::uint8_t*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = Kind::of(x[i * call.step[0]]);
}

template <class Kind>
PointStep classify_point(const Step& step) {
  const bool wide = compute_type(step.inputs[0].shape.dtype()) == Compute::f64;
  return {step, wide ? classified<Kind, double> : classified<Kind, float>, Reader::As::computed,
          Reader::As::raw};
}

enum class Logic { conjunction, disjunction, difference, negation };

/// On bytes, any value but 0 counting as true. Steps are constants, so that loops become vectors.
template <Logic logic, std::int64_t a_step, std::int64_t b_step>
void combine(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* y, std::int64_t count) {
  TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) {
    const bool p = a[i * a_step] != 0, q = b[i * b_step] != 0;
    y[i] = logic == Logic::conjunction   ? p & q
           : logic == Logic::disjunction ? p | q
           : logic == Logic::difference  ? p != q
                                         : !p;
  }
}

template <Logic logic>
void combined(const PointCall& call, const OpInstance&) noexcept {
  constexpr std::size_t second = logic == Logic::negation ? 0 : 1;
  const auto* a = static_cast<const std::uint8_t*>(call.x[0]);
  const auto* b = static_cast<const std::uint8_t*>(call.x[second]);
  auto* y = static_cast<std::uint8_t*>(call.y);
  if (call.step[0] != 0) {
    call.step[second] != 0 ? combine<logic, 1, 1>(a, b, y, call.count)
                           : combine<logic, 1, 0>(a, b, y, call.count);
  } else {
    call.step[second] != 0 ? combine<logic, 0, 1>(a, b, y, call.count)
                           : combine<logic, 0, 0>(a, b, y, call.count);
  }
}

template <PointFunction function>
PointStep raw_point(const Step& step) {
  return {step, function, Reader::As::raw, Reader::As::raw};
}

template <std::int64_t unit>
void chosen(const PointCall& call, const OpInstance&) noexcept {
  choose(unit, static_cast<const std::uint8_t*>(call.x[0]), call.step[0], call.x[1], call.step[1],
         call.x[2], call.step[2], call.y, call.count);
}

PointStep where_point(const Step& step) {
  switch (block_bytes(step.output.shape.dtype())) {
    case 1:
      return raw_point<chosen<1>>(step);
    case 2:
      return raw_point<chosen<2>>(step);
    case 4:
      return raw_point<chosen<4>>(step);
    default:
      return raw_point<chosen<8>>(step);
  }
}

}  // namespace

#define TENON_PREDICATE(id, Struct, ...) \
  extern const Kernel id##_kernel;       \
  constinit const Kernel id##_kernel = point_kernel<Struct, __VA_ARGS__>()

TENON_PREDICATE(eq, Eq, compare_point<Comparison::eq>);
TENON_PREDICATE(ne, Ne, compare_point<Comparison::ne>);
TENON_PREDICATE(lt, Lt, compare_point<Comparison::lt>);
TENON_PREDICATE(le, Le, compare_point<Comparison::le>);
TENON_PREDICATE(gt, Gt, compare_point<Comparison::gt>);
TENON_PREDICATE(ge, Ge, compare_point<Comparison::ge>);
TENON_PREDICATE(is_nan, IsNan, classify_point<Nan>);
TENON_PREDICATE(is_inf, IsInf, classify_point<Infinite>);
TENON_PREDICATE(is_finite, IsFinite, classify_point<Finite>);
TENON_PREDICATE(logical_and, LogicalAnd, raw_point<combined<Logic::conjunction>>);
TENON_PREDICATE(logical_or, LogicalOr, raw_point<combined<Logic::disjunction>>);
TENON_PREDICATE(logical_xor, LogicalXor, raw_point<combined<Logic::difference>>);
TENON_PREDICATE(logical_not, LogicalNot, raw_point<combined<Logic::negation>>);
TENON_PREDICATE(where, Where, where_point);

#undef TENON_PREDICATE

}  // namespace tenon::cpu
