// Functions of whole numbers and of f64.
#pragma once

#include "elementwise.hpp"
#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// What Clamp allows of either kind of numbers; of other functions with an attribute, `low` is that.
struct Limits {
  double low, high;
  std::int64_t whole_low, whole_high;
};

/// y[i] = f(x[i]), whole numbers modulo 2^bits; y may be x. Functions of f64 are exact, or as precise as typed_unary_body.hpp
/// says.
using TypedUnary = void (*)(const void* x, void* y, std::int64_t count,
                            const Limits& limits) noexcept;

/// y[i] = f(a[i * a_step], b[i * b_step]) of f64, steps 0 or 1; y may be a or b; as precise as pair_f64_body.hpp says.
using PairOfF64 = void (*)(const double* a, std::int64_t a_step, const double* b,
                           std::int64_t b_step, double* y, std::int64_t count) noexcept;

/// As the files compiled for one instruction set provide them; null where they have none. Plain data, for the reason that
/// matmul/matmul_kernels.hpp gives.
using FindTypedUnary = TypedUnary (*)(Compute type, Unary op) noexcept;
using FindPairOfF64 = PairOfF64 (*)(Binary op) noexcept;
namespace portable {
extern const FindTypedUnary typed_unary;
extern const FindPairOfF64 pair_of_f64;
}  // namespace portable
namespace avx2 {
extern const FindTypedUnary typed_unary;
extern const FindPairOfF64 pair_of_f64;
}  // namespace avx2
namespace avx512 {
extern const FindTypedUnary typed_unary;
extern const FindPairOfF64 pair_of_f64;
}  // namespace avx512

/// The active instruction set's, or null: then the op's own definition is to be used.
TypedUnary typed_unary_kernel(Compute type, Unary op) noexcept;
PairOfF64 f64_pair_kernel(Binary op) noexcept;

}  // namespace tenon::cpu
