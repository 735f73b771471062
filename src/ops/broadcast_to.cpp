#include "array/size_text.hpp"
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

namespace {

/// x with as many axes as `sizes`, each of the size that `size_of(axis, own size)` returns.
template <class SizeOf>
Shape with_sizes(const Shape& x, int rank, SizeOf&& size_of) {
  std::vector<Axis> axes;
  for (int i = 0; i < rank; ++i) {
    const int own = i - (rank - x.rank());
    if (own < 0) {
      axes.emplace_back(size_of(i, std::int64_t{1}));
    } else {
      axes.emplace_back(x.tag(own), size_of(i, x[own]));
    }
  }
  return {std::span<const Axis>(axes), x.dtype()};
}

Shape infer_like(const Shape& x, const Shape& like) {
  const auto refuse = [&](std::string_view why) {
    fail(Errc::shape_mismatch, BroadcastTo::name,
         fmt::format("{} to the sizes of {}: {}", to_string(x), to_string(like), why));
  };
  if (like.rank() < x.rank()) refuse("fewer sizes than axes");  // C1
  return with_sizes(x, like.rank(), [&](int axis, std::int64_t own) {
    if (own != 1 && !sizes_agree(own, like[axis])) refuse("only axes of size 1 repeat");
    return like[axis];
  });
}

}  // namespace

Shape BroadcastTo::infer(std::span<const Shape> in) const {
  require_plain(name, in[0]);  // C3
  if (in.size() > 1) {
    if (!dims.empty()) fail(Errc::bad_attribute, name, "both dims and an array of sizes");  // C4
    return infer_like(in[0], in[1]);
  }
  const auto refuse = [&](Errc code, std::string_view why) {
    fail(code, name, fmt::format("{} to {}: {}", to_string(in[0]), sizes_text(dims.span()), why));
  };
  const int rank = static_cast<int>(dims.size()), added = rank - in[0].rank();
  if (added < 0) refuse(Errc::shape_mismatch, "fewer sizes than axes");  // C1
  return with_sizes(in[0], rank, [&](int axis, std::int64_t own) {
    const std::int64_t wanted = dims[static_cast<std::size_t>(axis)];
    if (wanted < (axis < added ? 0 : -1)) {  // C2
      refuse(Errc::bad_shape, "sizes are known and at least 0, or -1 for that of an axis");
    }
    if (wanted >= 0 && own != 1 && !sizes_agree(own, wanted)) {  // C1
      refuse(Errc::shape_mismatch, "only axes of size 1 repeat");
    }
    return wanted == -1 ? own : wanted;
  });
}

void BroadcastTo::reference(std::span<const HostView> in, const HostView& out) const {
  copy_elements(broadcast_view(in[0], out.shape), out);
}

bool BroadcastTo::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  placement = {0, broadcast_view(in, out).strides};
  return true;
}

std::vector<Tensor> BroadcastTo::gradient(const Backward& at) const {
  std::vector<Tensor> result(at.inputs.size());
  result[0] = sum_to(at.upstream, at.inputs[0].shape());
  return result;
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

Tensor broadcast_like(const Tensor& x, const Tensor& like, const std::source_location& where) {
  if (like.shape(where).is_static()) return broadcast_to(x, like.shape().dims(), where);
  return record(BroadcastTo{}, {x, like}, where);
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
