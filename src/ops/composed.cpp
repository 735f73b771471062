// c64 as two of f32, u64 as i64: arithmetic modulo 2^64 is the same, and order is, too, where the
// topmost bit is the other way.
#include "ops/composed.hpp"

#include <tenon/error.hpp>
#include <tenon/ops.hpp>
#include <tenon/ops/operators.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace tenon {
namespace {

using Inputs = std::span<const Tensor>;
using Types = std::span<const Shape>;

Tensor record_op(const OpDef& def, const void* op, Inputs in) {
  return record(def, op, in, std::source_location::current());
}

// --- c64

Tensor last_axis(const Tensor& x) { return unsqueeze(x, -1); }

/// As c64, if it is f32.
Tensor as_complex(const Tensor& x) { return is_complex(x.dtype()) ? x : cast(x, c64); }

/// The op on arrays of both parts, whose axes are the operands' and one more.
Tensor of_pairs(const OpDef& def, const void* op, Inputs in) {
  std::vector<Tensor> pairs;
  for (const Tensor& x : in) pairs.push_back(view_as_real(as_complex(x)));
  return record_op(def, op, pairs);
}
Tensor on_pairs(const OpDef& def, const void* op, Inputs in) {
  return view_as_complex(of_pairs(def, op, in));
}
Tensor any_part(const OpDef& def, const void* op, Inputs in) {
  return any(of_pairs(def, op, in), -1);
}
Tensor all_parts(const OpDef& def, const void* op, Inputs in) {
  return all(of_pairs(def, op, in), -1);
}

Tensor scaled(const Tensor& z, const Tensor& by) {
  return view_as_complex(view_as_real(z) * last_axis(by));
}

/// Of a product that is linear in both operands.
template <class Product>
Tensor product(const Tensor& a, const Tensor& b, Product&& times) {
  if (!is_complex(a.dtype())) return make_complex(times(a, real(b)), times(a, imag(b)));
  if (!is_complex(b.dtype())) return make_complex(times(real(a), b), times(imag(a), b));
  const Tensor ar = real(a), ai = imag(a), br = real(b), bi = imag(b);
  return make_complex(times(ar, br) - times(ai, bi), times(ar, bi) + times(ai, br));
}

Tensor complex_mul(const OpDef&, const void*, Inputs in) {
  if (!is_complex(in[0].dtype())) return scaled(in[1], in[0]);
  if (!is_complex(in[1].dtype())) return scaled(in[0], in[1]);
  return product(in[0], in[1], [](const Tensor& a, const Tensor& b) { return a * b; });
}

Tensor complex_div(const OpDef&, const void*, Inputs in) {
  if (!is_complex(in[1].dtype())) {
    return view_as_complex(view_as_real(in[0]) / last_axis(in[1]));
  }
  const Tensor z = as_complex(in[0]);
  const Tensor a = real(z), b = imag(z), c = real(in[1]), d = imag(in[1]);
  const Tensor real_is_larger = ge(abs(c), abs(d));
  const Tensor larger = where(real_is_larger, c, d), smaller = where(real_is_larger, d, c);
  // Numbers over zero are infinite, part by part.
  const Tensor zero = scalar_like(larger, 0), is_zero = eq(larger, zero), ratio = smaller / larger;
  const auto share = [&](const Tensor& x) { return where(is_zero, zero, x * ratio); };
  const Tensor divisor = larger + share(smaller);
  const Tensor first = where(real_is_larger, a, b), second = where(real_is_larger, b, a);
  const Tensor turned = second - share(first);
  return make_complex((first + share(second)) / divisor,
                      where(real_is_larger, turned, -turned) / divisor);
}

Tensor complex_abs(const OpDef&, const void*, Inputs in) { return hypot(real(in[0]), imag(in[0])); }

Tensor complex_exp(const OpDef&, const void*, Inputs in) {
  return polar(exp(real(in[0])), imag(in[0]));
}

Tensor complex_log(const OpDef&, const void*, Inputs in) {
  return make_complex(log(abs(in[0])), angle(in[0]));
}

/// Of |z| + |x|, which loses no digits; the sign of the imaginary part is z's, that of -0 included.
Tensor complex_sqrt(const OpDef&, const void*, Inputs in) {
  const Tensor x = real(in[0]), y = imag(in[0]);
  const Tensor zero = scalar_like(x, 0);
  const Tensor large = sqrt(abs(x) * 0.5 + abs(in[0]) * 0.5);
  const Tensor is_zero = eq(large, zero);
  const Tensor is_below = lt(atan2(y, scalar_like(y, -1)), zero);
  // |y| by its sign, as it has a derivative at 0, too.
  const Tensor small = where(is_below, -y, y) / where(is_zero, scalar_like(x, 1), large * 2.0);
  const Tensor is_right = ge(x, zero);
  const Tensor magnitude = where(is_right, small, large);
  return make_complex(where(is_right, large, small), where(is_below, -magnitude, magnitude));
}

Tensor complex_square(const OpDef&, const void*, Inputs in) { return in[0] * in[0]; }
Tensor complex_reciprocal(const OpDef&, const void*, Inputs in) {
  return scalar_like(in[0], 1) / in[0];
}
Tensor complex_rsqrt(const OpDef&, const void*, Inputs in) { return reciprocal(sqrt(in[0])); }

Tensor complex_sin(const OpDef&, const void*, Inputs in) {
  const Tensor x = real(in[0]), y = imag(in[0]);
  return make_complex(sin(x) * cosh(y), cos(x) * sinh(y));
}
Tensor complex_cos(const OpDef&, const void*, Inputs in) {
  const Tensor x = real(in[0]), y = imag(in[0]);
  return make_complex(cos(x) * cosh(y), -(sin(x) * sinh(y)));
}

/// z / |z|; 0 of 0.
Tensor complex_sign(const OpDef&, const void*, Inputs in) {
  const Tensor size = abs(in[0]);
  const Tensor is_zero = eq(size, scalar_like(size, 0));
  const Tensor divisor = where(is_zero, scalar_like(size, 1), size);
  const Tensor parts = view_as_real(in[0]) / last_axis(divisor);
  return view_as_complex(where(last_axis(is_zero), scalar_like(parts, 0), parts));
}

/// e^(b log a); 0 to the power 0 is 1, to others 0.
Tensor complex_pow(const OpDef&, const void*, Inputs in) {
  const Tensor a = as_complex(in[0]);
  const Tensor of_base = eq(a, scalar_like(a, 0));
  const Tensor of_exponent = eq(in[1], scalar_like(in[1], 0));
  const Tensor base = where(of_base, scalar_like(a, 1), a);
  const Tensor power = exp(log(base) * in[1]);
  const Tensor zero = scalar_like(a, 0), one = scalar_like(a, 1);
  return where(of_exponent, one, where(of_base, zero, power));
}

Tensor complex_matmul(const OpDef&, const void*, Inputs in) {
  return product(in[0], in[1], [](const Tensor& a, const Tensor& b) { return matmul(a, b); });
}

Tensor complex_linear(const OpDef&, const void*, Inputs in) {
  Tensor y = product(in[0], in[1], [](const Tensor& x, const Tensor& w) { return linear(x, w); });
  for (const Tensor& added : in.subspan(2)) y = y + added;
  return y;
}

/// With imaginary parts of 0.
Tensor complex_cast(const OpDef&, const void*, Inputs in) {
  if (is_complex(in[0].dtype())) return in[0];
  return view_as_complex(pad(last_axis(cast(in[0], f32)), -1, 0, 1));
}

/// Transforms, whose axes before that of the parts are x's.
Tensor complex_fft(const OpDef& def, const void* op, Inputs in) {
  const Tensor pairs = view_as_real(in[0]);
  const Tensor y = record_op(def, op, {&pairs, 1});
  return def.name == Irfft::name ? y : view_as_complex(y);
}

Tensor complex_scatter(const OpDef& def, const void* op, Inputs in) {
  const auto of = [&](const Tensor& x, const Tensor& source) {
    const Tensor operands[] = {x, in[1], source};
    return record_op(def, op, operands);
  };
  return make_complex(of(real(in[0]), real(in[2])), of(imag(in[0]), imag(in[2])));
}

// --- u64

Tensor bits_of(const Tensor& x) { return x.dtype() == u64 ? bitcast(x, i64) : x; }
Tensor topmost(const Tensor& bits) { return scalar_like(bits, -0x1p63); }
Tensor flipped(const Tensor& bits) { return bitwise_xor(bits, topmost(bits)); }

/// The op on the bits as i64, whose results are u64 again.
Tensor on_bits(const OpDef& def, const void* op, Inputs in) {
  std::vector<Tensor> bits;
  for (const Tensor& x : in) bits.push_back(bits_of(x));
  const Tensor y = record_op(def, op, bits);
  return y.dtype() == i64 ? bitcast(y, u64) : y;
}

/// The op on numbers of i64 in the same order.
Tensor in_order(const OpDef& def, const void* op, Inputs in) {
  std::vector<Tensor> ordered;
  for (const Tensor& x : in) ordered.push_back(x.dtype() == u64 ? flipped(bits_of(x)) : x);
  return record_op(def, op, ordered);
}
Tensor picked_in_order(const OpDef& def, const void* op, Inputs in) {
  return bitcast(flipped(in_order(def, op, in)), u64);
}

/// bits / 2, not below 0.
Tensor halved(const Tensor& bits) {
  return bitwise_and(shift_right(bits, scalar_like(bits, 1)), bitwise_not(topmost(bits)));
}

/// By the quotient of the half, which is at most one too small when it is doubled. 0 by 0.
Tensor quotient(const Tensor& a, const Tensor& b) {
  const Tensor zero = scalar_like(b, 0), one = scalar_like(b, 1);
  const auto at_least = [&](const Tensor& x) { return cast(ge(flipped(x), flipped(b)), i64); };
  const Tensor doubled = shift_left(div(halved(a), b), one);
  const Tensor of_small = doubled + at_least(a - doubled * b);
  const Tensor result = where(lt(b, zero), at_least(a), of_small);
  return where(eq(b, zero), zero, result);
}

Tensor unsigned_div(const OpDef&, const void*, Inputs in) {
  return bitcast(quotient(bits_of(in[0]), bits_of(in[1])), u64);
}
Tensor unsigned_remainder(const OpDef&, const void*, Inputs in) {
  const Tensor a = bits_of(in[0]), b = bits_of(in[1]), zero = scalar_like(b, 0);
  return bitcast(where(eq(b, zero), zero, a - quotient(a, b) * b), u64);
}

/// By one, which leaves no sign to be shifted in, and by the rest.
Tensor unsigned_shift_right(const OpDef&, const void*, Inputs in) {
  const Tensor a = bits_of(in[0]), by = bits_of(in[1]), one = scalar_like(by, 1);
  return bitcast(where(eq(by, scalar_like(by, 0)), a, shift_right(halved(a), by - one)), u64);
}

/// a^(2^63) is 1 for an odd a and 0 for an even one.
Tensor unsigned_pow(const OpDef&, const void*, Inputs in) {
  const Tensor a = bits_of(in[0]), b = bits_of(in[1]), one = scalar_like(a, 1);
  const Tensor low = pow(a, bitwise_and(b, bitwise_not(topmost(b))));
  const Tensor high = where(lt(b, scalar_like(b, 0)), bitwise_and(a, one), one);
  return bitcast(low * high, u64);
}

Tensor unchanged(const OpDef&, const void*, Inputs in) { return in[0]; }
Tensor unsigned_sign(const OpDef&, const void*, Inputs in) {
  return cast(ne(in[0], scalar_like(in[0], 0)), u64);
}

Tensor unsigned_scatter(const OpDef& def, const void* op, Inputs in) {
  const Scatter::Mode mode = static_cast<const Scatter*>(op)->combination();
  const bool is_picked = mode == Scatter::Mode::min || mode == Scatter::Mode::max;
  const auto as = [&](const Tensor& x) { return is_picked ? flipped(bits_of(x)) : bits_of(x); };
  const Tensor operands[] = {as(in[0]), in[1], as(in[2])};
  const Tensor y = record_op(def, op, operands);
  return bitcast(is_picked ? flipped(y) : y, u64);
}

struct Entry {
  std::string_view op;
  Composition::Record record;
};

constexpr Entry complex_entries[] = {
    {"add", on_pairs},          {"sub", on_pairs},
    {"neg", on_pairs},          {"sum", on_pairs},
    {"mean", on_pairs},         {"cumsum", on_pairs},
    {"mul", complex_mul},       {"div", complex_div},
    {"pow", complex_pow},       {"matmul", complex_matmul},
    {"linear", complex_linear}, {"scatter", complex_scatter},
    {"abs", complex_abs},       {"sign", complex_sign},
    {"exp", complex_exp},       {"log", complex_log},
    {"sqrt", complex_sqrt},     {"rsqrt", complex_rsqrt},
    {"square", complex_square}, {"reciprocal", complex_reciprocal},
    {"sin", complex_sin},       {"cos", complex_cos},
    {"eq", all_parts},          {"ne", any_part},
    {"is_nan", any_part},       {"is_inf", any_part},
    {"is_finite", all_parts},
};

constexpr Entry unsigned_entries[] = {
    {"add", on_bits},
    {"sub", on_bits},
    {"mul", on_bits},
    {"neg", on_bits},
    {"square", on_bits},
    {"sum", on_bits},
    {"prod", on_bits},
    {"cumsum", on_bits},
    {"cumprod", on_bits},
    {"matmul", on_bits},
    {"eq", on_bits},
    {"ne", on_bits},
    {"bitwise_and", on_bits},
    {"bitwise_or", on_bits},
    {"bitwise_xor", on_bits},
    {"bitwise_not", on_bits},
    {"lt", in_order},
    {"le", in_order},
    {"gt", in_order},
    {"ge", in_order},
    {"argmax", in_order},
    {"argmin", in_order},
    {"argsort", in_order},
    {"topk", in_order},
    {"searchsorted", in_order},
    {"minimum", picked_in_order},
    {"maximum", picked_in_order},
    {"min", picked_in_order},
    {"max", picked_in_order},
    {"sort", picked_in_order},
    {"cummin", picked_in_order},
    {"cummax", picked_in_order},
    {"div", unsigned_div},
    {"remainder", unsigned_remainder},
    {"fmod", unsigned_remainder},
    {"pow", unsigned_pow},
    {"shift_left", on_bits},
    {"shift_right", unsigned_shift_right},
    {"abs", unchanged},
    {"relu", unchanged},
    {"sign", unsigned_sign},
    {"scatter", unsigned_scatter},
};

Composition::Record find(std::span<const Entry> entries, std::string_view op) {
  const auto found = std::ranges::find(entries, op, &Entry::op);
  return found == entries.end() ? nullptr : found->record;
}

bool are_all(Types in, DType a, DType b) {
  return std::ranges::all_of(in, [&](const Shape& x) { return x.dtype() == a || x.dtype() == b; });
}

/// Those operands that are numbers, not indices.
Types numbers_of(const OpDef& def, Types in, std::vector<Shape>& memory) {
  if (def.name != Scatter::name || in.size() != 3) return in;
  memory = {in[0], in[2]};
  return memory;
}

}  // namespace

