#pragma once

#include <tenon/program.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tenon {

/// A set of ops of a program, by the names of their results. Ops are numbered in the order of the
/// unrolled program (`unroll`), without constants and scopes.
struct ProgramView {
  std::vector<std::string> values;
};

/// The results' names of all ops, in order.
std::vector<std::string> op_names(const Program& program);

/// The ops with these numbers, or [first, last). Errc::out_of_range, naming the number.
ProgramView view(const Program& program, const std::vector<std::size_t>& ops);
ProgramView view(const Program& program, std::size_t first, std::size_t last);

/// Ops [first, last) of the unrolled program as a program of their own: values of other ops that
/// they read become its parameters, and values that other ops read, or that are results, its
/// results. Errc::out_of_range; Errc::bad_argument for an empty range.
Program extract(const Program& program, std::size_t first, std::size_t last);

}  // namespace tenon
