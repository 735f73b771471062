#pragma once

#include "plan/launch.hpp"

namespace tenon::cuda {

/// Plan a step that no planner refuses as a call of a library. False: there is no library, or it
/// does not take the step, and a kernel is to run it.
bool plan_library_linear(const Step& step, Emitter& out);
bool plan_library_matmul(const Step& step, Emitter& out);
bool plan_library_convolution(const Step& step, Emitter& out,
                              Activation activation = Activation::none);

/// Whether a library applies an activation to a convolution's sums.
bool takes_activation(const Step& convolution, Activation activation, const PlanOptions& options);

}  // namespace tenon::cuda
