#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/gradient.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cumulative.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tenon {
namespace {

using Flags = std::array<bool, max_rank>;

Flags folded_axes(const IntList& axes) {
  Flags folded{};
  for (const std::int64_t axis : axes) folded[static_cast<std::size_t>(axis)] = true;
  return folded;
}

Shape reduced_shape(std::string_view op, const Shape& in, const IntList& axes, bool keep_dims,
                    DType dtype) {
  Flags folded{};
  for (const std::int64_t axis : axes) {
    auto& flag = folded[static_cast<std::size_t>(checked_axis(op, axis, in))];  // C1
    if (flag)
      fail(Errc::bad_argument, op, fmt::format("axis {} of {} twice", axis, to_string(in)));  // C2
    flag = true;
  }
  std::vector<Axis> kept;
  for (int i = 0; i < in.rank(); ++i) {
    if (!folded[static_cast<std::size_t>(i)]) {
      kept.push_back(in.axis_at(i));
    } else if (keep_dims) {
      kept.emplace_back(in.tag(i), 1);
    }
  }
  return {std::span<const Axis>(kept), dtype};
}

/// Calls visit(output element, input view of the elements folded into it).
template <class Visit>
void for_each_fold(const HostView& in, const HostView& out, const IntList& axes, Visit&& visit) {
  const Flags folded = folded_axes(axes);
  const bool keeps_dims = out.shape.rank() == in.shape.rank();
  Shape outer = in.shape, inner = in.shape;
  Strides steps{};  // of the output, along the input's axes
  int next = 0;
  for (int i = 0; i < in.shape.rank(); ++i) {
    const auto axis = static_cast<std::size_t>(i);
    if (folded[axis]) {
      outer = outer.with_dim(i, 1);
      if (keeps_dims) ++next;
    } else {
      inner = inner.with_dim(i, 1);
      steps[axis] = out.strides[static_cast<std::size_t>(next++)];
    }
  }
  const HostView results(out.data, outer.with_dtype(out.shape.dtype()), steps);
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    visit(results.at(index), HostView(in.at(index), inner, in.strides));
  });
}

/// Each op as a fold: initial value, combination with an element, and the result after `count`.
template <class Op>
struct Fold;

template <>
struct Fold<Sum> {
  static constexpr double start = 0;
  static constexpr std::int64_t integer_start = 0;
  static double take(double sum, double x) noexcept { return sum + x; }
  static std::int64_t take_integer(std::int64_t sum, std::int64_t x) noexcept {
    return wrapping_add(sum, x);
  }
  static double finish(double sum, std::int64_t) noexcept { return sum; }
};

template <>
struct Fold<Mean> {
  static constexpr double start = 0;
  static double take(double sum, double x) noexcept { return sum + x; }
  static double finish(double sum, std::int64_t count) noexcept {
    return sum / static_cast<double>(count);
  }
};

template <>
struct Fold<Prod> {
  static constexpr double start = 1;
  static constexpr std::int64_t integer_start = 1;
  static double take(double product, double x) noexcept { return product * x; }
  static std::int64_t take_integer(std::int64_t product, std::int64_t x) noexcept {
    return wrapping_multiply(product, x);
  }
  static double finish(double product, std::int64_t) noexcept { return product; }
};

template <>
struct Fold<Max> {
  static constexpr double start = -std::numeric_limits<double>::infinity();
  static constexpr std::int64_t integer_start = std::numeric_limits<std::int64_t>::min();
  static double take(double most, double x) noexcept {
    return std::isnan(most) || x <= most ? most : x;
  }
  static std::int64_t take_integer(std::int64_t most, std::int64_t x) noexcept {
    return std::max(most, x);
  }
  static double finish(double most, std::int64_t) noexcept { return most; }
};

template <>
struct Fold<Min> {
  static constexpr double start = std::numeric_limits<double>::infinity();
  static constexpr std::int64_t integer_start = std::numeric_limits<std::int64_t>::max();
  static double take(double least, double x) noexcept {
    return std::isnan(least) || x >= least ? least : x;
  }
  static std::int64_t take_integer(std::int64_t least, std::int64_t x) noexcept {
    return std::min(least, x);
  }
  static double finish(double least, std::int64_t) noexcept { return least; }
};

template <>
struct Fold<Any> {
  static constexpr std::int64_t integer_start = 0;
  static std::int64_t take_integer(std::int64_t found, std::int64_t x) noexcept {
    return found | x;
  }
};

