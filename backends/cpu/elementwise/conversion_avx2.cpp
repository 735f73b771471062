#include "conversion_body.hpp"

namespace tenon::cpu::avx2 {

constinit const ConversionKernels conversions = all_conversion_kernels;

}  // namespace tenon::cpu::avx2
