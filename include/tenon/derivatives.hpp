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

// Products with Jacobians and Hessians, recorded as grad() does; its errors. The product of a vector and
// the Jacobian is grad(outputs, upstream, parameters). Jacobians as a whole are Python's
// (tenon.jacobian, tenon.hessian).

/// The derivatives of `outputs` along `tangents`, one for each parameter, of its sizes and dtype: the
/// Jacobian times a vector, one tensor for each output. Gradients of outputs are linear in what is given
/// as their gradients, by which they are differentiated once more.
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
  const std::vector<Tensor> pulled = grad(outputs, cotangents, parameters, where);
  Tensor total;
  for (std::size_t i = 0; i < pulled.size(); ++i) {
    const Tensor product = sum(mul(pulled[i], tangents[i], where), {}, false, where);
    total = total.is_empty() ? product : add(total, product, where);
  }
  return grad(total, cotangents, where);
}

/// The Hessian of `loss`, a scalar, times `tangents`: a tensor for each parameter.
inline std::vector<Tensor> hvp(
    const Tensor& loss, std::span<const Tensor> parameters, std::span<const Tensor> tangents,
    const std::source_location& where = std::source_location::current()) {
  if (tangents.size() != parameters.size() || parameters.empty()) {
    throw Error(Errc::bad_argument, where, "hvp: needs a tangent for each of the parameters");
  }
  const std::vector<Tensor> gradients = grad(loss, parameters, where);
  return grad(gradients, tangents, parameters, where);
}

}  // namespace tenon