template <>
struct Fold<All> {
  static constexpr std::int64_t integer_start = 1;
  static std::int64_t take_integer(std::int64_t held, std::int64_t x) noexcept { return held & x; }
};

template <class Op>
concept FoldsReals = requires { Fold<Op>::start; };
template <class Op>
concept FoldsIntegers = requires { Fold<Op>::integer_start; };

/// C3 and C4, and the dtype of the result.
template <class Op>
DType result_dtype(const Op& op, const Shape& in) {
  if constexpr (!FoldsReals<Op>) {
    require_bool(Op::name, in);
    return boolean;
  } else if constexpr (!FoldsIntegers<Op>) {
    require_floating(Op::name, in);
    return in.dtype();
  } else if constexpr (std::same_as<Op, Max> || std::same_as<Op, Min>) {
    require_number(Op::name, in);
    for (const std::int64_t axis : op.axes) {
      if (in[checked_axis(Op::name, axis, in)] == 0) {
        fail(Errc::bad_shape, Op::name, fmt::format("axis {} of {} is empty", axis, to_string(in)));
      }
    }
    return in.dtype();
  } else {
    require_computed(Op::name, in);
    return is_floating(in.dtype()) ? in.dtype() : i64;
  }
}

}  // namespace

template <class Op>
Shape ReduceOp<Op>::infer(std::span<const Shape> in) const {
  const DType dtype = result_dtype(static_cast<const Op&>(*this), in[0]);
  return reduced_shape(Op::name, in[0], axes, keep_dims, dtype);
}

template <class Op>
void ReduceOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const DType from = in[0].shape.dtype(), to = out.shape.dtype();
  for_each_fold(in[0], out, axes, [&](std::byte* result, const HostView& part) {
    if constexpr (FoldsReals<Op>) {
      if (is_floating(from)) {
        double folded = Fold<Op>::start;
        for_each_index(part.shape, [&](std::span<const std::int64_t> index) {
          folded = Fold<Op>::take(folded, load_as_double(from, part.at(index)));
        });
        return store_double(to, result, Fold<Op>::finish(folded, part.shape.elements()));
      }
    }
    if constexpr (FoldsIntegers<Op>) {
      std::int64_t folded = Fold<Op>::integer_start;
      for_each_index(part.shape, [&](std::span<const std::int64_t> index) {
        folded = Fold<Op>::take_integer(folded, load_as_int64(from, part.at(index)));
      });
      store_int64(to, result, wrap_to(to, folded));
    }
  });
}

namespace {

/// What a reduction of x gave, repeated over the elements that it was made from.
Tensor spread(const Tensor& reduced, const Tensor& x, const IntList& axes, bool keep_dims) {
  const Flags folded = folded_axes(axes);
  Tensor result = reduced;
  for (int i = 0; i < x.rank(); ++i) {
    if (folded[static_cast<std::size_t>(i)] && !keep_dims) result = unsqueeze(result, i);
  }
  return broadcast_like(result, x);
}

/// The number of x's elements along `axes`, of g's dtype.
Tensor count_along(const Tensor& x, const IntList& axes, const Tensor& g) {
  double known = 1;
  Tensor open;
  for (const std::int64_t axis : axes) {
    if (is_static(x.dim(axis))) {
      known *= static_cast<double>(x.dim(axis));
    } else {
      const Tensor size = size_along(x, axis, g.dtype());
      open = open.is_empty() ? size : open * size;
    }
  }
  const Tensor count = scalar_like(g, known);
  return open.is_empty() ? count : open * count;
}

AxisList same_axes(const IntList& axes) {
  std::vector<AxisRef> result;
  for (const std::int64_t axis : axes) result.emplace_back(axis);
  return AxisList(std::span<const AxisRef>(result));
}

/// Of a product along one axis of a known size: what stands before each element, times what stands
/// behind it.
Tensor product_of_others(const Tensor& x, std::int64_t axis, std::int64_t size) {
  if (size < 2) return filled_like(x, 1);
  const auto before = [&](const Tensor& y) {
    return pad(slice(cumprod(y, axis), axis, 0, size - 1), axis, 1, 0, 1.0);
  };
  return before(x) * flip(before(flip(x, axis)), axis);
}

/// Of prod: the product of the others, also where one of them is 0; of known sizes without a
/// division, so that gradients of it are exact there, too.
Tensor product_of_others(const Tensor& x, const Tensor& product, const Prod& op) {
  const auto is_known = [&](std::int64_t axis) { return is_static(x.dim(axis)); };
  if (std::ranges::all_of(op.axes.span(), is_known)) {
    Tensor result = scalar_like(x, 1), rest = x;
    for (const std::int64_t axis : op.axes) {
      result = result * product_of_others(rest, axis, x.dim(axis));
      rest = prod(rest, axis, true);
    }
    return result;
  }
  const Tensor zero = scalar_like(x, 0), one = scalar_like(x, 1), is_zero = eq(x, zero);
  const AxisList axes = same_axes(op.axes);
  const auto all = [&](const Tensor& y) { return spread(y, x, op.axes, op.keep_dims); };
  const Tensor zeros = all(sum(cast(is_zero, x.dtype()), axes, op.keep_dims));
  const Tensor nonzero = where(is_zero, one, x);
  const Tensor of_nonzero = all(prod(nonzero, axes, op.keep_dims));
  const Tensor is_only_zero = logical_and(is_zero, eq(zeros, one));
  return where(eq(zeros, zero), all(product) / nonzero, where(is_only_zero, of_nonzero, zero));
}

/// Of max and min: elements that equal the result share its gradient, in equal parts of g's dtype.
Tensor share_of_equals(const Tensor& x, const Tensor& result, const IntList& axes, bool keep_dims,
                       const Tensor& g) {
  const Tensor is_result = cast(eq(x, spread(result, x, axes, keep_dims)), g.dtype());
  return is_result / sum(is_result, same_axes(axes), true);
}

}  // namespace

