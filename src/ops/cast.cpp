#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/cast.hpp>

#include <vector>
namespace tenon {

TENON_DEFINE_OP(cast, Cast);

Shape Cast::infer(std::span<const Shape> in) const {
  require_plain(name, in[0]);  // C1
  if (is_block(dtype)) {       // C2
    fail(Errc::unsupported_dtype, name,
         fmt::format("{} to {}: that takes quantize", to_string(in[0]), tenon::name(dtype)));
  }
  return in[0].with_dtype(dtype);
}

void Cast::reference(std::span<const HostView> in, const HostView& out) const {
  const DType from = in[0].shape.dtype();
  if (is_floating(from)) return map_reals(in[0], out, [](double x) { return x; });
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_int64(dtype, out.at(index), load_as_int64(from, in[0].at(index)));
  });
}

std::vector<Tensor> Cast::gradient(const Backward& at) const {
  const DType from = at.inputs[0].dtype();
  return {is_floating(from) && is_floating(dtype) ? tenon::cast(at.upstream, from) : Tensor()};
}

Tensor cast(const Tensor& x, DType dtype, const std::source_location& where) {
  return x.dtype(where) == dtype ? x : record(Cast{.dtype = dtype}, {x}, where);
}

}  // namespace tenon
