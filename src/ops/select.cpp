#include "ops/gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/select.hpp>

#include <algorithm>
#include <array>

namespace tenon {

TENON_DEFINE_OP(select, Select);
TENON_DEFINE_OP(update_slice, UpdateSlice);

namespace {

/// The slice at `index`, and errors for an index outside.
HostView slice_of(std::string_view op, const HostView& x, const HostView& index,
                  const Shape& shape) {
  const std::int64_t at = load_as_int64(index.shape.dtype(), index.data);
  if (at < 0 || at >= x.shape[0]) {
    fail(Errc::out_of_range, op, fmt::format("index {} outside [0, {})", at, x.shape[0]));
  }
  Strides strides{};
  std::copy(x.strides.begin() + 1, x.strides.end(), strides.begin());
  return {x.data + at * x.strides[0], shape, strides};
}

/// bool [L, 1, ...] of x's rank: where axis 0 is at the index.
Tensor is_chosen(const Tensor& x, const Tensor& index) {
  Tensor chosen = eq(iota(x, 0, index.dtype()), index);
  for (int i = 1; i < x.rank(); ++i) chosen = unsqueeze(chosen, i);
  return chosen;
}

}  // namespace

Shape Select::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  const Shape& index = in[1];
  constexpr std::array<std::string_view, 2> names{"x", "index"};
  const std::string operands = operands_text(names, in);
  if (x.rank() < (is_block(x.dtype()) ? 2 : 1)) {  // C1
    fail(Errc::shape_mismatch, name, fmt::format("x has no axis to select from: {}", operands));
  }
  require_rank(name, "index", index, 0);  // C2
  if (!is_index_dtype(index.dtype())) {   // C3
    fail(Errc::unsupported_dtype, name, fmt::format("index needs i32 or i64: {}", operands));
  }
  return x.without_axis(0);
}

void Select::reference(std::span<const HostView> in, const HostView& out) const {
  copy_elements(slice_of(name, in[0], in[1], out.shape), out);
}

std::vector<Tensor> Select::gradient(const Backward& at) const {
  const Tensor zero = scalar_like(at.upstream, 0);
  const Tensor chosen = is_chosen(at.inputs[0], at.inputs[1]);
  return {where(chosen, unsqueeze(at.upstream, 0), zero), Tensor()};
}

Shape UpdateSlice::infer(std::span<const Shape> in) const {
  const Shape &x = in[0], &y = in[2];
  constexpr std::array<std::string_view, 3> names{"x", "index", "y"};
  const std::string operands = operands_text(names, in);
  if (x.rank() < 1 || y.rank() != x.rank() - 1) {  // C1
    fail(Errc::shape_mismatch, name, fmt::format("y is no slice of x: {}", operands));
  }
  for (int i = 0; i < y.rank(); ++i) common_axis(name, x, i + 1, y, i, "the slice", operands);
  require_rank(name, "index", in[1], 0);                        // C2
  if (is_block(x.dtype()) || !is_index_dtype(in[1].dtype())) {  // C3
    fail(Errc::unsupported_dtype, name,
         fmt::format("needs x of a plain type, index of i32 or i64: {}", operands));
  }
  if (x.dtype() != y.dtype()) {  // C4
    fail(Errc::shape_mismatch, name, fmt::format("dtypes of x and y differ: {}", operands));
  }
  return x;
}

void UpdateSlice::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView slice = slice_of(name, out, in[1], in[2].shape);
  if (out.data != in[0].data) copy_elements(in[0], out);
  copy_elements(in[2], slice);
}

std::vector<Tensor> UpdateSlice::gradient(const Backward& at) const {
  const Tensor zero = scalar_like(at.upstream, 0);
  const Tensor chosen = is_chosen(at.upstream, at.inputs[1]);
  return {where(chosen, zero, at.upstream), Tensor(), tenon::select(at.upstream, at.inputs[1])};
}

Tensor update_slice(const Tensor& x, const Tensor& index, const Tensor& y,
                    const std::source_location& where) {
  return record(UpdateSlice{}, {x, index, y}, where);
}

Tensor select(const Tensor& x, const Tensor& index, const std::source_location& where) {
  return record(Select{}, {x, index}, where);
}

}  // namespace tenon
