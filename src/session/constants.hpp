// Where the constants of a plan come from: values that folding made, then the weights.
#pragma once

#include "session/plan.hpp"

#include <tenon/lowered.hpp>
#include <tenon/session.hpp>

#include <vector>

namespace tenon::sessions {

/// Types of constants by name; `program` and `weights` (may be null) must outlive the function.
ConstantTypes constant_types(const Program& program, const WeightSet* weights);

/// The array of a constant, dense, of the slot's type: where its weight lies, or `on_host`, where
/// the CPU can address it. Errc::bad_reference when nothing has its name, Errc::shape_mismatch,
/// Errc::call_order for a weight without data.
Buffer constant_array(const Program& program, const WeightSet& weights, const ConstantSlot& slot,
                      bool on_host);

/// The weights of a plan that WeightSet::on_host() copies.
std::vector<PlanReport::Transfer> weight_copies(const Plan& plan, const WeightSet& weights);

}  // namespace tenon::sessions
