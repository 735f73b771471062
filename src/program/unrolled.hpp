// Which values of an unrolled program were one before.
#pragma once

#include <tenon/program.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>

namespace tenon {

/// For a value of an unrolled program, the path of the value that it was: the calls and loops around
/// that, by the names of their results, and its own name, "layers/attention/scores". The iterations
/// of a loop have the same.
using Origins = std::map<std::string, std::string>;

/// The path into the function that an instruction calls or repeats, whose result is `called`.
std::string path_into(const std::string& path, const Value& called);

/// The origin of a path in the unrolled program, where loops with a condition are left; empty: none.
std::string origin_of(const Origins& origins, const std::string& path);

/// As unroll(), which also adds to `origins`, unless that is null.
Program unroll(const Program& program, std::size_t limit, Origins* origins);

/// As unroll(), but leaves loops of which `leaves` says so, outside of others, and loops with a
/// condition. The functions that they repeat stay as they are.
Program unroll(const Program& program, std::size_t limit,
               const std::function<bool(const Instruction& repeat)>& leaves);

}  // namespace tenon
