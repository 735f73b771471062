#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/complex.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fft.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(fft, Fft);
TENON_DEFINE_OP(rfft, Rfft);
TENON_DEFINE_OP(irfft, Irfft);

namespace {

using Complex = std::complex<double>;

void require_real_type(std::string_view op, const Shape& shape) {
  if (shape.dtype() != f32 && shape.dtype() != f64) {
    fail(Errc::unsupported_dtype, op, fmt::format("needs f32 or f64, got {}", to_string(shape)));
  }
}

void require_complex(std::string_view op, const Shape& shape) {
  if (shape.rank() < 2 || !sizes_agree(shape[shape.rank() - 1], 2)) {
    fail(Errc::shape_mismatch, op,
         fmt::format("needs a last axis of 2, the real and the imaginary parts, got {}",
                     to_string(shape)));
  }
}

int complex_axis(std::string_view op, std::int64_t axis, const Shape& shape) {
  return checked_axis(op, axis, shape.without_axis(shape.rank() - 1));
}

/// By the smallest prime factor: y[0..n) of x[0], x[step], ..; `roots` are those of 1 of the whole
/// size, n * step of them.
void transform(const Complex* x, std::int64_t step, std::int64_t n, Complex* y,
               const std::vector<Complex>& roots) {
  if (n == 1) {
    *y = *x;
    return;
  }
  std::int64_t radix = 2;
  while (n % radix != 0) radix = radix * radix > n ? n : radix + 1;
  const std::int64_t part = n / radix;
  std::vector<Complex> parts(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < radix; ++r) {
    transform(x + r * step, step * radix, part, parts.data() + r * part, roots);
  }
  for (std::int64_t k = 0; k < n; ++k) {
    Complex sum = 0;
    for (std::int64_t r = 0; r < radix; ++r) {
      sum += parts[static_cast<std::size_t>(r * part + k % part)] *
             roots[static_cast<std::size_t>(r * k % n * step)];
    }
    y[k] = sum;
  }
}

std::vector<Complex> transformed(const std::vector<Complex>& x, bool inverse) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<Complex> roots, y(x.size());
  for (std::int64_t k = 0; k < n; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    roots.push_back(std::polar(1.0, inverse ? angle : -angle));
  }
  transform(x.data(), 1, n, y.data(), roots);
  if (inverse) {
    for (Complex& value : y) value /= static_cast<double>(n);
  }
  return y;
}

/// A view without its last axis, the one of parts, and the step along that.
struct Parts {
  HostView view;
  std::int64_t step;

  explicit Parts(const HostView& x)
      : view(x.data, x.shape.without_axis(x.shape.rank() - 1), x.strides),
        step(x.strides[static_cast<std::size_t>(x.shape.rank() - 1)]) {}
  static Complex load(const Lane& lane, std::int64_t i, std::int64_t part_step) {
    const std::byte* at = lane.base + i * lane.step;
    return {load_as_double(lane.dtype, at), load_as_double(lane.dtype, at + part_step)};
  }
  static void store(const Lane& lane, std::int64_t i, std::int64_t part_step, Complex value) {
    std::byte* at = lane.base + i * lane.step;
    store_double(lane.dtype, at, value.real());
    store_double(lane.dtype, at + part_step, value.imag());
  }
};

double transform_flops(std::int64_t n, std::int64_t elements) {
  return n < 2 ? 0 : 5.0 * static_cast<double>(elements) * std::log2(static_cast<double>(n));
}

