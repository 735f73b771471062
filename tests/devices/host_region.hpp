#pragma once

#include <tenon/device.hpp>

namespace tenon {

/// The memory of the CPU.
inline MemRegion& host() { return cpu_device()->default_mem_region(); }

}  // namespace tenon
