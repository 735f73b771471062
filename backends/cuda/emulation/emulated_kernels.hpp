#pragma once

#include "driver/driver.hpp"

namespace tenon::cuda::emulation {

/// Runs a kernel of entries.def on the CPU. `args`: its argument struct.
void run_kernel(Kernel kernel, const Grid& grid, const void* args);

}  // namespace tenon::cuda::emulation
