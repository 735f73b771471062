#pragma once

#include <tenon/program.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tenon {

/// Some ops of a program, by the names of the values they make. Ops are numbered in the order of
/// the text, loops unrolled (`unroll`); constants and scopes do not count.
struct ProgramView {
  std::vector<std::string> values;
};

/// The names of all ops in order.
std::vector<std::string> op_names(const Program& program);

/// The ops of these numbers, or [first, last). Errc::out_of_range naming the number.
ProgramView view(const Program& program, const std::vector<std::size_t>& ops);
ProgramView view(const Program& program, std::size_t first, std::size_t last);

/// Ops [first, last) as a program of their own, unrolled: what they read from others becomes its
/// parameters, what others (or the results) read of theirs its results. Errc::out_of_range;
/// Errc::bad_argument for an empty stretch.
Program extract(const Program& program, std::size_t first, std::size_t last);

}  // namespace tenon
