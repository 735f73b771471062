#include "quant_portable_fit.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

// fit.cpp once more, in a namespace of its own and as other processors than those of x86-64 compile it.
#undef __x86_64__
#define quant portable_quant
#include "quant/fit.cpp"
#undef quant

PortableFit portable_fit(std::span<const float> x, const float* importance) {
  using namespace tenon::portable_quant;
  const Elements in{x, importance};
  const Affine pair = fit_affine(in, 15);
  return {fit_scale(in, -8, 7),        squared_error(in, 0.25, -8, 7), pair.scale, pair.min,
          squared_error(in, pair, 15), code_sums(in, pair, 15).xq};
}