/// [bins, 1] in front of `trailing` more axes of 1: `ends` for the first of n / 2 + 1 bins and, for
/// an even n, the last; `inner` for the others.
Tensor bin_factors(const Tensor& x, std::int64_t n, double ends, double inner, int trailing) {
  const std::int64_t bins = n / 2 + 1, last = n % 2 == 0 && n > 1 ? 1 : 0;
  std::vector<Tensor> parts;
  const auto add = [&](double value, std::int64_t count) {
    if (count == 0) return;
    const Full op{.value = value, .dims = {count}, .dtype = x.dtype()};
    parts.push_back(record_beside(x, op_def<Full>(), &op, std::source_location::current()));
  };
  add(ends, 1);
  add(inner, bins - 1 - last);
  add(ends, last);
  Tensor factors = parts.size() == 1 ? parts[0] : concat(std::span<const Tensor>(parts), 0);
  for (int i = 0; i < trailing; ++i) factors = unsqueeze(factors, -1);
  return factors;
}

}  // namespace

Shape Fft::infer(std::span<const Shape> in) const {
  require_real_type(name, in[0]);   // C1
  require_complex(name, in[0]);     // C2
  complex_axis(name, axis, in[0]);  // C3
  return in[0];
}

void Fft::reference(std::span<const HostView> in, const HostView& out) const {
  const Parts x(in[0]), y(out);
  const auto n = in[0].shape[static_cast<int>(axis)];
  if (n == 0) return;
  for_each_lane(x.view, y.view, static_cast<int>(axis), [&](const Lane& from, const Lane& to) {
    std::vector<Complex> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(Parts::load(from, i, x.step));
    values = transformed(values, inverse);
    for (std::int64_t i = 0; i < n; ++i) {
      Parts::store(to, i, y.step, values[static_cast<std::size_t>(i)]);
    }
  });
}

// The transpose of the real matrix that acts on both parts is the conjugate transpose of the
// complex one: the other direction, up to n.
std::vector<Tensor> Fft::gradient(const Backward& at) const {
  Fft other = *this;
  other.inverse = !inverse;
  const Tensor g = record(other, {at.upstream}, std::source_location::current());
  const Tensor size = size_along(at.output, axis, g.dtype());
  return {inverse ? g / size : g * size};
}

double Fft::flops(std::span<const Shape> in, const Shape&) const {
  return transform_flops(in[0][static_cast<int>(axis)], in[0].elements() / 2);
}

Shape Rfft::infer(std::span<const Shape> in) const {
  require_real_type(name, in[0]);                  // C1
  const int at = checked_axis(name, axis, in[0]);  // C2
  if (!is_static(in[0][at]) || in[0][at] == 0) {   // C3
    fail(Errc::bad_shape, name,
         fmt::format("needs a known size above 0 along axis {}, got {}{}", at, to_string(in[0]),
                     advice_on_symbols(in[0])));
  }
  return in[0].with_dim(at, in[0][at] / 2 + 1).with_tag(at, {}).with_axis(in[0].rank(), Axis(2));
}

void Rfft::reference(std::span<const HostView> in, const HostView& out) const {
  const Parts y(out);
  const int at = static_cast<int>(axis);
  const std::int64_t n = in[0].shape[at];
  for_each_lane(in[0], y.view, at, [&](const Lane& from, const Lane& to) {
    std::vector<Complex> values;
    for (std::int64_t i = 0; i < n; ++i) values.emplace_back(from.load(i));
    values = transformed(values, false);
    for (std::int64_t i = 0; i <= n / 2; ++i) {
      Parts::store(to, i, y.step, values[static_cast<std::size_t>(i)]);
    }
  });
}

// Each inner bin stands once in y, and irfft counts it twice.
std::vector<Tensor> Rfft::gradient(const Backward& at) const {
  const int a = static_cast<int>(axis);
  const Shape& shape = at.inputs[0].shape();
  const std::int64_t n = shape[a];
  const auto size = static_cast<double>(n);
  const Tensor factors = bin_factors(at.upstream, n, size, size / 2, shape.rank() - a);
  return {irfft(at.upstream * factors, n, a)};
}

double Rfft::flops(std::span<const Shape> in, const Shape&) const {
  return transform_flops(in[0][static_cast<int>(axis)], in[0].elements()) / 2;
}

