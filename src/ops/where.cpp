#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/gradient.hpp"

#include <tenon/ops/where.hpp>

#include <cstring>

namespace tenon {

TENON_DEFINE_OP(where, Where);

Shape Where::infer(std::span<const Shape> in) const {
  require_bool(name, in[0]);                         // C1
  require_same_dtype(name, in.subspan(1));           // C2
  require_plain(name, in[1]);                        // C3
  return broadcast_shapes(name, in, in[1].dtype());  // C4
}

void Where::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView condition = broadcast_view(in[0], out.shape);
  const HostView a = broadcast_view(in[1], out.shape), b = broadcast_view(in[2], out.shape);
  const auto size = static_cast<std::size_t>(block_bytes(out.shape.dtype()));
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const bool is_true = load_as_int64(boolean, condition.at(index)) != 0;
    std::memmove(out.at(index), (is_true ? a : b).at(index), size);  // in place: the same element
  });
}

std::vector<Tensor> Where::gradient(const Backward& at) const {
  const Tensor zero = scalar_like(at.upstream, 0);
  return {Tensor(), sum_to(tenon::where(at.inputs[0], at.upstream, zero), at.inputs[1].shape()),
          sum_to(tenon::where(at.inputs[0], zero, at.upstream), at.inputs[2].shape())};
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b,
             const std::source_location& line) {
  return record(Where{}, {condition, a, b}, line);
}

}  // namespace tenon
