// What gives bools or is chosen by them.
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
std::unique_ptr<Task> make_compare(const Step& step, Compiler&) {
  const auto make = [&](PointFunction function) {
    return point_task(step, function, Reader::As::computed, Reader::As::raw);
  };
  switch (compute_type(step.inputs[0].shape.dtype())) {
    case Compute::i32:
      return make(compared<op, Compute::i32>);
    case Compute::i64:
      return make(compared<op, Compute::i64>);
    case Compute::f32:
      return make(compared<op, Compute::f32>);
    case Compute::f64:
      return make(compared<op, Compute::f64>);
  }
  return nullptr;
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
std::unique_ptr<Task> make_classify(const Step& step, Compiler&) {
  const bool wide = compute_type(step.inputs[0].shape.dtype()) == Compute::f64;
  return point_task(step, wide ? classified<Kind, double> : classified<Kind, float>,
                    Reader::As::computed, Reader::As::raw);
}

enum class Logic { conjunction, disjunction, difference };

/// On bytes, any value but 0 counting as true.
template <Logic logic>
void combined(const PointCall& call, const OpInstance&) noexcept {
  const auto* a = static_cast<const std::uint8_t*>(call.x[0]);
  const auto* b = static_cast<const std::uint8_t*>(call.x[1]);
  auto* y = static_cast<std::uint8_t*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const bool p = a[i * call.step[0]] != 0, q = b[i * call.step[1]] != 0;
    y[i] = logic == Logic::conjunction ? p && q : logic == Logic::disjunction ? p || q : p != q;
  }
}

void negated(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const std::uint8_t*>(call.x[0]);
  auto* y = static_cast<std::uint8_t*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = x[i * call.step[0]] == 0;
}

template <PointFunction function>
std::unique_ptr<Task> make_raw(const Step& step, Compiler&) {
  return point_task(step, function, Reader::As::raw, Reader::As::raw);
}

template <std::int64_t unit>
void chosen(const PointCall& call, const OpInstance&) noexcept {
  choose(unit, static_cast<const std::uint8_t*>(call.x[0]), call.step[0], call.x[1], call.step[1],
         call.x[2], call.step[2], call.y, call.count);
}

std::unique_ptr<Task> make_where(const Step& step, Compiler& compiler) {
  switch (block_bytes(step.output.shape.dtype())) {
    case 1:
      return make_raw<chosen<1>>(step, compiler);
    case 2:
      return make_raw<chosen<2>>(step, compiler);
    case 4:
      return make_raw<chosen<4>>(step, compiler);
    default:
      return make_raw<chosen<8>>(step, compiler);
  }
}

}  // namespace

#define TENON_PREDICATE(id, Struct, make) \
  extern const Kernel id##_kernel;        \
  constinit const Kernel id##_kernel { op_def<Struct>, takes_everything, make }

TENON_PREDICATE(eq, Eq, make_compare<Comparison::eq>);
TENON_PREDICATE(ne, Ne, make_compare<Comparison::ne>);
TENON_PREDICATE(lt, Lt, make_compare<Comparison::lt>);
TENON_PREDICATE(le, Le, make_compare<Comparison::le>);
TENON_PREDICATE(gt, Gt, make_compare<Comparison::gt>);
TENON_PREDICATE(ge, Ge, make_compare<Comparison::ge>);
TENON_PREDICATE(is_nan, IsNan, make_classify<Nan>);
TENON_PREDICATE(is_inf, IsInf, make_classify<Infinite>);
TENON_PREDICATE(is_finite, IsFinite, make_classify<Finite>);
TENON_PREDICATE(logical_and, LogicalAnd, make_raw<combined<Logic::conjunction>>);
TENON_PREDICATE(logical_or, LogicalOr, make_raw<combined<Logic::disjunction>>);
TENON_PREDICATE(logical_xor, LogicalXor, make_raw<combined<Logic::difference>>);
TENON_PREDICATE(logical_not, LogicalNot, make_raw<negated>);
TENON_PREDICATE(where, Where, make_where);

#undef TENON_PREDICATE

}  // namespace tenon::cpu
