// Conversions between plain types, as the files compiled for one instruction set provide them; plain data, for the reason
// that matmul/matmul_kernels.hpp gives.
#pragma once

#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// y[i] of x[i]; y does not overlap x unless their elements have one size and it is x.
using Conversion = void (*)(const void* x, void* y, std::int64_t count) noexcept;

struct ConversionKernels {
  /// widen() and narrow() of typed.hpp for whole numbers and bools that are not computed as stored, else null.
  Conversion (*widening)(DType from) noexcept;
  Conversion (*narrowing)(DType to) noexcept;
  /// From a compute type by the rules of Cast: truncated and saturated, a NaN as 0, to bool: not 0. Null for floating types
  /// narrower than f32.
  Conversion (*saturation)(Compute from, DType to) noexcept;
};

namespace portable {
extern const ConversionKernels conversions;
}
namespace avx2 {
extern const ConversionKernels conversions;
}
namespace avx512 {
extern const ConversionKernels conversions;
}

/// Those of the active instruction set.
const ConversionKernels& conversion_kernels() noexcept;

}  // namespace tenon::cpu
