#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/support.hpp"

#include <tenon/ops/gather.hpp>
#include <tenon/ops/scatter.hpp>

#include <cstring>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(gather, Gather);
TENON_DEFINE_OP(take_along, TakeAlong);

namespace {

/// The index at `element`, once it is known to be within the axis.
std::int64_t checked_index(std::string_view op, const HostView& index, const std::byte* element,
                           const Shape& in, int axis) {
  const std::int64_t value = load_as_int64(index.shape.dtype(), element);
  if (value < 0 || value >= in[axis]) {
    fail(Errc::out_of_range, op,
         fmt::format("index {} outside [0, {}), axis {} of {}", value, in[axis], axis,
                     to_string(in)));
  }
  return value;
}

}  // namespace

Shape Gather::infer(std::span<const Shape> in) const {
  const Shape &x = in[0], &index = in[1];
  const int at = checked_axis(name, axis, x);  // C1
  require_index(name, index);                  // C2
  require_plain(name, x);                      // C3
  std::vector<Axis> axes;
  for (int i = 0; i < at; ++i) axes.push_back(x.axis_at(i));
  for (int i = 0; i < index.rank(); ++i) axes.push_back(index.axis_at(i));
  for (int i = at + 1; i < x.rank(); ++i) axes.push_back(x.axis_at(i));
  try {
    return {std::span<const Axis>(axes), x.dtype()};
  } catch (const Error& error) {  // C4
    fail(error.code(), name,
         fmt::format("{} along axis {}: {}", list_shapes(in), axis, error.message()));
  }
}

void Gather::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &x = in[0], &index = in[1];
  const auto at = static_cast<std::size_t>(axis);
  const auto picked = static_cast<std::size_t>(index.shape.rank());
  // One slice at a time: x without its axis, the output at one index.
  const Shape slice = x.shape.without_axis(static_cast<int>(axis));
  Strides from{}, to{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(slice.rank()); ++i) {
    from[i] = x.strides[i < at ? i : i + 1];
    to[i] = out.strides[i < at ? i : i + picked];
  }
  for_each_index(index.shape, [&](std::span<const std::int64_t> position) {
    const std::int64_t row =
        checked_index(name, index, index.at(position), x.shape, static_cast<int>(axis));
    std::byte* place = out.data;
    for (std::size_t i = 0; i < picked; ++i) place += position[i] * out.strides[at + i];
    copy_elements({x.data + row * x.strides[at], slice, from}, {place, slice, to});
  });
}

Shape TakeAlong::infer(std::span<const Shape> in) const {
  const Shape &x = in[0], &index = in[1];
  const int at = checked_axis(name, axis, x);  // C1
  require_index(name, index);                  // C2
  require_plain(name, x);                      // C3
  if (index.rank() != x.rank()) {              // C4
    fail(Errc::shape_mismatch, name, fmt::format("ranks of {} differ", list_shapes(in)));
  }
  Shape result = index.with_dtype(x.dtype());
  for (int i = 0; i < x.rank(); ++i) {
    const Name tag = x.tag(i);
    const bool same_tag = tag.empty() || index.tag(i).empty() || tag == index.tag(i);
    if (!same_tag || (i != at && !sizes_agree(x[i], index[i]))) {
      fail(Errc::shape_mismatch, name,
           fmt::format("{} along axis {}: axis {} differs", list_shapes(in), axis, i));
    }
    if (i != at) result = result.with_dim(i, known_size(x[i], index[i]));
    if (!tag.empty()) result = result.with_tag(i, tag);
  }
  return result;
}

void TakeAlong::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &x = in[0], &index = in[1];
  const auto at = static_cast<std::size_t>(axis);
  const auto size = static_cast<std::size_t>(block_bytes(x.shape.dtype()));
  for_each_index(out.shape, [&](std::span<const std::int64_t> position) {
    const std::int64_t row =
        checked_index(name, index, index.at(position), x.shape, static_cast<int>(axis));
    const std::byte* element = x.at(position) + (row - position[at]) * x.strides[at];
    std::memcpy(out.at(position), element, size);
  });
}

std::vector<Tensor> Gather::gradient(const Backward& at) const {
  const Tensor zeros = filled_like(at.inputs[0], 0);
  return {index_add(zeros, at.inputs[1], at.upstream, axis), Tensor()};
}

std::vector<Tensor> TakeAlong::gradient(const Backward& at) const {
  const Tensor zeros = filled_like(at.inputs[0], 0);
  return {scatter(zeros, at.inputs[1], at.upstream, axis, "add"), Tensor()};
}

Tensor gather(const Tensor& x, const Tensor& index, const AxisRef& axis,
              const std::source_location& where) {
  return record(Gather{.axis = axis_of(x, axis, Gather::name, where)}, {x, index}, where);
}

Tensor take_along(const Tensor& x, const Tensor& index, const AxisRef& axis,
                  const std::source_location& where) {
  return record(TakeAlong{.axis = axis_of(x, axis, TakeAlong::name, where)}, {x, index}, where);
}

}  // namespace tenon
