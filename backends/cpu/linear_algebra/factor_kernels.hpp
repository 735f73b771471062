#pragma once

#include "../stop_sign.hpp"

#include <cstdint>

/// Factorisations of matrices of f64 as the files compiled for one instruction set provide them. Those
/// files see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

/// Elements row by row, rows `step` elements apart.
struct MatrixRows {
  double* at;
  std::int64_t step;
};

/// What a factorisation works with. Once `stop` is due, what it leaves is not to be used.
struct FactorRoom {
  double* numbers;
  StopSign stop;

  [[gnu::always_inline]] FactorRoom from(std::int64_t n) const noexcept {
    return {numbers + n, stop};
  }
};

struct FactorKernels {
  /// Numbers that the room of the others must hold for matrices of m rows and n columns.
  std::int64_t (*room)(std::int64_t m, std::int64_t n) noexcept;
  /// The upper triangle of a becomes U with U^T U = a, which is symmetric; below it a stays. False
  /// where a is not positive definite or not finite.
  bool (*cholesky)(std::int64_t n, MatrixRows a, const FactorRoom& room) noexcept;
  /// By Gaussian elimination with row exchanges: u, and under its diagonal l. rows[i] is where row i
  /// was. Returns the sign of the exchanges.
  int (*lu)(std::int64_t n, MatrixRows a, std::int64_t* rows, const FactorRoom& room) noexcept;
  /// x of k columns with t x = b, in b's place. t is triangular, t_ij = t[i * down + j * across].
  void (*solve)(std::int64_t n, std::int64_t k, const double* t, std::int64_t down,
                std::int64_t across, bool lower, bool unit, MatrixRows b,
                const FactorRoom& room) noexcept;
  /// By reflections: of k = min(m, n), the upper triangle of the first k rows of a becomes r, and
  /// q_transposed, of k rows and m columns, q^T.
  void (*qr)(std::int64_t m, std::int64_t n, MatrixRows a, MatrixRows q_transposed,
             const FactorRoom& room) noexcept;
};

/// Those of the active instruction set.
const FactorKernels& factor_kernels() noexcept;

namespace portable {
extern const FactorKernels factors;
}
namespace avx2 {
extern const FactorKernels factors;
}
namespace avx512 {
extern const FactorKernels factors;
}

}  // namespace tenon::cpu
