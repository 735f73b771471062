#pragma once

#include <tenon/backend.hpp>

namespace tenon {

/// Registers the devices "cuda:N" and their backend, "cuda" (docs/cuda.md). The CUDA driver is
/// loaded when a device is opened: Errc::device_unavailable where there is none. Idempotent and
/// thread-safe.
void register_cuda_backend();
/// Makes a "cuda" backend of the device "cuda:0".
BackendPtr make_cuda_backend(const BackendOptions& options);

}  // namespace tenon
