#pragma once

#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/program.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

/// Gradients of `loss`, a scalar, with respect to `parameters`: recorded in the graph behind the
/// loss, one tensor per parameter with its sizes, dtype and tags. They are values like any other:
/// they can be returned, computed with, and differentiated again.
///
/// A loop between the parameters and the loss is followed by one from its last iteration to its
/// first, for which it stacks values: memory for as many iterations as it may have. A repeat whose
/// layers have weights of their own, or that is in a checkpointed region, is replaced by its layers,
/// one after another.
///
/// Errors    the loss is not a floating scalar, or a parameter is not floating
///                                                               Errc::bad_argument
///           the loss does not depend on one that has elements   Errc::bad_argument naming it
///           an op on the way has no gradient, or one that       Errc::unsupported, at the line that
///           needs sizes that are symbols, or a loop whose       recorded it
///           values cannot be stacked (objects, 8 axes), or
///           that has a condition and no limit of its own
///           a gradient of an own op has another type than its input     Errc::shape_mismatch
std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> parameters,
                         const std::source_location& where = std::source_location::current());

/// As above, for outputs of any shape with given gradients of a loss with respect to them, each of
/// its output's sizes and dtype: the vector-Jacobian product.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                         std::span<const Tensor> parameters,
                         const std::source_location& where = std::source_location::current());

/// As above, for one parameter.
inline Tensor grad(const Tensor& loss, const Tensor& parameter,
                   const std::source_location& where = std::source_location::current()) {
  return grad(loss, std::span<const Tensor>(&parameter, 1), where).front();
}

/// The same for a program, such as one read from text: its results, then a gradient of its first
/// result, a scalar, for each of `parameters`, which name inputs or constants. Functions are inlined;
/// loops are treated as above. Errors as above, at the program's line; Errc::bad_reference for an
/// unknown name, Errc::bad_type where the type of an input or constant is not stated,
/// Errc::unsupported for a loop with a condition whose layers have weights of their own.
Program gradient(const Program& program, std::span<const std::string> parameters);

/// As above, for a model's struct: the same struct with a gradient in place of each tensor. Plain
/// values are copied.
template <HasFields Model>
Model grad(const Tensor& loss, const Model& parameters,
           const std::source_location& where = std::source_location::current()) {
  std::vector<Tensor> tensors;
  visit_fields(parameters, [&](const std::string&, const Tensor& tensor) {
    if (!tensor.is_empty()) tensors.push_back(tensor);
  });
  const std::vector<Tensor> gradients = grad(loss, std::span<const Tensor>(tensors), where);
  Model result;
  std::size_t next = 0;
  transform_fields(parameters, result, [&](const std::string&, const Tensor& from, Tensor& to) {
    if (!from.is_empty()) to = gradients[next++];
  });
  return result;
}

namespace detail {

/// While one exists, this thread records ops of a region whose values gradients compute again. An
/// inner one belongs to the outer one's region.
class CheckpointedRegion {
 public:
  CheckpointedRegion() noexcept;
  ~CheckpointedRegion();
  CheckpointedRegion(const CheckpointedRegion&) = delete;
  CheckpointedRegion& operator=(const CheckpointedRegion&) = delete;

 private:
  bool is_outermost_;
};

}  // namespace detail

/// body(), as a region of which gradients keep no value but what goes in and what comes out: what
/// they need of the inside they compute again, when they get there (activation checkpointing; Chen
/// et al., arXiv:1604.06174). Takes the memory of one region for the time of its forward pass.
///
///   x = checkpointed([&] { return block.forward(x); });
///
/// The values are the same. In a repeat, each layer's body is a region of its own. A gradient
/// through a body that updates state, such as a KV cache, is Errc::unsupported.
template <class Body>
auto checkpointed(Body&& body) {
  const detail::CheckpointedRegion region;
  return std::forward<Body>(body)();
}

}  // namespace tenon
