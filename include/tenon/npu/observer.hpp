#pragma once

#include <tenon/observer.hpp>

namespace tenon::npu {

using quant::Observer;
using quant::ObserverKind;
using quant::ObserverOptions;
using quant::Range;
using quant::to_string;

}  // namespace tenon::npu
