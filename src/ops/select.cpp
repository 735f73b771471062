#include "ops/gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/select.hpp>

#include <algorithm>
#include <array>

namespace tenon {

TENON_DEFINE_OP(select, Select);

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
  const HostView& x = in[0];
  const std::int64_t index = load_as_int64(in[1].shape.dtype(), in[1].data);
  if (index < 0 || index >= x.shape[0]) {
    fail(Errc::out_of_range, name, fmt::format("index {} outside [0, {})", index, x.shape[0]));
  }
  Strides strides{};
  std::copy(x.strides.begin() + 1, x.strides.end(), strides.begin());
  copy_elements(HostView(x.data + index * x.strides[0], out.shape, strides), out);
}

std::vector<Tensor> Select::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &index = at.inputs[1];
  Tensor is_chosen = eq(iota(x, 0, index.dtype()), index);
  for (int i = 1; i < x.rank(); ++i) is_chosen = unsqueeze(is_chosen, i);
  return {where(is_chosen, unsqueeze(at.upstream, 0), scalar_like(at.upstream, 0)), Tensor()};
}

Tensor select(const Tensor& x, const Tensor& index, const std::source_location& where) {
  return record(Select{}, {x, index}, where);
}

}  // namespace tenon
