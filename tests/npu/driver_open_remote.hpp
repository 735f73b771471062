// Devices of other processes.
#pragma once

#include <tenon/device.hpp>

namespace tenon::npu::testing {

/// Ends the process that serves a device of open_npu(), without a word.
void kill_server(const DevicePtr& device);

}  // namespace tenon::npu::testing
