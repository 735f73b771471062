#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(scatter, Scatter);

Scatter::Mode Scatter::combination() const {
  constexpr std::array<std::string_view, 5> words{"set", "add", "mul", "min", "max"};
  if (mode.empty()) return Mode::set;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == mode.text()) return static_cast<Mode>(i);
  }
  fail(Errc::bad_attribute, name,
       fmt::format("mode '{}' is none of set, add, mul, min, max", mode.text()));  // C5
}

Shape Scatter::infer(std::span<const Shape> in) const {
  const Shape &x = in[0], &index = in[1], &source = in[2];
  const int at = checked_axis(name, axis, x);  // C1
  require_index(name, index);                  // C2
  require_plain(name, x);                      // C3
  if (combination() != Mode::set) require_number(name, x);
  const auto refuse = [&](std::string_view why) {  // C4
    fail(Errc::shape_mismatch, name,
         fmt::format("{} along axis {}: {}", list_shapes(in), axis, why));
  };
  if (index.rank() != x.rank() || source.rank() != x.rank()) refuse("ranks differ");
  if (source.dtype() != x.dtype()) refuse("source is not of x's dtype");
  for (int i = 0; i < x.rank(); ++i) {
    if (!sizes_agree(index[i], source[i])) refuse("sizes of index and source differ");
    if (i != at && is_static(index[i]) && is_static(x[i]) && index[i] > x[i])
      refuse("index is larger than x");
  }
  return x;
}

namespace {

double combined(Scatter::Mode mode, double a, double b) noexcept {
  switch (mode) {
    case Scatter::Mode::set:
      return b;
    case Scatter::Mode::add:
      return a + b;
    case Scatter::Mode::mul:
      return a * b;
    case Scatter::Mode::min:
      return std::isnan(a) || a <= b ? a : b;
    case Scatter::Mode::max:
      return std::isnan(a) || a >= b ? a : b;
  }
  return b;
}

std::int64_t combined(Scatter::Mode mode, std::int64_t a, std::int64_t b) noexcept {
  switch (mode) {
    case Scatter::Mode::set:
      return b;
    case Scatter::Mode::add:
      return wrapping_add(a, b);
    case Scatter::Mode::mul:
      return wrapping_multiply(a, b);
    case Scatter::Mode::min:
      return std::min(a, b);
    case Scatter::Mode::max:
      return std::max(a, b);
  }
  return b;
}

}  // namespace

void Scatter::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &index = in[1], &source = in[2];
  const auto along = static_cast<int>(axis);
  const auto at = static_cast<std::size_t>(axis);
  const DType dtype = out.shape.dtype();
  const Mode combination_mode = combination();
  const auto size = static_cast<std::size_t>(out.shape[along]);
  const std::int64_t count = index.shape[along];
  std::vector<double> reals(size);
  std::vector<std::int64_t> integers(size);
  const auto scatter_lane = [&](auto& lane, std::span<const std::int64_t> position, auto&& load) {
    const std::byte* places = index.at(position);
    const std::byte* values = source.at(position);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = load_as_int64(index.shape.dtype(), places + i * index.strides[at]);
      if (place < 0 || place >= out.shape[along]) {
        fail(Errc::out_of_range, name,
             fmt::format("index {} outside [0, {}), axis {} of {}", place, out.shape[along], axis,
                         to_string(out.shape)));
      }
      auto& element = lane[static_cast<std::size_t>(place)];
      element = combined(combination_mode, element, load(values + i * source.strides[at]));
    }
  };
  // Lane by lane: a lane outside of index's sizes stays as it is.
  for_each_index(out.shape.with_dim(along, 1), [&](std::span<const std::int64_t> position) {
    const std::byte* from = in[0].at(position);
    std::byte* to = out.at(position);
    bool has_updates = true;
    for (int i = 0; i < out.shape.rank(); ++i) {
      has_updates =
          has_updates && (i == along || position[static_cast<std::size_t>(i)] < index.shape[i]);
    }
    const auto run = [&](auto& lane, auto&& load, auto&& store) {
      for (std::size_t i = 0; i < size; ++i)
        lane[i] = load(from + static_cast<std::int64_t>(i) * in[0].strides[at]);
      if (has_updates) scatter_lane(lane, position, load);
      for (std::size_t i = 0; i < size; ++i)
        store(to + static_cast<std::int64_t>(i) * out.strides[at], lane[i]);
    };
    if (is_floating(dtype)) {
      run(
          reals, [&](const std::byte* element) { return load_as_double(dtype, element); },
          [&](std::byte* element, double value) { store_double(dtype, element, value); });
    } else if (is_stored(dtype)) {  // only replaced: bits are moved
      const auto bytes = static_cast<std::size_t>(block_bytes(dtype));
      run(
          integers,
          [&](const std::byte* element) {
            std::int64_t bits = 0;
            std::memcpy(&bits, element, bytes);
            return bits;
          },
          [&](std::byte* element, std::int64_t bits) { std::memcpy(element, &bits, bytes); });
    } else {
      run(
          integers, [&](const std::byte* element) { return load_as_int64(dtype, element); },
          [&](std::byte* element, std::int64_t value) {
            store_int64(dtype, element, wrap_to(dtype, value));
          });
    }
  });
}

