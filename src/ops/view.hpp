// Shared by view ops: their reference kernel copies the elements that `view` refers to.
#pragma once

#include <tenon/host_view.hpp>
#include <tenon/op.hpp>

namespace tenon {

/// The reference of an op whose view always shares its input's storage.
template <class Op>
void copy_through_view(const Op& op, const HostView& in, const HostView& out) {
  ViewPlacement placement;
  op.view(in, out.shape, placement);
  copy_elements({in.data + placement.offset_bytes, out.shape, placement.strides}, out);
}

/// Strides for the elements of `in`, in row-major order, under the sizes of `out`; false when there
/// are none. Block types keep their innermost size.
bool place_reshaped(const HostView& in, const Shape& out, ViewPlacement& placement);

/// Copies the elements of `in`, in row-major order, to the dense `out` of other sizes.
inline void copy_reshaped(const HostView& in, const HostView& out) {
  copy_elements(in, HostView(out.data, in.shape));
}

}  // namespace tenon
