#include "conversion_body.hpp"

namespace tenon::cpu::avx512 {

constinit const ConversionKernels conversions = all_conversion_kernels;

}  // namespace tenon::cpu::avx512