namespace {

/// The elements of `x` that an index of these sizes refers to.
Tensor at_index(const Tensor& x, const Tensor& index, int axis) {
  Tensor part = x;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = index.shape()[i];
    if (i == axis || size == x.shape()[i]) continue;
    part = is_static(size) ? slice(part, i, 0, size) : gather(part, iota(index, i, i64), i);
  }
  return take_along(part, index, axis);
}

/// Which elements of the source are still there: of equal indices the last one's.
Tensor survivors(const Tensor& x, const Tensor& index, int axis) {
  Tensor number = iota(index, axis, i64);
  for (int i = axis + 1; i < index.rank(); ++i) number = unsqueeze(number, -1);
  const Tensor place = broadcast_like(number, index);
  const Tensor last = scatter(filled_like(x, -1, i64), index, place, axis);
  return eq(at_index(last, index, axis), place);
}

}  // namespace

std::vector<Tensor> Scatter::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &index = at.inputs[1], &source = at.inputs[2];
  const Tensor& g = at.upstream;
  const auto along = static_cast<int>(axis);
  const auto picked = [&](const Tensor& value) { return at_index(value, index, along); };
  switch (combination()) {
    case Mode::set:
      return {scatter(g, index, filled_like(source, 0), along),
              {},
              tenon::where(survivors(x, index, along), picked(g), filled_like(source, 0))};
    case Mode::add:
      return {g, {}, picked(g)};
    case Mode::mul: {
      // The product of all other factors of a source element: by division, unless one is zero.
      const Tensor zero = filled_like(source, 0), one = filled_like(source, 1);
      const Tensor is_zero = eq(source, zero);
      const Tensor others = scatter(x, index, tenon::where(is_zero, one, source), along, "mul");
      const Tensor zeros =
          picked(scatter(filled_like(x, 0), index, tenon::where(is_zero, one, zero), along, "add"));
      const Tensor product =
          tenon::where(eq(zeros, tenon::where(is_zero, one, zero)),
                       picked(others) / tenon::where(is_zero, one, source), zero);
      return {scatter(g, index, source, along, "mul"), {}, picked(g) * product};
    }
    case Mode::min:
    case Mode::max: {
      const Tensor of_x = eq(x, at.output), of_source = eq(source, picked(at.output));
      const Tensor count =
          scatter(cast(of_x, x.dtype()), index, cast(of_source, x.dtype()), along, "add");
      const Tensor part = g / count;
      return {tenon::where(of_x, part, filled_like(x, 0)),
              {},
              tenon::where(of_source, picked(part), filled_like(source, 0))};
    }
  }
  return {};
}

Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, const AxisRef& axis,
               Name mode, const std::source_location& where) {
  Scatter op{.axis = axis_of(x, axis, Scatter::name, where), .mode = mode};
  if (mode == Name("set")) op.mode = {};  // one spelling
  const Shape& sizes = index.shape(where);
  const Tensor values =
      source.shape(where).dims().size() == sizes.dims().size() &&
              std::ranges::equal(source.shape(where).dims(), sizes.dims())
          ? source
          : located(where, Scatter::name, [&] { return broadcast_like(source, index, where); });
  return record(op, {x, index, values}, where);
}

Tensor put_along(const Tensor& x, const Tensor& index, const Tensor& source, const AxisRef& axis,
                 const std::source_location& where) {
  return scatter(x, index, source, axis, {}, where);
}

Tensor index_put(const Tensor& x, const Tensor& index, const Tensor& source, const AxisRef& axis,
                 Name mode, const std::source_location& where) {
  const int at = axis_of(x, axis, "index_put", where);
  const Shape &sizes = x.shape(where), &picks = index.shape(where);
  std::vector<std::int64_t> dims(sizes.dims().begin(), sizes.dims().begin() + at);
  dims.insert(dims.end(), picks.dims().begin(), picks.dims().end());
  dims.insert(dims.end(), sizes.dims().begin() + at + 1, sizes.dims().end());
  // The axes of index become one, which stands where x has its own.
  const int rank = picks.rank();
  Tensor values = std::ranges::equal(source.shape(where).dims(), dims, sizes_agree)
                      ? source
                      : broadcast_to(source, std::span<const std::int64_t>(dims), where);
  Tensor places = index;
  if (rank == 0) {
    values = unsqueeze(values, at, {}, where);
    places = unsqueeze(places, 0, {}, where);
  } else if (rank > 1) {
    values = merge_axes(values, at, at + rank - 1, {}, where);
    places = merge_axes(places, 0, rank - 1, {}, where);
  }
  for (int i = at + 1; i < sizes.rank(); ++i) places = unsqueeze(places, -1, {}, where);
  const std::vector<Name> no_tags(static_cast<std::size_t>(places.rank()));
  places = broadcast_like(places.with_tags(no_tags), values, where);
  return scatter(x, places, values, at, mode, where);
}

Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, const AxisRef& axis,
                 const std::source_location& where) {
  return index_put(x, index, source, axis, "add", where);
}

