#include "ops/rows.hpp"

#include <tenon/ops/quantize.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(quantize, Quantize);
TENON_DEFINE_OP(dequantize, Dequantize);

namespace {

/// Calls visit(row of `in`, row of `out`) for each slice along the last axis, which has elements.
template <class Visit>
void for_each_slice(const HostView& in, const HostView& out, Visit&& visit) {
  if (in.shape.elements() == 0) return;
  // A scalar block type cannot exist: rank >= 1.
  const Shape outer(in.shape.dims().first(static_cast<std::size_t>(in.shape.rank() - 1)),
                    DType::f32);
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    visit(slice_at(in, index), slice_at(out, index));
  });
}

}  // namespace

Shape Quantize::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  if (!is_block(dtype)) {  // C1
    fail(Errc::bad_attribute, name, fmt::format("dtype {} is no block type", tenon::name(dtype)));
  }
  if (!is_quantizable(dtype)) {  // C5
    fail(Errc::unsupported_dtype, name,
         fmt::format("writing {} takes an importance matrix, which the op has not: "
                     "tenon::quantize() takes one",
                     tenon::name(dtype)));
  }
  require_dtype(name, "x", x, DType::f32);  // C2
  if (x.rank() == 0) {                      // C3
    fail(Errc::shape_mismatch, name, fmt::format("x is a scalar: {}", to_string(x)));
  }
  const std::int64_t columns = x[x.rank() - 1];
  if (is_static(columns) && columns % block_size(dtype) != 0) {  // C4
    fail(Errc::bad_shape, name,
         fmt::format("the last axis of {} is not a multiple of {}'s block of {}", to_string(x),
                     tenon::name(dtype), block_size(dtype)));
  }
  return x.with_dtype(dtype);
}

void Quantize::reference(std::span<const HostView> in, const HostView& out) const {
  const auto last = static_cast<std::size_t>(in[0].shape.rank() - 1);
  const std::int64_t columns = in[0].shape[static_cast<int>(last)];
  std::vector<float> row(static_cast<std::size_t>(columns));
  for_each_slice(in[0], out, [&](const std::byte* from, std::byte* to) {
    for (std::int64_t i = 0; i < columns; ++i) {
      row[static_cast<std::size_t>(i)] =
          static_cast<float>(load_as_double(DType::f32, from + i * in[0].strides[last]));
    }
    tenon::quantize(dtype, row.data(), to, columns);
  });
}

Shape Dequantize::infer(std::span<const Shape> in) const {
  if (!is_floating(dtype)) {  // C1
    fail(Errc::bad_attribute, name, fmt::format("dtype {} is not floating", tenon::name(dtype)));
  }
  if (!is_block(in[0].dtype())) {  // C2
    fail(Errc::unsupported_dtype, name,
         fmt::format("x needs a block type, got {}", to_string(in[0])));
  }
  return in[0].with_dtype(dtype);
}

void Dequantize::reference(std::span<const HostView> in, const HostView& out) const {
  const auto columns = static_cast<std::size_t>(in[0].shape[in[0].shape.rank() - 1]);
  std::vector<double> row(columns);
  for_each_slice(in[0], out, [&](const std::byte* from, std::byte* to) {
    read_row(in[0].shape.dtype(), from, 0, row);
    write_row(row, dtype, to, block_bytes(dtype));
  });
}

Tensor quantize(const Tensor& x, DType dtype, const std::source_location& where) {
  return record(Quantize{.dtype = dtype}, {x}, where);
}

Tensor dequantize(const Tensor& x, DType dtype, const std::source_location& where) {
  return record(Dequantize{.dtype = dtype}, {x}, where);
}

}  // namespace tenon
