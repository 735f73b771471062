#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/slice.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(concat, Concat);

Shape Concat::infer(std::span<const Shape> in) const {
  const int along = checked_axis(name, axis, in[0]);  // C1
  Shape result = in[0];
  for (const Shape& part : in.subspan(1)) {
    const Shape pair[] = {in[0], part};
    if (part.dtype() != result.dtype() || part.rank() != result.rank()) {  // C2
      fail(Errc::shape_mismatch, name,
           fmt::format("types or ranks of {} differ", list_shapes(pair)));
    }
    for (int i = 0; i < part.rank(); ++i) {
      const Name tag = part.tag(i);
      const bool same_tag = tag.empty() || result.tag(i).empty() || tag == result.tag(i);
      if (!same_tag || (i != along && !sizes_agree(part[i], result[i]))) {  // C3
        fail(Errc::shape_mismatch, name,
             fmt::format("{} do not join along axis {}: axis {} differs", list_shapes(pair), axis,
                         i));
      }
      if (!tag.empty()) result = result.with_tag(i, tag);
      if (i != along) {
        result = result.with_dim(i, known_size(result[i], part[i]));
      } else if (is_static(part[i]) && is_static(result[i])) {
        result = result.with_dim(i, checked_add(result[i], part[i]));
      } else {
        result = result.with_dim(i, unknown_dim);
      }
    }
  }
  return result;
}

void Concat::reference(std::span<const HostView> in, const HostView& out) const {
  const auto along = static_cast<std::size_t>(axis);
  const bool innermost = axis == out.shape.rank() - 1;
  const std::int64_t block = innermost ? block_size(out.shape.dtype()) : 1;
  std::byte* place = out.data;
  for (const HostView& part : in) {
    copy_elements(part, {place, part.shape, out.strides});
    place += part.shape[static_cast<int>(axis)] / block * out.strides[along];
  }
}

namespace {

/// The gradients of parts whose sizes are not all known: what stands at their places in the whole.
std::vector<Tensor> open_parts(const Backward& at, std::int64_t axis) {
  std::vector<Tensor> parts;
  Tensor begin;
  for (const Tensor& input : at.inputs) {
    const Tensor places = iota(input, axis, i64), size = size_along(input, axis, i64);
    parts.push_back(gather(at.upstream, begin.is_empty() ? places : places + begin, axis));
    begin = begin.is_empty() ? size : begin + size;
  }
  return parts;
}

}  // namespace

std::vector<Tensor> Concat::gradient(const Backward& at) const {
  if (!is_static(at.upstream.dim(axis))) return open_parts(at, axis);
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const Tensor& input : at.inputs) {
    const std::int64_t end = begin + input.dim(axis);
    parts.push_back(slice(at.upstream, axis, begin, end));
    begin = end;
  }
  return parts;
}

Tensor concat(std::initializer_list<Tensor> parts, const AxisRef& axis,
              const std::source_location& where) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis, where);
}

Tensor concat(std::span<const Tensor> parts, const AxisRef& axis,
              const std::source_location& where) {
  if (parts.empty()) fail_at(where, Errc::bad_argument, Concat::name, "no arrays");
  return record(Concat{.axis = axis_of(parts[0], axis, Concat::name, where)}, parts, where);
}

Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis, Name tag,
             const std::source_location& where) {
  return stack(std::span<const Tensor>(parts.begin(), parts.size()), axis, tag, where);
}

Tensor stack(std::span<const Tensor> parts, std::int64_t axis, Name tag,
             const std::source_location& where) {
  std::vector<Tensor> layers;
  for (const Tensor& part : parts) {
    if (part.rank(where) != parts[0].rank(where)) {
      const Shape pair[] = {parts[0].shape(where), part.shape(where)};
      fail_at(where, Errc::shape_mismatch, "stack",
              fmt::format("ranks of {} differ", list_shapes(pair)));
    }
    layers.push_back(unsqueeze(part, axis, tag, where));
  }
  return concat(layers, axis, where);
}

}  // namespace tenon
