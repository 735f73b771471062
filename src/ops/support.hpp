// Shared by ops: checks with the messages of their numbered constraints, and access to strided
// operands in reference kernels.
#pragma once

#include <tenon/host_view.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tenon {

/// An attribute axis, which builders have made non-negative: within [0, rank).
inline int checked_axis(std::string_view op, std::int64_t axis, const Shape& shape) {
  if (axis < 0 || axis >= shape.rank()) {
    fail(Errc::axis_out_of_range, op,
         fmt::format("axis {} out of range for {}", axis, to_string(shape)));
  }
  return static_cast<int>(axis);
}

inline void require_floating(std::string_view op, const Shape& shape) {
  if (!is_floating(shape.dtype())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("needs a floating type, got {}", to_string(shape)));
  }
}

inline void require_values(std::string_view op, const Shape& shape) {
  if (!is_floating(shape.dtype()) && !is_block(shape.dtype())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("needs a floating or a block type, got {}", to_string(shape)));
  }
}

/// Whether two sizes can be the same: equal, or one of them not known yet.
inline bool sizes_agree(std::int64_t a, std::int64_t b) noexcept {
  return a == b || !is_static(a) || !is_static(b);
}

/// Of two sizes that agree, the known one.
inline std::int64_t known_size(std::int64_t a, std::int64_t b) noexcept {
  if (is_static(a)) return a;
  if (is_static(b)) return b;
  return is_symbol(a) ? a : b;
}

/// A strided walk along one axis of a view: element i of the slice at `base`.
struct Lane {
  std::byte* base;
  std::int64_t step;
  DType dtype;
  double load(std::int64_t i) const noexcept { return load_as_double(dtype, base + i * step); }
  void store(std::int64_t i, double value) const noexcept {
    store_double(dtype, base + i * step, value);
  }
};

/// Calls visit(input lane, output lane) for each slice along `axis` of two views with equal sizes
/// outside `axis`.
template <class Visit>
void for_each_lane(const HostView& in, const HostView& out, int axis, Visit&& visit) {
  const auto a = static_cast<std::size_t>(axis);
  const Shape outer = in.shape.with_dtype(out.shape.dtype()).with_dim(axis, 1);
  if (in.shape[axis] == 0 && out.shape[axis] == 0) return;
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    visit(Lane{in.at(index), in.strides[a], in.shape.dtype()},
          Lane{out.at(index), out.strides[a], out.shape.dtype()});
  });
}

}  // namespace tenon
