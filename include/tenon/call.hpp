#pragma once

#include <tenon/graph.hpp>
#include <tenon/program.hpp>
#include <tenon/tensor.hpp>

#include <map>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// A program's results, recorded in `graph` for these inputs, one for each parameter of its main
/// function: a model that was read from a file as a part of another program, of a loss for instance.
/// Functions are inlined; loops stay loops where their function has no weights of numbered layers.
///
/// A constant that `weights` names is that tensor. The others are constants of the graph under their
/// names, arrays of the program's own (Program::folded) as well.
///
/// Errors    another number of inputs, or a name in `weights` that is
///           no constant of the program                              Errc::bad_argument
///           the type of an input or weight does not fit             Errc::shape_mismatch
///           the type of an input or constant is not stated          Errc::bad_type
///           a loop with a condition whose layers have weights of
///           their own                                               Errc::unsupported
std::vector<Tensor> call(Graph& graph, const Program& program, std::span<const Tensor> inputs,
                         const std::map<std::string, Tensor>& weights = {},
                         const std::source_location& where = std::source_location::current());

}  // namespace tenon
