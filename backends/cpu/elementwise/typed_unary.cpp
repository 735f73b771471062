#include "typed_unary.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

TypedUnary typed_unary_kernel(Compute type, Unary op) noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::typed_unary(type, op);
  return isa >= Isa::avx2 ? avx2::typed_unary(type, op) : portable::typed_unary(type, op);
}

PairOfF64 f64_pair_kernel(Binary op) noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::pair_of_f64(op);
  return isa >= Isa::avx2 ? avx2::pair_of_f64(op) : portable::pair_of_f64(op);
}

}  // namespace tenon::cpu
