#include "array/element.hpp"
#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/clamp.hpp>

#include <algorithm>
#include <cmath>

namespace tenon {

TENON_DEFINE_OP(clamp, Clamp);

namespace {

/// Whether [min, max] has a value of an integer type. Its limits are powers of two, which a double is.
bool has_integer(double min, double max, DType dtype) {
  const int bits = static_cast<int>(block_bytes(dtype)) * 8;
  const bool is_signed = facts(dtype).kind == DTypeKind::signed_integer;
  const double above = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const double low = std::ceil(min), high = std::floor(max);
  return low <= high && low < above && high >= (is_signed ? -above : 0.0);
}

}  // namespace

Shape Clamp::infer(std::span<const Shape> in) const {
  require_number(name, in[0]);  // C1
  if (!(min <= max)) {          // C2; also when one is a NaN
    fail(Errc::bad_attribute, name,
         fmt::format("min {} is not at most max {}, for {}", min, max, to_string(in[0])));
  }
  const DType dtype = in[0].dtype();
  if (is_integer(dtype) && !has_integer(min, max, dtype)) {  // C3
    fail(Errc::bad_attribute, name,
         fmt::format("no {} is in [{}, {}], for {}", tenon::name(dtype), min, max,
                     to_string(in[0])));
  }
  return in[0];
}

void Clamp::reference(std::span<const HostView> in, const HostView& out) const {
  if (is_integer(in[0].shape.dtype())) {
    const auto low = element::truncate<std::int64_t>(std::ceil(min));
    const auto high = element::truncate<std::int64_t>(std::floor(max));
    return map_integers(in[0], out,
                        [=](std::int64_t x) { return std::min(std::max(x, low), high); });
  }
  map_reals(in[0], out, [this](double x) { return x < min ? min : x > max ? max : x; });
}

std::vector<Tensor> Clamp::gradient(const Backward& at) const {
  // Nothing passes at a bound, as at 0 of relu (and as in PyTorch since 2.15).
  return {passed_where(is_between(at.inputs[0], min, max), at.upstream)};
}

Tensor clamp(const Tensor& x, double min, double max, const std::source_location& where) {
  return record(Clamp{.min = min, .max = max}, {x}, where);
}

}  // namespace tenon
