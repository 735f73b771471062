// Replaces repeats by their layers. Private to the core.
#pragma once

#include "graph/graph_impl.hpp"

#include <span>

namespace tenon {

/// Records the layers of every repeat between `inputs` and `outputs` in its place, one after
/// another, in the graph's current function. Items of the repeats become views of what the last layer returns, so
/// that tensors which refer to them stay valid.
void inline_repeats(Graph::Impl& graph, std::span<Node* const> inputs,
                    std::span<Node* const> outputs);

}  // namespace tenon
