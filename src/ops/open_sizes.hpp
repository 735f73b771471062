// What gradients do with sizes that are not known when they are recorded: places are computed from
// the sizes when the program runs.
#pragma once

#include "ops/filled.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>

namespace tenon {

/// As many elements of x along `axis` as `like` has there, from element `first` on, which may be
/// negative; 0 where x has none.
inline Tensor elements_like(const Tensor& x, int axis, std::int64_t first, const Tensor& like) {
  const Tensor places = iota(like, axis, i64, first + 1).with_tags({});
  const Tensor zero = scalar_like(places, 0);
  const Tensor behind = size_along(x, axis, i64) + scalar_like(places, 1);
  return gather(pad(x, axis, 1, 1), minimum(maximum(places, zero), behind), axis);
}

/// Each element of x along `axis` as often in a row as it takes to have as many as `like` has along
/// `axis_of_like`: the groups of `like`'s heads. The number of groups divides that of heads.
inline Tensor of_each_member(const Tensor& x, int axis, const Tensor& like, int axis_of_like) {
  const std::int64_t groups = x.dim(axis), members = like.dim(axis_of_like);
  if (groups == members && groups != unknown_dim) return x;
  if (is_static(groups) && is_static(members) && groups > 0) {
    return repeat_interleave(x, members / groups, axis);
  }
  const Tensor member = iota(like, axis_of_like, i64).with_tags({});
  const Tensor group = div(member * size_along(x, axis, i64), size_along(like, axis_of_like, i64));
  return gather(x, group, axis);
}

}  // namespace tenon
