#pragma once

#include <tenon/program.hpp>

#include <cstddef>
#include <functional>
#include <string>

namespace tenon {

/// Where a program reads a constant: an instruction of one of its functions.
struct ConstantPlace {
  std::size_t function;
  std::size_t instruction;
};

/// Calls `visit` with the full name of every constant that the entry function reads, calls and
/// loops expanded; once for each iteration of a loop. The program must have passed check_structure
/// and check_calls, which bound the number of names.
void for_each_constant(const Program& program,
                       const std::function<void(const ConstantPlace&, const std::string&)>& visit);

}  // namespace tenon
