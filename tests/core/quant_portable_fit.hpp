#pragma once

#include <span>

/// What the functions of src/quant/fit.hpp answer where the machine has no AVX2.
struct PortableFit {
  double scale, scale_error, affine_scale, affine_min, affine_error, code_sum;
};

PortableFit portable_fit(std::span<const float> x, const float* importance);
