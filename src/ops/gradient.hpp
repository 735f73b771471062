// What gradients of ops share. Included by sources that define `gradient` members.
#pragma once

#include <tenon/grad.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/where.hpp>

#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

namespace tenon {

/// Whether x > low (and x < high).
inline Tensor is_above(const Tensor& x, double low) { return gt(x, scalar_like(x, low)); }
inline Tensor is_between(const Tensor& x, double low, double high) {
  return logical_and(is_above(x, low), lt(x, scalar_like(x, high)));
}

/// A gradient where it passes, else 0: selected, since the product of a mask and infinity is NaN.
inline Tensor passed_where(const Tensor& condition, const Tensor& gradient) {
  return where(condition, gradient, scalar_like(gradient, 0));
}

/// x, to differentiate by: a gradient by it does not follow what x was made of, as inputs may depend on each
/// other, while a gradient of that gradient passes through to x. A view, which the optimiser removes.
inline Tensor as_leaf(const Tensor& x) {
  Permute same;
  for (int axis = 0; axis < x.rank(); ++axis) same.order.push_back(axis);
  return record(same, {x}, std::source_location::current());
}

/// f16 and bf16 as f32: squares of them overflow, and counts of elements are no numbers of theirs.
inline Tensor widened(const Tensor& x) {
  const DType dtype = x.dtype();
  return dtype == f16 || dtype == bf16 ? cast(x, f32) : x;
}

/// The gradients that `of` computes, from widened values; of the inputs' types.
template <class Of>
std::vector<Tensor> widened_gradient(const Backward& at, Of&& of) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : at.inputs) inputs.push_back(widened(input));
  const Tensor output = widened(at.output), upstream = widened(at.upstream);
  std::vector<Tensor> result = of(Backward{inputs, output, upstream});
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!result[i].is_empty()) result[i] = cast(result[i], at.inputs[i].dtype());
  }
  return result;
}

/// The gradients of an op that other ops can compute as well: `compose(inputs)` records them, and
/// they are differentiated. For ops whose own formula would be as long.
template <class Compose>
std::vector<Tensor> gradient_of_composition(const Backward& at, Compose&& compose) {
  std::vector<Tensor> leaves, floating;
  for (const Tensor& input : at.inputs) {
    leaves.push_back(is_floating(input.dtype()) ? as_leaf(input) : input);
    if (is_floating(input.dtype())) floating.push_back(leaves.back());
  }
  const Tensor output = compose(std::span<const Tensor>(leaves));
  const std::vector<Tensor> gradients = grad({&output, 1}, {&at.upstream, 1}, floating);
  std::vector<Tensor> result(at.inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (is_floating(at.inputs[i].dtype())) result[i] = gradients[next++];
  }
  return result;
}

}  // namespace tenon
