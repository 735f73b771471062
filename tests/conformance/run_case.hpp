// One op as a program of its own, run by a session.
#pragma once

#include "support/op_cases.hpp"

#include <tenon/backend.hpp>
#include <tenon/session.hpp>

#include <functional>
#include <vector>

namespace tenon::testing {

/// The op's weight of a linear layer or convolution is a constant, as models have it; all else are
/// inputs. `order` says how the op's operands lie: as they are, behind a permutation that leaves
/// them strided, or with all axes running backwards.
/// `parts`, when given, receives what the plan gave to which backend.
enum class Order { dense, permuted, reversed };
HostBuffer run_case(const OpCase& op_case, const std::vector<BackendPtr>& backends, Order order,
                    std::vector<PlanReport::Part>* parts = nullptr);

/// Runs an op in every order on the CPU with 1, 2 and 7 threads, whose results must have the same bits (but of NaNs), and
/// calls `compare` with each result and the reference's.
void check_on_threads(
    const OpInstance& op, const std::vector<HostBuffer>& inputs,
    const std::function<void(const HostBuffer& got, const HostBuffer& want)>& compare);

/// The largest difference of two arrays as a share of the largest number of `want`; NaN if an element of one
/// of them is.
double relative_difference(const HostBuffer& got, const HostBuffer& want);

}  // namespace tenon::testing
