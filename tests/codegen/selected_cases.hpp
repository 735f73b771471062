// The op cases whose code is generated and compiled: of each op the first ones whose attributes differ.
#pragma once

#include "support/op_cases.hpp"

#include <tenon/program.hpp>

#include <vector>

namespace tenon::testing {

std::vector<OpCase> selected_cases();

/// A function of one op for each of them, "op0", "op1", ..., and an entry that does nothing.
Program program_of(const std::vector<OpCase>& cases);

}  // namespace tenon::testing
