#include "half_unary.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {
namespace {

/// In the order of Isa.
constexpr const HalfUnaryKernels* half_unary_by_isa[isa_count] = {nullptr,
                                                                  &avx2::half_unary,
                                                                  &avx2::half_unary,
                                                                  &built::avx512::half_unary,
                                                                  &built::avx512::half_unary,
                                                                  &built::avx512::half_unary};

}  // namespace

HalfUnaryKernel half_unary_kernel(Unary op) noexcept {
  const HalfUnaryKernels* const kernels = half_unary_by_isa[static_cast<int>(active_isa())];
  if (kernels == nullptr) return nullptr;
  switch (op) {
    case Unary::exp:
      return kernels->exp;
    case Unary::tanh:
      return kernels->tanh;
    case Unary::sigmoid:
      return kernels->sigmoid;
    case Unary::silu:
      return kernels->silu;
    case Unary::gelu:
      return kernels->gelu;
    case Unary::gelu_tanh:
      return kernels->gelu_tanh;
    default:
      return nullptr;
  }
}

}  // namespace tenon::cpu
