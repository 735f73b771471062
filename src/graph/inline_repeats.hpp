// Replaces repeats by their layers. Private to the core.
#pragma once

#include "graph/graph_impl.hpp"

#include <span>

namespace tenon {

/// Records the layers of repeats between `inputs` and `outputs` in their places, one after another,
/// in the graph's current function: of those whose layers have weights of their own, of those with a
/// single layer, and of those in checkpointed regions. Gradients pass through other repeats as loops
/// (loop_gradient.hpp). Items of the repeats become views of what the last layer returns, so that
/// tensors which refer to them stay valid.
void inline_repeats(Graph::Impl& graph, std::span<const Node* const> inputs,
                    std::span<const Node* const> outputs);

}  // namespace tenon
