#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/sort.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <numeric>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(sort, Sort);
TENON_DEFINE_OP(argsort, Argsort);
TENON_DEFINE_OP(searchsorted, Searchsorted);

namespace {

constexpr std::int64_t most_i32 = std::numeric_limits<std::int32_t>::max();

void check_sorted_axis(std::string_view op, const Shape& x, std::int64_t axis) {
  const int along = checked_axis(op, axis, x);  // C1
  require_number(op, x);                        // C2
  if (x[along] > most_i32 + 1) {                // C3
    fail(Errc::limit_exceeded, op,
         fmt::format("axis {} of {} needs i64 indices", axis, to_string(x)));
  }
}

/// Whether a stands before b in ascending order; a NaN is larger than any number.
template <class T>
bool is_below(T a, T b) noexcept {
  if constexpr (std::floating_point<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

/// Calls visit(lane of the output, values of the lane, the order that sorts them).
template <class Visit>
void for_each_sorted(const HostView& x, const HostView& y, std::int64_t axis, bool descending,
                     Visit&& visit) {
  const auto along = static_cast<int>(axis);
  const DType from = x.shape.dtype();
  const auto count = static_cast<std::size_t>(x.shape[along]);
  if (count == 0) return;
  std::vector<std::int64_t> order(count);
  const auto run = [&]<class T>(std::vector<T> values, auto&& load) {
    for_each_lane(x, y, along, [&](Lane in, Lane out) {
      for (std::size_t i = 0; i < count; ++i)
        values[i] = load(in.base + static_cast<std::int64_t>(i) * in.step);
      std::iota(order.begin(), order.end(), std::int64_t{0});
      std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) {  // equals keep their order
        const T first = values[static_cast<std::size_t>(descending ? b : a)],
                second = values[static_cast<std::size_t>(descending ? a : b)];
        if (is_below(first, second)) return true;
        return !is_below(second, first) && a < b;
      });
      visit(out, values, order);
    });
  };
  if (is_integer(from)) {
    run(std::vector<std::int64_t>(count),
        [&](const std::byte* element) { return load_as_int64(from, element); });
  } else {
    run(std::vector<double>(count),
        [&](const std::byte* element) { return load_as_double(from, element); });
  }
}

/// About n log2(n) comparisons for each lane of n elements.
double comparisons(const Shape& x, std::int64_t axis) {
  const auto size = static_cast<double>(std::max<std::int64_t>(x[static_cast<int>(axis)], 2));
  return static_cast<double>(x.elements()) * std::log2(size);
}

}  // namespace

Shape Sort::infer(std::span<const Shape> in) const {
  check_sorted_axis(name, in[0], axis);
  return in[0];
}

void Sort::reference(std::span<const HostView> in, const HostView& out) const {
  const DType dtype = out.shape.dtype();
  for_each_sorted(in[0], out, axis, descending,
                  [&](Lane y, const auto& values, const std::vector<std::int64_t>& order) {
                    for (std::size_t i = 0; i < order.size(); ++i) {
                      std::byte* const to = y.base + static_cast<std::int64_t>(i) * y.step;
                      const auto value = values[static_cast<std::size_t>(order[i])];
                      if constexpr (std::floating_point<std::remove_const_t<decltype(value)>>) {
                        store_double(dtype, to, value);
                      } else {
                        store_int64(dtype, to, value);
                      }
                    }
                  });
}

std::vector<Tensor> Sort::gradient(const Backward& at) const {
  const Tensor& x = at.inputs[0];
  return {scatter(filled_like(x, 0), argsort(x, axis, descending), at.upstream, axis)};
}

double Sort::flops(std::span<const Shape> in, const Shape&) const {
  return comparisons(in[0], axis);
}

Shape Argsort::infer(std::span<const Shape> in) const {
  check_sorted_axis(name, in[0], axis);
  return in[0].with_dtype(i32);
}

void Argsort::reference(std::span<const HostView> in, const HostView& out) const {
  for_each_sorted(in[0], out, axis, descending,
                  [&](Lane y, const auto&, const std::vector<std::int64_t>& order) {
                    for (std::size_t i = 0; i < order.size(); ++i)
                      store_int64(i32, y.base + static_cast<std::int64_t>(i) * y.step, order[i]);
                  });
}

double Argsort::flops(std::span<const Shape> in, const Shape&) const {
  return comparisons(in[0], axis);
}

Shape Searchsorted::infer(std::span<const Shape> in) const {
  const Shape &sorted = in[0], &values = in[1];
  if (sorted.rank() == 0)  // C1
    fail(Errc::bad_shape, name, fmt::format("{} has no axis", to_string(sorted)));
  require_number(name, sorted);  // C2
  bool fits = sorted.dtype() == values.dtype();
  if (sorted.rank() > 1) {
    fits = fits && sorted.rank() == values.rank();
    for (int i = 0; fits && i + 1 < sorted.rank(); ++i) fits = sizes_agree(sorted[i], values[i]);
  }
  if (!fits)  // C3
    fail(Errc::shape_mismatch, name, fmt::format("{} do not fit", list_shapes(in)));
  if (sorted[sorted.rank() - 1] > most_i32)  // C4
    fail(Errc::limit_exceeded, name, fmt::format("{} needs i64 indices", to_string(sorted)));
  return values.with_dtype(i32);
}

