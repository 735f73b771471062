#include "ops/builder.hpp"

#include <tenon/ops.hpp>

#include <span>
#include <vector>

namespace tenon {
namespace {

Tensor part(const Tensor& x, std::int64_t which, const std::source_location& where) {
  return squeeze(slice(view_as_real(x, where), -1, which, which + 1, 1, where), -1, where);
}

bool is_real(const Tensor& x, const std::source_location& where) {
  return !is_complex(x.dtype(where));
}

}  // namespace

Tensor view_as_real(const Tensor& x, const std::source_location& where) {
  if (is_real(x, where)) {
    fail_at(where, Errc::unsupported_dtype, "view_as_real",
            fmt::format("needs c64, got {}", to_string(x.shape(where))));
  }
  return bitcast(x, f32, where);
}

Tensor view_as_complex(const Tensor& x, const std::source_location& where) {
  if (x.dtype(where) != f32) {
    fail_at(where, Errc::unsupported_dtype, "view_as_complex",
            fmt::format("needs f32, got {}", to_string(x.shape(where))));
  }
  return bitcast(x, c64, where);
}

Tensor make_complex(const Tensor& re, const Tensor& im, const std::source_location& where) {
  const Tensor parts[] = {unsqueeze(re, -1, {}, where), unsqueeze(im, -1, {}, where)};
  return view_as_complex(concat(std::span<const Tensor>(parts), -1, where), where);
}

Tensor polar(const Tensor& magnitude, const Tensor& angle, const std::source_location& where) {
  return make_complex(mul(magnitude, cos(angle, where), where),
                      mul(magnitude, sin(angle, where), where), where);
}

Tensor complex_like(const Tensor& x, std::complex<double> value,
                    const std::source_location& where) {
  const auto scalar = [&](double part) {
    const Full op{.value = part, .dims = {}, .dtype = f32};
    return record_beside(x, op_def<Full>(), &op, where);
  };
  return make_complex(scalar(value.real()), scalar(value.imag()), where);
}

Tensor real(const Tensor& x, const std::source_location& where) {
  return is_real(x, where) ? x : part(x, 0, where);
}

Tensor imag(const Tensor& x, const std::source_location& where) {
  if (is_real(x, where)) {
    fail_at(where, Errc::unsupported_dtype, "imag",
            fmt::format("{} has no imaginary parts", to_string(x.shape(where))));
  }
  return part(x, 1, where);
}

Tensor conj(const Tensor& x, const std::source_location& where) {
  if (is_real(x, where)) return x;
  return make_complex(real(x, where), neg(imag(x, where), where), where);
}

Tensor angle(const Tensor& x, const std::source_location& where) {
  if (is_real(x, where)) return atan2(scalar_like(x, 0, where), x, where);
  return atan2(imag(x, where), real(x, where), where);
}

}  // namespace tenon
