#pragma once

#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

namespace tenon {

namespace detail {

/// grad(), which is 0 by a parameter that the outputs do not depend on: the parameters are outputs, too,
/// whose own gradients are 0.
inline std::vector<Tensor> grad_or_zeros(std::span<const Tensor> outputs,
                                         std::span<const Tensor> upstream,
                                         std::span<const Tensor> parameters,
                                         const std::source_location& where) {
  std::vector<Tensor> all(outputs.begin(), outputs.end()), given(upstream.begin(), upstream.end());
  for (const Tensor& one : parameters) {
    if (!is_floating(one.dtype(where)) && !is_complex(one.dtype(where))) continue;  // is refused
    all.push_back(one);
    given.push_back(full_like(one.with_tags({}), 0, where));
  }
  return grad(all, given, parameters, where);
}

}  // namespace detail

// Products with Jacobians and Hessians, recorded as grad() does; its errors. The product of a vector and
// the Jacobian is grad(outputs, upstream, parameters). Jacobians as a whole are Python's
// (tenon.jacobian, tenon.hessian).

/// The derivatives of `outputs` along `tangents`, one for each parameter, of its sizes and dtype: the
/// Jacobian times a vector, one tensor for each output: 0 where it depends on no parameter. Gradients of
/// outputs are linear in what is given as their gradients, by which they are differentiated once more.
///
/// Errors    as many tangents as parameters are not given    Errc::bad_argument
///           outputs or parameters of several dtypes         Errc::shape_mismatch
inline std::vector<Tensor> jvp(
    std::span<const Tensor> outputs, std::span<const Tensor> parameters,
    std::span<const Tensor> tangents,
    const std::source_location& where = std::source_location::current()) {
  if (tangents.size() != parameters.size() || parameters.empty()) {
    throw Error(Errc::bad_argument, where, "jvp: needs a tangent for each of the parameters");
  }
  std::vector<Tensor> cotangents;
  for (const Tensor& output : outputs) cotangents.push_back(full_like(output, 0, where));
  const std::vector<Tensor> pulled = detail::grad_or_zeros(outputs, cotangents, parameters, where);
  Tensor total;
  for (std::size_t i = 0; i < pulled.size(); ++i) {
    const Tensor product = sum(mul(pulled[i], tangents[i], where), {}, false, where);
    total = total.is_empty() ? product : add(total, product, where);
  }
  const Tensor one = scalar_like(total, 1, where);
  return detail::grad_or_zeros({&total, 1}, {&one, 1}, cotangents, where);
}

/// The Hessian of `loss`, a scalar, times `tangents`: a tensor for each parameter, 0 for one in which
/// the loss is linear.
inline std::vector<Tensor> hvp(
    const Tensor& loss, std::span<const Tensor> parameters, std::span<const Tensor> tangents,
    const std::source_location& where = std::source_location::current()) {
  if (tangents.size() != parameters.size() || parameters.empty()) {
    throw Error(Errc::bad_argument, where, "hvp: needs a tangent for each of the parameters");
  }
  const std::vector<Tensor> gradients = grad(loss, parameters, where);
  return detail::grad_or_zeros(gradients, tangents, parameters, where);
}

}  // namespace tenon
