#pragma once

#include <cstdint>

/// Discrete Fourier transforms as the files compiled for one instruction set provide them. Those
/// files see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
namespace tenon::cpu {

/// Several transforms of one size side by side: element j of all of them is `lanes` real parts,
/// then `lanes` imaginary ones.
///
/// Stockham's order with the factors of the size, largest prime `most_factor`; other sizes as a
/// convolution with a chirp of a size that is a power of two (Bluestein 1970).
template <class T>
struct FourierPlan {
  static constexpr std::int64_t most_factor = 31;
  std::int64_t size = 1;
  std::int64_t factors = 0;
  std::int8_t factor[64] = {};
  const T* roots = nullptr;  ///< exp(-2 pi i j / size): pairs
  // Bluestein's: factors is 0 and size above 1.
  const FourierPlan* longer = nullptr;
  const T* chirp = nullptr;   ///< exp(-pi i j^2 / size): pairs
  const T* filter = nullptr;  ///< what `longer` makes of its conjugates, by the longer size: pairs

  /// Elements that `x` and `spare` must hold.
  std::int64_t room() const noexcept { return longer == nullptr ? size : longer->size; }
};

template <class T>
struct FourierKernel {
  std::int64_t lanes;
  /// Transforms x, and returns where the result is: x or spare.
  T* (*run)(const FourierPlan<T>& plan, T* x, T* spare) noexcept;
};

struct FourierKernels {
  FourierKernel<float> f32, single_f32;
  FourierKernel<double> f64, single_f64;
};

/// Those of the active instruction set.
const FourierKernels& fourier_kernels() noexcept;

namespace portable {
extern const FourierKernels fourier;
}
namespace avx2 {
extern const FourierKernels fourier;
}
namespace avx512 {
extern const FourierKernels fourier;
}

}  // namespace tenon::cpu
