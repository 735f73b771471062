#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <complex>
#include <source_location>
#include <span>

namespace tenon {

// Complex numbers are c64, two of f32. Ops that move elements take them as they are. These take them
// too, and are recorded as ops on the parts:
//
//   add sub mul div pow linear matmul    beside f32 as well, as in PyTorch; and with them einsum,
//                                        operators and what else is composed of them
//   neg square reciprocal sqrt rsqrt exp log sin cos sign sum mean cumsum; cast from real types
//   eq ne is_nan is_inf is_finite abs    whose results are not complex
//   fft ifft irfft                       without the axis of two numbers
//
// Others refuse them by name. A gradient of a real loss with respect to z is dL/dx + i dL/dy, as in
// PyTorch. Division scales by the larger part (Smith, Algorithm 116, CACM 1962).

/// [.., 2] of f32: real and imaginary parts; shares x's memory.
Tensor view_as_real(const Tensor& x,
                    const std::source_location& where = std::source_location::current());
/// The inverse: x is f32 with an innermost axis of 2, whose memory it shares if that is dense.
Tensor view_as_complex(const Tensor& x,
                       const std::source_location& where = std::source_location::current());

/// re + im i of two arrays of f32 of the same sizes.
Tensor make_complex(const Tensor& re, const Tensor& im,
                    const std::source_location& where = std::source_location::current());
/// magnitude * e^(i angle)
Tensor polar(const Tensor& magnitude, const Tensor& angle,
             const std::source_location& where = std::source_location::current());
/// A c64 scalar in x's graph.
Tensor complex_like(const Tensor& x, std::complex<double> value,
                    const std::source_location& where = std::source_location::current());

/// The parts, in x's memory. Of a real x itself; `imag` refuses that (Errc::unsupported_dtype).
Tensor real(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor imag(const Tensor& x, const std::source_location& where = std::source_location::current());
/// x itself if it is real.
Tensor conj(const Tensor& x, const std::source_location& where = std::source_location::current());
/// In [-pi, pi]; of a real x 0 or pi.
Tensor angle(const Tensor& x, const std::source_location& where = std::source_location::current());

/// Whether record() makes other ops of an op on these inputs, as of the arithmetic above and of that
/// of u64. Attributes as of OpInstance.
bool is_composed(const OpDef& def, const void* attributes, std::span<const Shape> inputs);

}  // namespace tenon
