#include "ops/view.hpp"

#include <tenon/ops/stop_gradient.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(stop_gradient, StopGradient);

Shape StopGradient::infer(std::span<const Shape> in) const { return in[0]; }

void StopGradient::reference(std::span<const HostView> in, const HostView& out) const {
  copy_through_view(*this, in[0], out);
}

bool StopGradient::view(const HostView& in, const Shape&, ViewPlacement& placement) const {
  placement = {0, in.strides};
  return true;
}

std::vector<Tensor> StopGradient::gradient(const Backward&) const { return {Tensor()}; }

Tensor stop_gradient(const Tensor& x, const std::source_location& where) {
  return record(StopGradient{}, {x}, where);
}

}  // namespace tenon
