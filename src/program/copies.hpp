// Copies of values that are updated in place and read afterwards, where that is nobody's mistake.
#pragma once

#include <tenon/program.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace tenon {

/// The function with a copy, an op `concat` of one operand, before each update of a value that is
/// read afterwards, is a constant or a view. A valid program has no such update, but one whose loops
/// are written out may: a loop has storage of its own for what it carries, so that what went in
/// stays as it was.
///
/// `program` has the functions of loops that are left. `name_of_copy` makes a name that is not taken
/// of that of the value. Objects and scalars are not copied: their updates stay as they are.
Function with_copies(const Program& program, const Function& function,
                     const std::function<std::string(std::string_view name)>& name_of_copy);

/// The same in every function of a program to which a gradient has been added, which reads values of
/// the forward pass after the ops that update them.
void copy_what_is_read_later(Program& program);

}  // namespace tenon
