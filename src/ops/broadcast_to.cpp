#include "ops/broadcast.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"
#include "ops/view.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/reduce.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(broadcast_to, BroadcastTo);

Shape BroadcastTo::infer(std::span<const Shape> in) const {
  require_plain(name, in[0]);  // C3
  const auto refuse = [&](Errc code, std::string_view why) {
    fail(code, name,
         fmt::format("{} to [{}]: {}", to_string(in[0]), fmt::join(dims.span(), ", "), why));
  };
  const int added = static_cast<int>(dims.size()) - in[0].rank();
  if (added < 0) refuse(Errc::shape_mismatch, "fewer sizes than axes");  // C1
  std::vector<Axis> axes;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    const std::int64_t wanted = dims[static_cast<std::size_t>(i)];
    if (wanted < (i < added ? 0 : -1)) refuse(Errc::bad_shape, "a size is negative");  // C2
    if (i < added) {
      axes.emplace_back(wanted);
      continue;
    }
    const Axis own = in[0].axis_at(i - added);
    if (wanted >= 0 && own.size != 1 && !sizes_agree(own.size, wanted)) {  // C1
      refuse(Errc::shape_mismatch, "only axes of size 1 repeat");
    }
    axes.emplace_back(own.tag, wanted == -1 ? own.size : wanted);
  }
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void BroadcastTo::reference(std::span<const HostView> in, const HostView& out) const {
  copy_elements(broadcast_view(in[0], out.shape), out);
}

bool BroadcastTo::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  placement = {0, broadcast_view(in, out).strides};
  return true;
}

std::vector<Tensor> BroadcastTo::gradient(const Backward& at) const {
  return {sum_to(at.upstream, at.inputs[0].shape())};
}

Tensor broadcast_to(const Tensor& x, std::span<const std::int64_t> dims,
                    const std::source_location& where) {
  const IntList sizes = located(where, BroadcastTo::name, [&] { return IntList(dims); });
  return record(BroadcastTo{.dims = sizes}, {x}, where);
}

Tensor broadcast_to(const Tensor& x, std::initializer_list<Axis> dims,
                    const std::source_location& where) {
  std::vector<std::int64_t> sizes;
  for (const Axis& axis : dims) sizes.push_back(axis.size);
  return tagged(broadcast_to(x, sizes, where), {dims.begin(), dims.size()}, BroadcastTo::name,
                where);
}

namespace {

/// x with `count` copies along a new axis at `at`, merged with axis `axis` of x.
Tensor repeat(const Tensor& x, std::int64_t count, int axis, int at, std::string_view op,
              const std::source_location& where) {
  if (count < 0) {
    fail_at(where, Errc::bad_argument, op,
            fmt::format("{} times {}", count, to_string(x.shape(where))));
  }
  std::vector<std::int64_t> dims(static_cast<std::size_t>(x.rank(where)) + 1, -1);
  dims[static_cast<std::size_t>(at)] = count;
  const Tensor copies = broadcast_to(unsqueeze(x, at, {}, where), dims, where);
  return merge_axes(copies, axis, axis + 1, x.shape(where).tag(axis), where);
}

}  // namespace

Tensor repeat_interleave(const Tensor& x, std::int64_t count, const AxisRef& axis,
                         const std::source_location& where) {
  const int at = axis_of(x, axis, "repeat_interleave", where);
  return repeat(x, count, at, at + 1, "repeat_interleave", where);
}

Tensor tile(const Tensor& x, std::int64_t count, const AxisRef& axis,
            const std::source_location& where) {
  const int at = axis_of(x, axis, "tile", where);
  return repeat(x, count, at, at, "tile", where);
}

}  // namespace tenon
