// The type that builders compute in: halves as f32, rounded once at the end.
#pragma once

#include "ops/builder.hpp"

#include <tenon/ops/cast.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <string_view>

namespace tenon {

/// x in the type that it is computed in. Errc::unsupported_dtype where it is not floating.
inline Tensor at_least_f32(std::string_view op, const Tensor& x,
                           const std::source_location& where) {
  const DType dtype = x.dtype(where);
  if (!is_floating(dtype)) {
    fail_at(where, Errc::unsupported_dtype, op,
            fmt::format("needs a floating type, got {}", to_string(x.shape())));
  }
  return dtype == f32 || dtype == f64 ? x : cast(x, f32, where);
}

inline Tensor rounded(const Tensor& y, DType dtype, const std::source_location& where) {
  return y.dtype(where) == dtype ? y : cast(y, dtype, where);
}

}  // namespace tenon
