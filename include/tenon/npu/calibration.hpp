#pragma once

#include <tenon/calibration.hpp>
#include <tenon/npu/observer.hpp>

namespace tenon::npu {

// Calibration is shared by all int8 backends; these are its names in the NPU's namespace.
using quant::calibrate;
using quant::Calibration;
using quant::CalibrationOptions;
using quant::CalibrationTable;
using quant::product_name;
using quant::ValueRange;

}  // namespace tenon::npu
