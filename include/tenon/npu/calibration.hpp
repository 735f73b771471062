#pragma once

#include <tenon/calibration.hpp>
#include <tenon/npu/observer.hpp>

namespace tenon::npu {

// Calibration serves every int8 backend; here it goes by the driver's own names as well.
using quant::calibrate;
using quant::Calibration;
using quant::CalibrationOptions;
using quant::CalibrationTable;
using quant::product_name;
using quant::ValueRange;

}  // namespace tenon::npu
