// What a test of one op checks: everything runs on the NPU, the device gives the bits of the host
// in every way of compiling, and these are close to f32.
#pragma once

#include "npu/driver_rig.hpp"

#include <vector>

namespace tenon::npu::testing {

inline constexpr const char* small_device = "npu://sim?mac=16x8&ocm=32KiB&acc=16KiB&strict=1";
inline constexpr const char* large_device = "npu://sim?mac=32x32&ocm=2MiB&acc=256KiB&strict=1";

/// Runs on devices of two sizes, with each placement, merged and not: always the bits of the host,
/// whose outputs are like those of f32 (1: in direction equal).
void check(const Network& network, double likeness = 0.995);

/// A network of which everything must run on the NPU.
Network of(const std::vector<Shape>& inputs, const Record& record,
           const CalibrationOptions& options = {});

}  // namespace tenon::npu::testing
