// grad() with places of another kind than source locations. Private to the core.
#pragma once

#include "graph/graph_impl.hpp"

#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// Where an op was written, as errors name it.
using PlaceOf = std::function<std::string(const Node& node)>;

std::vector<Tensor> grad_placed(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                                std::span<const Tensor> parameters,
                                const std::source_location& where, const PlaceOf& place_of);

}  // namespace tenon
