// Stacks of matrices by numpy's rules: what products of matrices share.
#pragma once

#include "ops/rows.hpp"

#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {

inline std::string matrices_text(std::span<const Shape> in) {
  constexpr std::array<std::string_view, 4> names{"a", "b", "a_zero", "b_zero"};
  return operands_text(names, in);
}

/// One leading axis of the result: equal sizes, or a 1 that broadcasts.
inline Axis broadcast_axis(std::string_view op, const Axis& a, const Axis& b,
                           const std::string& operands) {
  const bool tags_agree = a.tag.empty() || b.tag.empty() || a.tag == b.tag;
  if (!tags_agree || (a.size != 1 && b.size != 1 && !sizes_agree(a.size, b.size))) {
    fail(Errc::shape_mismatch, op, fmt::format("leading axes do not broadcast: {}", operands));
  }
  const Name tag = a.tag.empty() ? b.tag : a.tag;
  if (a.size == 1 || a.size == b.size) return {tag, b.size};
  if (b.size == 1) return {tag, a.size};
  // At least one of them is symbolic, and may be a 1 that broadcasts.
  const std::int64_t known = known_size(a.size, b.size);
  return {tag, is_static(known) ? known : unknown_dim};
}

/// An operand as a stack of matrices of `lines` vectors along the contracted axis.
struct MatrixStack {
  const HostView& view;
  int leading;               ///< number of leading axes
  std::int64_t lines;        ///< M or N
  std::int64_t line_step;    ///< bytes from vector to vector
  std::int64_t length;       ///< K
  std::int64_t length_step;  ///< bytes within a vector

  MatrixStack(const HostView& operand, bool is_left)
      : view(operand), leading(std::max(operand.shape.rank() - 2, 0)) {
    const int rank = operand.shape.rank();
    const int along = is_left || rank == 1 ? rank - 1 : rank - 2;
    length = operand.shape[along];
    length_step = operand.strides[static_cast<std::size_t>(along)];
    const int across = is_left ? rank - 2 : rank - 1;
    lines = rank == 1 ? 1 : operand.shape[across];
    line_step = rank == 1 ? 0 : operand.strides[static_cast<std::size_t>(across)];
  }

  /// The matrix at an index of the result's leading axes.
  const std::byte* matrix(std::span<const std::int64_t> index) const noexcept {
    const std::byte* address = view.data;
    const std::size_t skipped = index.size() - static_cast<std::size_t>(leading);
    for (std::size_t i = 0; i < static_cast<std::size_t>(leading); ++i) {
      if (view.shape[static_cast<int>(i)] != 1) address += index[skipped + i] * view.strides[i];
    }
    return address;
  }
};

/// The product of the first two of `in`, with the constraints that `Matmul` calls C3 to C6.
inline Shape matrix_product(std::string_view op, std::span<const Shape> in, DType dtype) {
  const Shape& a = in[0];
  const Shape& b = in[1];
  const std::string operands = matrices_text(in);
  if (a.rank() == 0 || b.rank() == 0) {
    fail(Errc::shape_mismatch, op, fmt::format("an operand is a scalar: {}", operands));
  }
  const int b_along = std::max(b.rank() - 2, 0);
  common_axis(op, a, a.rank() - 1, b, b_along, "the contracted axis", operands);

  const int a_leading = std::max(a.rank() - 2, 0);
  const int leading = std::max(a_leading, b_along);
  std::vector<Axis> axes;
  for (int i = 0; i < leading; ++i) {
    const int in_a = i - (leading - a_leading);
    const int in_b = i - (leading - b_along);
    if (in_a < 0 || in_b < 0) {
      axes.push_back(in_a < 0 ? b.axis_at(in_b) : a.axis_at(in_a));
    } else {
      axes.push_back(broadcast_axis(op, a.axis_at(in_a), b.axis_at(in_b), operands));
    }
  }
  if (a.rank() > 1) axes.push_back(a.axis_at(a.rank() - 2));
  if (b.rank() > 1) axes.push_back(b.axis_at(b.rank() - 1));
  require_distinct_tags(op, axes, operands);
  return {std::span<const Axis>(axes), dtype};
}

}  // namespace tenon
