#include "array/element.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/cast.hpp>

#include <type_traits>
#include <vector>
namespace tenon {

TENON_DEFINE_OP(cast, Cast);

Shape Cast::infer(std::span<const Shape> in) const {
  require_plain(name, in[0]);       // C1
  if (is_complex(in[0].dtype())) {  // C3
    fail(Errc::unsupported_dtype, name,
         fmt::format("{} to {} would drop the imaginary parts: real() does so", to_string(in[0]),
                     tenon::name(dtype)));
  }
  if (is_complex(dtype)) {  // C4
    fail(Errc::unsupported_dtype, name,
         fmt::format("{} to {}: builders record it as a pad and a bitcast", to_string(in[0]),
                     tenon::name(dtype)));
  }
  if (is_block(dtype)) {  // C2
    fail(Errc::unsupported_dtype, name,
         fmt::format("{} to {}: that takes quantize", to_string(in[0]), tenon::name(dtype)));
  }
  return in[0].with_dtype(dtype);
}

void Cast::reference(std::span<const HostView> in, const HostView& out) const {
  element::visit_plain(in[0].shape.dtype(), [&]<class From>(std::type_identity<From>) {
    element::visit_plain(dtype, [&]<class To>(std::type_identity<To>) {
      for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
        element::store(out.at(index), element::convert<To>(element::load<From>(in[0].at(index))));
      });
    });
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
