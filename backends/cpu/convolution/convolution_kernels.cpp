#include "convolution_kernels.hpp"

#include "../built_kernels.hpp"

namespace tenon::cpu {

const ConvolutionKernels& convolution_kernels() noexcept {
  // In the order of Isa: dot products of integers and tiles gain nothing here.
  static constexpr const ConvolutionKernels* by_isa[isa_count] = {
      &portable::convolution,      &avx2::convolution,          &avx2::convolution,
      &built::avx512::convolution, &built::avx512::convolution, &built::avx512::convolution};
  return *by_isa[static_cast<int>(active_isa())];
}

}  // namespace tenon::cpu
