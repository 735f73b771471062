#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

// Fourier transforms along one axis. To these ops a complex array is a real one with a last axis of
// 2, the real and the imaginary parts. Any size; f32 and f64. The builders take c64 as well.

/// y_k = sum_j x_j exp(-2 pi i j k / n); inverse: exp(+2 pi i j k / n) / n.
///
/// Input     x: [.., 2], complex; f32 or f64
/// Output    y: shape, tags and dtype of x
/// Errors    C1 dtype neither f32 nor f64             Errc::unsupported_dtype
///           C2 rank below 2, or the last axis not 2  Errc::shape_mismatch
///           C3 axis outside [0, rank - 1)            Errc::axis_out_of_range
/// Numerics  reference in f64, rounded once
/// Source    Cooley and Tukey (1965); Bluestein (1970) for sizes with a large prime factor
struct Fft {
  static constexpr std::string_view name = "fft";
  static constexpr int min_inputs = 1, max_inputs = 1;
  std::int64_t axis = 0;
  bool inverse = false;
  static constexpr auto fields =
      FieldList{field("axis", &Fft::axis), field("inverse", &Fft::inverse)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Fft);

/// The first n / 2 + 1 (rounded down) elements of the transform of real numbers; the others are
/// their conjugates.
///
/// Input     x: rank >= 1; f32 or f64
/// Output    y: x with n / 2 + 1 in place of n, without that axis's tag, and a last axis of 2
/// Errors    C1 dtype neither f32 nor f64              Errc::unsupported_dtype
///           C2 axis outside [0, rank)                 Errc::axis_out_of_range
///           C3 an axis of size 0, or of unknown size  Errc::bad_shape
/// Numerics  as of fft
struct Rfft {
  static constexpr std::string_view name = "rfft";
  static constexpr int min_inputs = 1, max_inputs = 1;
  std::int64_t axis = 0;
  static constexpr auto fields = FieldList{field("axis", &Rfft::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Rfft);

/// The inverse of rfft: `size` real numbers. The imaginary parts of x's first element, and of the
/// last one for an even size, do not count.
///
/// Input     x: [.., size / 2 + 1, .., 2]; f32 or f64
/// Output    y: x with `size` in place of size / 2 + 1, without the last axis
/// Errors    C1 dtype neither f32 nor f64                      Errc::unsupported_dtype
///           C2 rank below 2, or the last axis not 2           Errc::shape_mismatch
///           C3 axis outside [0, rank - 1)                     Errc::axis_out_of_range
///           C4 size below 1, or the axis not size / 2 + 1     Errc::bad_shape
/// Numerics  as of fft
struct Irfft {
  static constexpr std::string_view name = "irfft";
  static constexpr int min_inputs = 1, max_inputs = 1;
  std::int64_t axis = 0;
  std::int64_t size = 1;
  static constexpr auto fields =
      FieldList{field("axis", &Irfft::axis), field("size", &Irfft::size)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Irfft);

/// c64 of c64; of real numbers, pairs of pairs. `axis` counts x's own axes, the pair of parts
/// included: without one it is the last, or of pairs the last before these.
Tensor fft(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor fft(const Tensor& x, const AxisRef& axis,
           const std::source_location& where = std::source_location::current());
Tensor ifft(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor ifft(const Tensor& x, const AxisRef& axis,
            const std::source_location& where = std::source_location::current());
Tensor rfft(const Tensor& x, const AxisRef& axis = -1,
            const std::source_location& where = std::source_location::current());
/// `dtype`: c64, or that of x, whose pairs are the last axis (Errc::unsupported_dtype for others).
Tensor rfft(const Tensor& x, const AxisRef& axis, DType dtype,
            const std::source_location& where = std::source_location::current());
Tensor irfft(const Tensor& x, std::int64_t size,
             const std::source_location& where = std::source_location::current());
Tensor irfft(const Tensor& x, std::int64_t size, const AxisRef& axis,
             const std::source_location& where = std::source_location::current());
/// Along the last two axes, or those before the pair of parts.
Tensor fft2(const Tensor& x, const std::source_location& where = std::source_location::current());
Tensor ifft2(const Tensor& x, const std::source_location& where = std::source_location::current());

}  // namespace tenon