template <class Op>
std::vector<Tensor> ReduceOp<Op>::gradient(const Backward& at) const {
  const Op& op = static_cast<const Op&>(*this);
  const Tensor& x = at.inputs[0];
  if constexpr (std::same_as<Op, Any> || std::same_as<Op, All>) {
    return {Tensor()};
  } else {
    const Tensor g = spread(at.upstream, x, axes, keep_dims);
    if constexpr (std::same_as<Op, Sum>) {
      return {g};
    } else if constexpr (std::same_as<Op, Mean>) {
      const Tensor wide = widened(g);
      return {cast(wide / count_along(x, axes, wide), x.dtype())};
    } else if constexpr (std::same_as<Op, Prod>) {
      return {g * product_of_others(x, at.output, op)};
    } else {
      const Tensor wide = widened(g);
      return {cast(wide * share_of_equals(x, at.output, axes, keep_dims, wide), x.dtype())};
    }
  }
}

#define TENON_DEFINE_REDUCE(id, Struct)                            \
  template struct ReduceOp<Struct>;                                \
  TENON_DEFINE_OP(id, Struct);                                     \
  Tensor id(const Tensor& x, const AxisList& axes, bool keep_dims, \
            const std::source_location& where) {                   \
    Struct op;                                                     \
    op.axes = axes_of(x, axes, Struct::name, where);               \
    op.keep_dims = keep_dims;                                      \
    return record(op, {x}, where);                                 \
  }                                                                \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_REDUCE(sum, Sum);
TENON_DEFINE_REDUCE(mean, Mean);
TENON_DEFINE_REDUCE(prod, Prod);
TENON_DEFINE_REDUCE(max, Max);
TENON_DEFINE_REDUCE(min, Min);
TENON_DEFINE_REDUCE(any, Any);
TENON_DEFINE_REDUCE(all, All);

Tensor sum_to(const Tensor& x, const Shape& shape, const std::source_location& where) {
  const Shape& own = x.shape(where);
  const int added = own.rank() - shape.rank();
  const auto refuse = [&] {
    fail_at(where, Errc::shape_mismatch, "sum_to",
            fmt::format("{} does not broadcast to {}", to_string(shape), to_string(own)));
  };
  if (added < 0) refuse();
  std::vector<AxisRef> kept, dropped;
  for (int i = 0; i < own.rank(); ++i) {
    if (i < added) {
      dropped.emplace_back(i);
    } else if (shape[i - added] == 1 && own[i] != 1) {
      kept.emplace_back(i);
    } else if (!sizes_agree(shape[i - added], own[i])) {
      refuse();
    }
  }
  if (kept.empty() && dropped.empty()) return x;
  if (kept.empty()) return sum(x, AxisList(std::span<const AxisRef>(dropped)), false, where);
  std::vector<AxisRef> all = dropped;
  all.insert(all.end(), kept.begin(), kept.end());
  Tensor result = sum(x, AxisList(std::span<const AxisRef>(all)), true, where);
  for (int i = 0; i < added; ++i) result = squeeze(result, 0, where);
  return result;
}

}  // namespace tenon
