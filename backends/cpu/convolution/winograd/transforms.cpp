#include "../../built_kernels.hpp"
#include "winograd.hpp"

namespace tenon::cpu::winograd {

const Transforms& transforms() noexcept {
  // In the order of Isa.
  static constexpr const Transforms* by_isa[isa_count] = {
      &portable::winograd_transforms,      &avx2::winograd_transforms,
      &avx2::winograd_transforms,          &built::avx512::winograd_transforms,
      &built::avx512::winograd_transforms, &built::avx512::winograd_transforms};
  return *by_isa[static_cast<int>(active_isa())];
}

}  // namespace tenon::cpu::winograd
