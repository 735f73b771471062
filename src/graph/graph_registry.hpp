// Which graphs are alive: lets a handle find out without accessing freed memory.
#pragma once

#include "graph/graph_impl.hpp"

#include <cstdint>

namespace tenon::graph_registry {

/// A number that no live graph has and that is not reused for the next 2^16 graphs of its slot.
/// Errc::limit_exceeded above 65,535 graphs at once.
std::uint32_t add();
void attach(std::uint32_t id, Graph::Impl* graph) noexcept;
void remove(std::uint32_t id) noexcept;
/// Null when the graph is gone.
Graph::Impl* find(std::uint32_t id) noexcept;

}  // namespace tenon::graph_registry
