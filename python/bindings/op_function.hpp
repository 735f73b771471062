#pragma once

#include "bindings.hpp"

namespace tenon::python {

/// An op as a function of Python's (tenon.Op).
nb::object op_function(const OpDef& def);

}  // namespace tenon::python
