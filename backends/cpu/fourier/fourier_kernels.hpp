#pragma once

#include "../stop_sign.hpp"

#include <cstddef>
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

/// Lanes are read and written with real and imaginary parts exchanged or not: an inverse is a forward
/// transform of what has its parts exchanged, exchanged again.
template <class T>
struct FourierKernel {
  std::int64_t lanes;
  /// Transforms x, and returns where the result is: x or spare. Once `stop` is due, nothing of use.
  T* (*run)(const FourierPlan<T>& plan, T* x, T* spare, const StopSign& stop) noexcept;
  /// y_k = factor ((x_k + conj x_{h-k}) - i w_k (x_k - conj x_{h-k})), h = half, k <= h: from the
  /// transform x of h pairs of real numbers, and x_h = x_0, twice that of the numbers where w_k =
  /// exp(-pi i k / h). With w_k = -exp(pi i k / h) twice the other way round.
  /// `turns`: the real parts of w, then the imaginary ones.
  void (*fold)(const T* x, const T* turns, std::int64_t half, T factor, T* y) noexcept;
  /// Between `count` numbers of each lane, pairs of parts or an even number of real ones, that lie
  /// side by side and x. Null for one lane.
  void (*read_rows)(const T* const* lanes, std::int64_t count, bool exchange, T* x) noexcept;
  void (*write_rows)(const T* x, std::int64_t count, bool exchange, T scale,
                     T* const* lanes) noexcept;
  /// Between `count` rows, `step` bytes apart, of one pair of parts for each lane, and x. Null for
  /// one lane.
  void (*read_columns)(const std::byte* rows, std::int64_t step, std::int64_t count, bool exchange,
                       T* x) noexcept;
  void (*write_columns)(const T* x, std::int64_t count, bool exchange, T scale, std::byte* rows,
                        std::int64_t step) noexcept;
};

/// One transform by vectors: of element l + lanes j it makes lane l of an element j, transforms the
/// lanes, and then across them.
template <class T>
struct FourierLine {
  std::int64_t lanes;
  /// x and y: complex numbers, pairs of parts; `columns` is the plan of 1 / lanes of their number,
  /// which is at least `lanes`. `turns`: exp(-2 pi i l k / size) for k < columns.size, real parts,
  /// then imaginary ones, for l = 1, then 2, .. lanes - 1. `work`: four numbers for each of x.
  void (*run)(const FourierPlan<T>& columns, const T* turns, const T* x, bool exchange, T scale,
              T* work, T* y, const StopSign& stop) noexcept;
  /// As of FourierKernel, of pairs of parts.
  void (*fold)(const T* x, const T* turns, std::int64_t half, T factor, T* y) noexcept;
};

template <class T>
struct FourierOf {
  FourierKernel<T> lanes, single;
  FourierLine<T> line, shorter_line;  ///< whole vectors, and half ones
};

struct FourierKernels {
  FourierOf<float> f32;
  FourierOf<double> f64;
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
