// One op as a program of its own, run by a session.
#pragma once

#include "support/op_cases.hpp"

#include <tenon/backend.hpp>
#include <tenon/session.hpp>

#include <vector>

namespace tenon::testing {

/// The op's weight of a linear layer or convolution is a constant, as models have it; all else are
/// inputs. With `stride`, inputs arrive behind permutations that leave the op's operands strided.
/// `parts`, when given, receives what the plan gave to which backend.
HostBuffer run_case(const OpCase& op_case, const std::vector<BackendPtr>& backends, bool stride,
                    std::vector<PlanReport::Part>* parts = nullptr);

}  // namespace tenon::testing
