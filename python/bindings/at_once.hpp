#pragma once

#include "bindings.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tenon::python {

/// The op's result in the memory of the first operand that the CPU cannot address, or in CPU memory.
/// Called without the interpreter's lock.
Buffer run_at_once(const OpInstance& op, std::vector<Buffer> inputs);

/// The same as an object of Python's, quickly: of complete arrays in CPU memory, and numbers beside
/// them, where run_at_once() has compiled the op for their types. Nothing otherwise. Keeps the
/// interpreter's lock where giving it up would take longer than the work, so that `op` must be one of
/// the library's, whose kernels do not ask for it.
nb::object run_known(const OpInstance& op, std::span<PyObject* const> operands);

/// Later calls compile anew: an op means something else from now on.
void forget_compiled_ops();

/// How many operands of an op, the first ones, have a type of their own, which numbers beside them do
/// not take: the condition of `where`.
std::size_t conditions(const OpDef& def);

/// Stores a number of Python's as an element; false for an integer of more than 64 bits.
/// Errc::bad_type for a fraction as another element than a floating one.
bool store_number(nb::handle number, DType dtype, std::byte* place);

}  // namespace tenon::python
