// Shared by contractions: checks that two operands' axes agree, and rows of strided operands
// widened to double for the reference kernels.
#pragma once

#include "ops/support.hpp"

#include <tenon/host_view.hpp>
#include <tenon/op.hpp>
#include <tenon/quant.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon {

/// "x f32[2, 8], w q4_0[16, 8]": the operands as messages list them.
inline std::string operands_text(std::span<const std::string_view> names,
                                 std::span<const Shape> in) {
  std::string text;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (i > 0) text += ", ";
    if (i < names.size()) text += fmt::format("{} ", names[i]);
    text += to_string(in[i]);
  }
  return text;
}

/// The common axis of axis `i` of `a` and axis `j` of `b`: the known size, and the tag that either
/// has. Errc::shape_mismatch, with `operands`, where sizes or tags differ.
inline Axis common_axis(std::string_view op, const Shape& a, int i, const Shape& b, int j,
                        std::string_view what, const std::string& operands) {
  const Name left = a.tag(i);
  const Name right = b.tag(j);
  if (!sizes_agree(a[i], b[j]) || (!left.empty() && !right.empty() && left != right)) {
    fail(Errc::shape_mismatch, op, fmt::format("{} differs: {}", what, operands));
  }
  return {left.empty() ? right : left, known_size(a[i], b[j])};
}

/// Axes gathered from several operands need distinct tags: Errc::shape_mismatch asks for a rename.
inline void require_distinct_tags(std::string_view op, std::span<const Axis> axes,
                                  const std::string& operands) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!axes[i].tag.empty() && axes[i].tag == axes[j].tag) {
        fail(Errc::shape_mismatch, op,
             fmt::format("two axes of the result would be '{}', rename one: {}", axes[i].tag.text(),
                         operands));
      }
    }
  }
}

inline void require_rank(std::string_view op, std::string_view operand, const Shape& shape,
                         int rank) {
  if (shape.rank() != rank) {
    fail(Errc::shape_mismatch, op,
         fmt::format("{} needs rank {}, got {}", operand, rank, to_string(shape)));
  }
}

inline void require_dtype(std::string_view op, std::string_view operand, const Shape& shape,
                          DType dtype) {
  if (shape.dtype() != dtype) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("{} needs {}, got {}", operand, tenon::name(dtype), to_string(shape)));
  }
}

inline bool is_index_dtype(DType dtype) noexcept {
  return dtype == DType::i32 || dtype == DType::i64;
}

/// Address of the first element of the slice at `outer`, one index per leading axis.
inline std::byte* slice_at(const HostView& view, std::span<const std::int64_t> outer) noexcept {
  std::byte* address = view.data;
  for (std::size_t i = 0; i < outer.size(); ++i) address += outer[i] * view.strides[i];
  return address;
}

/// Elements along one axis from `first`, `step` bytes apart (ignored for block types, whose rows
/// are dense), widened to double. f64 keeps every bit.
inline void read_row(DType dtype, const std::byte* first, std::int64_t step,
                     std::span<double> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  const bool dense = is_block(dtype) || step == block_bytes(dtype);
  if (dense && dtype != DType::f64 && (is_block(dtype) || is_floating(dtype))) {
    std::vector<float> narrow(out.size());
    dequantize(dtype, first, narrow.data(), count);
    std::copy(narrow.begin(), narrow.end(), out.begin());
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[static_cast<std::size_t>(i)] = load_as_double(dtype, first + i * step);
  }
}

/// The other way: narrows to `dtype`, as quantize() does where it is a block type.
inline void write_row(std::span<const double> row, DType dtype, std::byte* first,
                      std::int64_t step) {
  if (is_block(dtype)) {
    const std::vector<float> narrow(row.begin(), row.end());
    quantize(dtype, narrow.data(), first, static_cast<std::int64_t>(row.size()));
    return;
  }
  for (const double value : row) {
    store_double(dtype, first, value);
    first += step;
  }
}

/// Every row (the innermost axis) of a view of rank >= 1, row-major and dense.
inline std::vector<double> read_rows(const HostView& view) {
  const int last = view.shape.rank() - 1;
  std::vector<double> values(static_cast<std::size_t>(view.shape.elements()));
  const auto columns = static_cast<std::size_t>(view.shape[last]);
  const Shape outer = Shape(view.shape.dims().first(static_cast<std::size_t>(last)), DType::f32);
  if (values.empty()) return values;
  std::size_t row = 0;
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    read_row(view.shape.dtype(), slice_at(view, index),
             view.strides[static_cast<std::size_t>(last)], std::span(values).subspan(row, columns));
    row += columns;
  });
  return values;
}

/// a . b in double, in eight partial sums: fast without reassociation by the compiler, and
/// bit-identical for all callers.
inline double dot_product(const double* a, const double* b, std::int64_t count) noexcept {
  constexpr std::int64_t lanes = 8;
  double partial[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) partial[j] += a[i + j] * b[i + j];
  }
  for (std::int64_t j = 0; i < count; ++i, ++j) partial[j] += a[i] * b[i];
  return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
         ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

}  // namespace tenon
