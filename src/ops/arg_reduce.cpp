#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"

#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/slice.hpp>

#include <cmath>
#include <limits>

namespace tenon {
namespace {

/// Whether a later element takes the place of the best so far.
template <class Op, class T>
bool beats(T candidate, T best) noexcept {
  if constexpr (std::same_as<T, double>) {
    if (std::isnan(best)) return false;
    if (std::isnan(candidate)) return true;
  }
  return std::same_as<Op, Argmax> ? candidate > best : candidate < best;
}

/// Index of the first extreme among `count` elements, which `load(i)` reads.
template <class Op, class Load>
std::int64_t extreme_index(std::int64_t count, Load&& load) {
  std::int64_t index = 0;
  auto best = load(0);
  for (std::int64_t i = 1; i < count; ++i) {
    const auto candidate = load(i);
    if (beats<Op>(candidate, best)) {
      best = candidate;
      index = i;
    }
  }
  return index;
}

}  // namespace

template <class Op>
Shape ArgReduceOp<Op>::infer(std::span<const Shape> in) const {
  const int along = checked_axis(Op::name, axis, in[0]);  // C1
  require_number(Op::name, in[0]);                        // C2
  if (dtype != i32 && dtype != i64) {                     // C3
    fail(Errc::unsupported_dtype, Op::name,
         fmt::format("indices are i32 or i64, not {}", tenon::name(dtype)));
  }
  const std::int64_t size = in[0][along];
  if (size == 0) {  // C4
    fail(Errc::bad_shape, Op::name, fmt::format("axis {} of {} is empty", axis, to_string(in[0])));
  }
  if (dtype == i32 && size > std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1) {  // C5
    fail(Errc::limit_exceeded, Op::name,
         fmt::format("axis {} of {} needs i64 indices", axis, to_string(in[0])));
  }
  const Shape kept = in[0].with_dtype(dtype);
  return keep_dims ? kept.with_dim(along, 1) : kept.without_axis(along);
}

template <class Op>
void ArgReduceOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const auto along = static_cast<int>(axis);
  HostView results = out;
  if (!keep_dims) {
    const Shape with_axis = out.shape.with_axis(along, Axis(1));
    results = HostView(out.data, with_axis, dense_strides(with_axis));
  }
  const DType from = in[0].shape.dtype();
  for_each_lane(in[0], results, along, [&](Lane x, Lane y) {
    const std::int64_t count = in[0].shape[along];
    const std::int64_t index =
        is_integer(from)
            ? extreme_index<Op>(
                  count, [&](std::int64_t i) { return load_as_int64(from, x.base + i * x.step); })
            : extreme_index<Op>(count, [&](std::int64_t i) { return x.load(i); });
    store_int64(dtype, y.base, index);
  });
}

namespace {

/// Calls extreme(array, axis) for the array read backwards, and turns the indices it gives around.
template <class Extreme>
Tensor last_extreme(const Tensor& x, const AxisRef& axis, DType dtype,
                    const std::source_location& where, Extreme&& extreme) {
  const Tensor index = extreme(flip(x, axis, where));
  return gather(flip(iota(x, axis, dtype, 0, 1, where).with_tags({}), {}, where), index, 0, where);
}

}  // namespace

#define TENON_DEFINE_ARG_REDUCE(id, Struct)                                               \
  template struct ArgReduceOp<Struct>;                                                    \
  TENON_DEFINE_OP(id, Struct);                                                            \
  Tensor id(const Tensor& x, const AxisRef& axis, bool keep_dims, DType dtype,            \
            const std::source_location& where) {                                          \
    Struct op;                                                                            \
    op.axis = axis_of(x, axis, Struct::name, where);                                      \
    op.keep_dims = keep_dims;                                                             \
    op.dtype = dtype;                                                                     \
    return record(op, {x}, where);                                                        \
  }                                                                                       \
  Tensor id(const Tensor& x, const AxisRef& axis, Ties ties, bool keep_dims, DType dtype, \
            const std::source_location& where) {                                          \
    if (ties == Ties::first) return id(x, axis, keep_dims, dtype, where);                 \
    return last_extreme(x, axis, dtype, where, [&](const Tensor& backwards) {             \
      return id(backwards, axis, keep_dims, dtype, where);                                \
    });                                                                                   \
  }                                                                                       \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_ARG_REDUCE(argmax, Argmax);
TENON_DEFINE_ARG_REDUCE(argmin, Argmin);

}  // namespace tenon
