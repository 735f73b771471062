#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the backend "cpu": SIMD kernels for the instruction sets that this machine has, on a
/// pool of threads. Call once or more often, from any thread.
void register_cpu_backend();
/// What "cpu" makes.
BackendPtr make_cpu_backend(const BackendOptions& options);

}  // namespace tenon