namespace {

/// Several indices as one into the merged axes of x: `places`, and x with those axes merged.
struct FlatIndices {
  Tensor x, places;
};

FlatIndices flat_indices(std::string_view op, const Tensor& x, const Tensor& indices,
                         int batch_axes, const std::source_location& where) {
  const Shape &from = x.shape(where), &by = indices.shape(where);
  const auto refuse = [&](Errc code, std::string_view why) {
    fail_at(where, code, op, fmt::format("{} by {}: {}", to_string(from), to_string(by), why));
  };
  if (batch_axes < 0 || batch_axes >= std::min(from.rank(), by.rank()))
    refuse(Errc::bad_argument, fmt::format("{} batch axes", batch_axes));
  const std::int64_t selected = by[by.rank() - 1];
  if (!is_static(selected) || selected > from.rank() - batch_axes || selected < 1)
    refuse(Errc::shape_mismatch, "the last axis selects from no axes that x has");
  const int merged = batch_axes + static_cast<int>(selected);
  for (int i = 0; i < merged; ++i) {
    if (i < batch_axes && !sizes_agree(from[i], by[i]))
      refuse(Errc::shape_mismatch, "batch sizes differ");
  }
  located(where, op, [&] { require_index(op, by); });
  // The place among the merged axes; -1 where an index is out of range, which gather refuses.
  const Tensor wide =
      cast(indices.with_tags(std::vector<Name>(static_cast<std::size_t>(by.rank()))), i64, where);
  Tensor place, valid;
  for (int i = 0; i < static_cast<int>(selected); ++i) {
    const Tensor index = squeeze(slice(wide, -1, i, i + 1, 1, where), -1, where);
    const Tensor size = size_along(x, batch_axes + i, i64);
    const Tensor inside =
        logical_and(ge(index, scalar_like(index, 0, where), where), lt(index, size, where), where);
    place = i == 0 ? index : add(mul(place, size, where), index, where);
    valid = i == 0 ? inside : logical_and(valid, inside, where);
  }
  Tensor stride;  // elements of the merged axes for each place along a batch axis
  for (int i = batch_axes; batch_axes > 0 && i < merged; ++i) {
    const Tensor size = size_along(x, i, i64);
    stride = stride.is_empty() ? size : mul(stride, size, where);
  }
  for (int i = batch_axes - 1; i >= 0; --i) {
    Tensor number = iota(wide, i, i64, 0, 1, where);
    for (int j = i + 1; j < by.rank() - 1; ++j) number = unsqueeze(number, -1, {}, where);
    place = add(place, mul(number, stride, where), where);
    if (i > 0) stride = mul(stride, size_along(x, i, i64), where);
  }
  place = tenon::where(valid, place, scalar_like(place, -1, where), where);
  return {merged == 1 ? x : merge_axes(x, 0, merged - 1, {}, where), place};
}

}  // namespace

Tensor gather_nd(const Tensor& x, const Tensor& indices, int batch_axes,
                 const std::source_location& where) {
  const FlatIndices flat = flat_indices("gather_nd", x, indices, batch_axes, where);
  return gather(flat.x, flat.places, 0, where);
}

Tensor scatter_nd(const Tensor& x, const Tensor& indices, const Tensor& source, Name mode,
                  const std::source_location& where) {
  const FlatIndices flat = flat_indices("scatter_nd", x, indices, 0, where);
  const Tensor result = index_put(flat.x, flat.places, source, 0, mode, where);
  const Shape& shape = x.shape(where);
  const std::int64_t selected = indices.shape(where)[indices.rank(where) - 1];
  if (selected == 1) return result;
  if (!shape.is_static()) return reshape_like(result, x, where);
  IntList sizes;
  for (int i = 0; i < static_cast<int>(selected); ++i) sizes.push_back(shape[i]);
  std::vector<Axis> axes;
  for (int i = 0; i < shape.rank(); ++i) axes.push_back(shape.axis_at(i));
  return tagged(record(SplitAxis{.axis = 0, .sizes = sizes}, {result}, where), axes, "scatter_nd",
                where);
}

}  // namespace tenon
