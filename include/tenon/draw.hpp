#pragma once

#include <tenon/program.hpp>

#include <string>

namespace tenon {

/// A program as a Graphviz digraph: a cluster per function, a node per value.
std::string to_dot(const Program& program);

/// The same as a picture: a column per function, a row per value, lines from operands to users.
std::string to_svg(const Program& program);

}  // namespace tenon
