#pragma once

#include <tenon/backend.hpp>
#include <tenon/device.hpp>

#include <optional>

namespace tenon {

/// Registers the devices "cuda:N" and their backend, "cuda" (docs/cuda.md). The CUDA driver is
/// loaded when a device is opened: Errc::device_unavailable where there is none. Idempotent and
/// thread-safe.
void register_cuda_backend();
/// Makes a "cuda" backend of the device "cuda:0".
BackendPtr make_cuda_backend(const BackendOptions& options);

/// CUDA's number of a device of this scheme; 255 of the emulated one. Nothing for other devices.
std::optional<int> cuda_device_number(const Device& device);
/// Waits for all work on a device of this scheme, that of other libraries included: before memory of
/// one side is read or reused by the other. Errc::bad_argument for other devices.
void synchronize_cuda_device(Device& device);

}  // namespace tenon
