#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/compare.hpp>

#include <functional>

namespace tenon {
namespace {

/// What each op asks of two values of one type.
template <class Op>
struct Order;
template <>
struct Order<Eq> : std::equal_to<> {};
template <>
struct Order<Ne> : std::not_equal_to<> {};
template <>
struct Order<Lt> : std::less<> {};
template <>
struct Order<Le> : std::less_equal<> {};
template <>
struct Order<Gt> : std::greater<> {};
template <>
struct Order<Ge> : std::greater_equal<> {};

}  // namespace

template <class Op>
Shape CompareOp<Op>::infer(std::span<const Shape> in) const {
  require_same_dtype(Op::name, in);                // C1
  require_computed(Op::name, in[0]);               // C2
  return broadcast_shapes(Op::name, in, boolean);  // C3
}

template <class Op>
void CompareOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView a = broadcast_view(in[0], out.shape), b = broadcast_view(in[1], out.shape);
  if (is_floating(in[0].shape.dtype())) {
    zip_reals(a, b, out, [](double x, double y) { return Order<Op>()(x, y) ? 1.0 : 0.0; });
  } else {
    zip_integers(a, b, out,
                 [](std::int64_t x, std::int64_t y) { return Order<Op>()(x, y) ? 1 : 0; });
  }
}

#define TENON_DEFINE_COMPARE(id, Struct)                                           \
  template struct CompareOp<Struct>;                                               \
  TENON_DEFINE_OP(id, Struct);                                                     \
  Tensor id(const Tensor& a, const Tensor& b, const std::source_location& where) { \
    return record(Struct{}, {a, b}, where);                                        \
  }                                                                                \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_COMPARE(eq, Eq);
TENON_DEFINE_COMPARE(ne, Ne);
TENON_DEFINE_COMPARE(lt, Lt);
TENON_DEFINE_COMPARE(le, Le);
TENON_DEFINE_COMPARE(gt, Gt);
TENON_DEFINE_COMPARE(ge, Ge);

}  // namespace tenon
