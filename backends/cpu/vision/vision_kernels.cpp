#include "vision_kernels.hpp"

#include "../built_kernels.hpp"

namespace tenon::cpu {

const VisionKernels& vision_kernels() noexcept {
  // In the order of Isa: dot products of integers and tiles gain nothing here.
  static constexpr const VisionKernels* by_isa[isa_count] = {
      &portable::vision,      &avx2::vision,          &avx2::vision,
      &built::avx512::vision, &built::avx512::vision, &built::avx512::vision};
  return *by_isa[static_cast<int>(active_isa())];
}

}  // namespace tenon::cpu
