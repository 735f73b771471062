#include "conversion_body.hpp"

namespace tenon::cpu::portable {

constinit const ConversionKernels conversions = all_conversion_kernels;

}  // namespace tenon::cpu::portable