std::optional<Composition> find_composition(const OpDef& def, const void* op, Types inputs) {
  if (def.name == Cast::name) {
    if (!is_complex(static_cast<const Cast*>(op)->dtype)) return std::nullopt;
    return Composition{complex_cast};
  }
  const auto found = std::ranges::find_if(
      inputs, [](const Shape& input) { return is_complex(input.dtype()) || input.dtype() == u64; });
  if (found == inputs.end() || def.traits.view) return std::nullopt;
  if (def.name == Scatter::name &&
      static_cast<const Scatter*>(op)->combination() == Scatter::Mode::set) {
    return std::nullopt;
  }
  std::vector<Shape> memory;
  const Types numbers = numbers_of(def, inputs, memory);
  if (are_all(numbers, u64, u64)) {
    const Composition::Record record = find(unsigned_entries, def.name);
    return record != nullptr ? std::optional(Composition{record, i64}) : std::nullopt;
  }
  if (!are_all(numbers, c64, f32)) return std::nullopt;
  if (def.name == Fft::name || def.name == Irfft::name) return Composition{complex_fft};
  const Composition::Record record = find(complex_entries, def.name);
  return record != nullptr ? std::optional(Composition{record, f32}) : std::nullopt;
}

bool is_composed(const OpDef& def, const void* attributes, Types inputs) {
  return find_composition(def, attributes, inputs).has_value();
}

}  // namespace tenon
