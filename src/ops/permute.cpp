#include "ops/builder.hpp"
#include "ops/support.hpp"
#include "ops/view.hpp"

#include <tenon/ops/permute.hpp>

#include <utility>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(permute, Permute);

Shape Permute::infer(std::span<const Shape> in) const {
  const int rank = in[0].rank();
  const auto refuse = [&](std::string_view why) {
    fail(Errc::bad_argument, name,
         fmt::format("order [{}] {} {}", fmt::join(order.span(), ", "), why, to_string(in[0])));
  };
  if (order.size() != static_cast<std::size_t>(rank))
    refuse("has not one entry per axis of");  // C1
  std::vector<Axis> axes;
  std::array<bool, max_rank> taken{};
  for (const std::int64_t entry : order) {
    const int axis = checked_axis(name, entry, in[0]);                        // C2
    if (taken[static_cast<std::size_t>(axis)]) refuse("repeats an axis of");  // C3
    taken[static_cast<std::size_t>(axis)] = true;
    axes.push_back(in[0].axis_at(axis));
  }
  if (is_block(in[0].dtype()) && rank > 0 && order[order.size() - 1] != rank - 1) {  // C4
    fail(Errc::unsupported_dtype, name,
         fmt::format("blocks of {} run along its innermost axis", to_string(in[0])));
  }
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void Permute::reference(std::span<const HostView> in, const HostView& out) const {
  copy_through_view(*this, in[0], out);
}

bool Permute::view(const HostView& in, const Shape&, ViewPlacement& placement) const {
  placement = {};
  for (std::size_t i = 0; i < order.size(); ++i) {
    placement.strides[i] = in.strides[static_cast<std::size_t>(order[i])];
  }
  return true;
}

std::vector<Tensor> Permute::gradient(const Backward& at) const {
  Permute back = *this;
  for (std::size_t i = 0; i < order.size(); ++i) {
    back.order[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return {record(back, {at.upstream}, std::source_location::current())};
}

Tensor permute(const Tensor& x, std::initializer_list<AxisRef> order,
               const std::source_location& where) {
  return permute(x, std::span<const AxisRef>(order.begin(), order.size()), where);
}

Tensor permute(const Tensor& x, std::span<const AxisRef> order, const std::source_location& where) {
  return record(Permute{.order = axes_of(x, AxisList(order), Permute::name, where)}, {x}, where);
}

Tensor transpose(const Tensor& x, const AxisRef& a, const AxisRef& b,
                 const std::source_location& where) {
  const auto i = static_cast<std::size_t>(axis_of(x, a, "transpose", where));
  const auto j = static_cast<std::size_t>(axis_of(x, b, "transpose", where));
  Permute op{.order = axes_of(x, {}, Permute::name, where)};
  std::swap(op.order[i], op.order[j]);
  return record(op, {x}, where);
}

}  // namespace tenon
