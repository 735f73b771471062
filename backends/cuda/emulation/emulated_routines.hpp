#pragma once

#include "driver/routines.hpp"

namespace tenon::cuda::emulation {

/// What stands in for NVIDIA's libraries: the reference ops. `args`: the routine's struct.
void run_routine(Routine routine, const void* args);

}  // namespace tenon::cuda::emulation
