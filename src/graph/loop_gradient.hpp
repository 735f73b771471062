// Gradients through a loop, as a loop. Private to the core.
#pragma once

#include "graph/backward_pass.hpp"

#include <map>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// A loop in the words of its backward pass.
struct LoopCall {
  const Node& repeat;
  /// What the loop is given, in the current function: what it carries, then outer values.
  std::vector<Tensor> operands;
  std::vector<bool> depends;     ///< of operands: on a parameter
  std::vector<Tensor> upstream;  ///< gradients of what is carried out; empty where none has come
};

struct LoopGradients {
  std::vector<Tensor> operands;  ///< one per operand; empty where it has none
  std::map<std::string_view, Tensor> constants;
};

/// Records the backward pass of a loop whose function has no weights of numbered layers: a loop
/// from its last iteration to its first.
///
/// The forward loop keeps for it, stacked by iteration, what it carries into each and the results
/// of ops that are neither pointwise nor views; the backward loop computes the others again. Of a
/// loop with a condition it also counts the iterations. Where the loop is in the current function
/// it is the forward loop afterwards; of an inner loop, whose backward pass is recorded in another
/// function, it is recorded once more there.
///
/// A value of outside gets the sum over the iterations; where they read slices of it (select), each
/// adds to its slice only.
LoopGradients differentiate_loop(Graph::Impl& graph, const LoopCall& call,
                                 const ConstantNames& constants, const std::source_location& where,
                                 const PlaceOf& place_of);

/// Whether each carried value depends on an operand of which `depends` says so, or on a constant.
std::vector<bool> carried_dependents(const Node& repeat, std::vector<bool> depends,
                                     const ConstantNames& constants);

/// Whether a function, or one that it repeats, uses weights of numbered layers.
bool has_scoped_constants(const GraphFunction& function);

}  // namespace tenon
