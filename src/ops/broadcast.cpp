#include "ops/broadcast.hpp"

#include "ops/checks.hpp"

#include <tenon/error.hpp>
#include <tenon/op.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

[[noreturn]] void refuse(std::string_view op, std::span<const Shape> in, std::string_view why) {
  fail(Errc::shape_mismatch, op, fmt::format("{} do not broadcast: {}", list_shapes(in), why));
}

/// The size that two axes broadcast to; false when they do not.
bool broadcast_size(std::int64_t a, std::int64_t b, std::int64_t& size) {
  if (a == b || b == 1) {
    size = a;
  } else if (a == 1) {
    size = b;
  } else if (is_static(a) && is_static(b)) {
    return false;
  } else {  // a known size other than 1 decides; of two unknown ones either may turn out to be 1
    size = is_static(a) ? a : is_static(b) ? b : unknown_dim;
  }
  return true;
}

}  // namespace

Shape broadcast_shapes(std::string_view op, std::span<const Shape> in, DType dtype) {
  int rank = 0;
  for (const Shape& shape : in) rank = std::max(rank, shape.rank());
  std::vector<Axis> axes(static_cast<std::size_t>(rank), Axis(1));
  for (const Shape& shape : in) {
    for (int i = 0; i < shape.rank(); ++i) {
      const int position = rank - shape.rank() + i;
      Axis& axis = axes[static_cast<std::size_t>(position)];
      if (!broadcast_size(axis.size, shape[i], axis.size)) {
        refuse(op, in, fmt::format("sizes differ along axis {}", position - rank));
      }
      const Name tag = shape.tag(i);
      if (!tag.empty() && !axis.tag.empty() && tag != axis.tag) {
        refuse(
            op, in,
            fmt::format("axis {} is '{}' and '{}'", position - rank, axis.tag.text(), tag.text()));
      }
      if (!tag.empty()) axis.tag = tag;
    }
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!axes[i].tag.empty() && axes[i].tag == axes[j].tag) {
        refuse(op, in, fmt::format("'{}' would tag axes {} and {}", axes[i].tag.text(), j, i));
      }
    }
  }
  return {std::span<const Axis>(axes), dtype};
}

HostView broadcast_view(const HostView& in, const Shape& out) {
  Strides strides{};
  const int added = out.rank() - in.shape.rank();
  for (int i = 0; i < in.shape.rank(); ++i) {
    const bool repeats = in.shape[i] == 1 && out[added + i] != 1;
    strides[static_cast<std::size_t>(added + i)] =
        repeats ? 0 : in.strides[static_cast<std::size_t>(i)];
  }
  return {in.data, out.with_dtype(in.shape.dtype()), strides};
}

}  // namespace tenon
