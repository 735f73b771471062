// How the driver's tests come by a device: linked from driver_open_sim.cpp or
// driver_open_remote.cpp.
#pragma once

#include <tenon/device.hpp>

#include <string>

namespace tenon::npu::testing {

/// A fresh NPU as the URL of the simulator describes it, in this process or in another.
DevicePtr open_npu(const std::string& url);

}  // namespace tenon::npu::testing