Shape Irfft::infer(std::span<const Shape> in) const {
  require_real_type(name, in[0]);                           // C1
  require_complex(name, in[0]);                             // C2
  const int at = complex_axis(name, axis, in[0]);           // C3
  if (size < 1 || !sizes_agree(in[0][at], size / 2 + 1)) {  // C4
    fail(Errc::bad_shape, name,
         fmt::format("{} numbers have {} bins, got axis {} of {}", size,
                     size < 1 ? 0 : size / 2 + 1, at, to_string(in[0])));
  }
  return in[0].without_axis(in[0].rank() - 1).with_dim(at, size).with_tag(at, {});
}

void Irfft::reference(std::span<const HostView> in, const HostView& out) const {
  const Parts x(in[0]);
  for_each_lane(x.view, out, static_cast<int>(axis), [&](const Lane& from, const Lane& to) {
    std::vector<Complex> values(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i <= size / 2; ++i) {
      const Complex value = Parts::load(from, i, x.step);
      values[static_cast<std::size_t>((size - i) % size)] = std::conj(value);
      values[static_cast<std::size_t>(i)] = 2 * i % size == 0 ? value.real() : value;
    }
    values = transformed(values, true);
    for (std::int64_t i = 0; i < size; ++i) {
      to.store(i, values[static_cast<std::size_t>(i)].real());
    }
  });
}

std::vector<Tensor> Irfft::gradient(const Backward& at) const {
  const int a = static_cast<int>(axis);
  const auto n = static_cast<double>(size);
  const Tensor factors = bin_factors(at.upstream, size, 1 / n, 2 / n, at.inputs[0].rank() - 1 - a);
  return {rfft(at.upstream, a) * factors};
}

double Irfft::flops(std::span<const Shape>, const Shape& out) const {
  return transform_flops(size, out.elements()) / 2;
}

Tensor fft(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Fft{.axis = axis_of(x, axis, Fft::name, where)}, {x}, where);
}
Tensor ifft(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Fft{.axis = axis_of(x, axis, "ifft", where), .inverse = true}, {x}, where);
}
Tensor rfft(const Tensor& x, const AxisRef& axis, const std::source_location& where) {
  return record(Rfft{.axis = axis_of(x, axis, Rfft::name, where)}, {x}, where);
}
Tensor irfft(const Tensor& x, std::int64_t size, const AxisRef& axis,
             const std::source_location& where) {
  return record(Irfft{.axis = axis_of(x, axis, Irfft::name, where), .size = size}, {x}, where);
}

namespace {

/// The last axis of numbers.
std::int64_t last_of(const Tensor& x, const std::source_location& where) {
  return is_complex(x.dtype(where)) ? -1 : -2;
}

}  // namespace

Tensor fft(const Tensor& x, const std::source_location& where) {
  return fft(x, last_of(x, where), where);
}
Tensor ifft(const Tensor& x, const std::source_location& where) {
  return ifft(x, last_of(x, where), where);
}
Tensor irfft(const Tensor& x, std::int64_t size, const std::source_location& where) {
  return irfft(x, size, last_of(x, where), where);
}
Tensor rfft(const Tensor& x, const AxisRef& axis, DType dtype, const std::source_location& where) {
  if (dtype != x.dtype(where) && !is_complex(dtype)) {
    fail_at(where, Errc::unsupported_dtype, Rfft::name,
            fmt::format("{} of {}", name(dtype), to_string(x.shape(where))));
  }
  const Tensor y = rfft(x, axis, where);
  return is_complex(dtype) ? view_as_complex(y, where) : y;
}
Tensor fft2(const Tensor& x, const std::source_location& where) {
  return fft(fft(x, where), last_of(x, where) - 1, where);
}
Tensor ifft2(const Tensor& x, const std::source_location& where) {
  return ifft(ifft(x, where), last_of(x, where) - 1, where);
}

}  // namespace tenon