void Searchsorted::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &sorted = in[0], &values = in[1];
  const DType dtype = values.shape.dtype();
  const auto outer = static_cast<std::size_t>(sorted.shape.rank() - 1);
  const std::int64_t size = sorted.shape[sorted.shape.rank() - 1];
  for_each_index(out.shape, [&](std::span<const std::int64_t> position) {
    const std::byte* row = sorted.at(position.first(outer));
    const std::byte* value = values.at(position);
    const auto search = [&](auto&& load) {
      const auto wanted = load(value);
      std::int64_t begin = 0, end = size;
      while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        const auto element = load(row + middle * sorted.strides[outer]);
        const bool is_before = right ? !is_below(wanted, element) : is_below(element, wanted);
        (is_before ? begin : end) = is_before ? middle + 1 : middle;
      }
      store_int64(i32, out.at(position), begin);
    };
    if (is_integer(dtype)) {
      search([&](const std::byte* element) { return load_as_int64(dtype, element); });
    } else {
      search([&](const std::byte* element) { return load_as_double(dtype, element); });
    }
  });
}

Tensor sort(const Tensor& x, const AxisRef& axis, bool descending,
            const std::source_location& where) {
  return record(Sort{.axis = axis_of(x, axis, Sort::name, where), .descending = descending}, {x},
                where);
}

Tensor argsort(const Tensor& x, const AxisRef& axis, bool descending,
               const std::source_location& where) {
  return record(Argsort{.axis = axis_of(x, axis, Argsort::name, where), .descending = descending},
                {x}, where);
}

SortResult sort_with_indices(const Tensor& x, const AxisRef& axis, bool descending,
                             const std::source_location& where) {
  const Tensor indices = argsort(x, axis, descending, where);
  return {take_along(x, indices, axis, where), indices};
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right,
                    const std::source_location& where) {
  return record(Searchsorted{.right = right}, {sorted, values}, where);
}

namespace {

/// Whether each element of an ascending array is the first of its value.
Tensor is_first(const Tensor& ascending, const std::source_location& where) {
  const Tensor before = slice(pad(ascending, 0, 1, 0, 0.0, where), 0, 0, -1, 1, where);
  Tensor differs = ne(ascending, before, where);
  if (is_floating(ascending.dtype(where)))
    differs = logical_and(differs, logical_not(is_nan(before, where), where), where);
  const Tensor place = iota(ascending, 0, i64, 0, 1, where);
  return logical_or(differs, eq(place, scalar_like(place, 0, where), where), where);
}

}  // namespace

UniqueResult unique(const Tensor& x, std::int64_t capacity, double fill,
                    const std::source_location& where) {
  if (capacity < 0)
    fail_at(where, Errc::bad_argument, "unique", fmt::format("a capacity of {}", capacity));
  const Tensor row = flatten(x, 0, -1, where);
  const auto constant = [&](double value, DType dtype) {
    const Full op{.value = value, .dims = {capacity + 1}, .dtype = dtype};
    return located(where, "unique", [&] { return record_beside(x, op_def<Full>(), &op, where); });
  };
  const auto front = [&](const Tensor& all) { return slice(all, 0, 0, capacity, 1, where); };
  const Tensor one = scalar_like(iota(row, 0, i64, 0, 1, where), 1, where);
  const auto marks = [&](const Tensor& ascending) {
    return cast(is_first(ascending, where), i64, where);
  };
  const auto numbers = [&](const Tensor& ascending) {
    return sub(cumsum(marks(ascending), 0, where), one, where);
  };
  // Elements beyond the capacity go to one more place, which is cut off.
  const auto places = [&](const Tensor& number) {
    return minimum(number, scalar_like(number, static_cast<double>(capacity), where), where);
  };
  const Tensor ascending = sort(row, 0, false, where);
  const Tensor number = numbers(ascending);
  const Tensor count = sum(marks(ascending), {}, false, where);
  const Tensor values =
      scatter(constant(fill, x.dtype(where)), places(number), ascending, 0, {}, where);
  const Tensor counts = scatter(constant(0, i64), places(number), one, 0, "add", where);
  const Tensor order = argsort(row, 0, false, where);
  const Tensor flat_inverse = scatter(filled_like(row, 0, i64, where), order,
                                      numbers(take_along(row, order, 0, where)), 0, {}, where);
  const Tensor inverse = reshape_like(flat_inverse, x, where);
  return {front(values), count, inverse, front(counts)};
}

}  // namespace tenon
