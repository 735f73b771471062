// CUDA devices as Python sees them; without the backend there are none.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/device.hpp>

#include <optional>
#include <string>

namespace tenon::python {

void register_cuda();

/// CUDA's number of the device that an array is on; nothing for arrays elsewhere.
std::optional<int> cuda_number(const Buffer& array);
/// The open device of a number, or one that is opened now. Errc::device_unavailable.
DevicePtr cuda_device(int number);
/// Opens a device of the scheme "cuda", or gives the open one of the same URL: arrays that other
/// libraries share and sessions should be on one.
DevicePtr open_cuda_device(const std::string& url);
/// Waits for the work of all libraries on a device.
void synchronize_cuda(Device& device);

}  // namespace tenon::python
