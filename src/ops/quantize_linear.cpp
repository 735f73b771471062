#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/fill.hpp>
#include <tenon/ops/quantize_linear.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(quantize_linear, QuantizeLinear);
TENON_DEFINE_OP(dequantize_linear, DequantizeLinear);

namespace {

constexpr std::array<std::string_view, 3> operand_names{"x", "scale", "zero_point"};

/// The last two constraints of both ops.
void check_parameters(std::string_view op, std::int64_t axis, std::span<const Shape> in) {
  const Shape& x = in[0];
  for (const Shape& parameter : in.subspan(1)) {
    if (is_one_number(parameter)) continue;
    const int along = checked_axis(op, axis, x);
    if (parameter.rank() != 1 || !sizes_agree(parameter[0], x[along])) {
      fail(Errc::shape_mismatch, op,
           fmt::format("scale and zero_point need one number, or one for each index of axis {}: {}",
                       along, operands_text(operand_names, in)));
    }
  }
}

/// The number of a scale or zero point for an index of the values.
class Parameter {
 public:
  Parameter(std::span<const HostView> in, std::size_t which, std::int64_t axis) {
    if (which >= in.size()) return;
    view_ = &in[which];
    if (!is_one_number(view_->shape)) axis_ = static_cast<std::size_t>(axis);
    step_ = view_->shape.rank() == 1 ? view_->strides[0] : 0;
  }
  bool is_given() const noexcept { return view_ != nullptr; }
  const std::byte* at(std::span<const std::int64_t> index) const noexcept {
    return axis_ == none ? view_->data : view_->data + index[axis_] * step_;
  }

 private:
  static constexpr auto none = static_cast<std::size_t>(-1);
  const HostView* view_ = nullptr;
  std::size_t axis_ = none;
  std::int64_t step_ = 0;
};

float load_float(const std::byte* element) noexcept {
  return static_cast<float>(load_as_double(DType::f32, element));
}

/// saturate(round(value) + zero) for codes [low, high].
std::int64_t code_of(float value, std::int64_t zero, std::int64_t low, std::int64_t high) noexcept {
  const float rounded = std::nearbyint(value);
  if (!(rounded > static_cast<float>(low - zero))) return low;
  if (rounded >= static_cast<float>(high - zero)) return high;
  return static_cast<std::int64_t>(rounded) + zero;
}

}  // namespace

Shape QuantizeLinear::infer(std::span<const Shape> in) const {
  if (dtype != DType::i8 && dtype != DType::u8) {  // C1
    fail(Errc::bad_attribute, name, fmt::format("dtype {}, needs i8 or u8", tenon::name(dtype)));
  }
  require_dtype(name, "x", in[0], DType::f32);  // C2
  require_dtype(name, "scale", in[1], DType::f32);
  if (in.size() > 2) require_dtype(name, "zero_point", in[2], dtype);
  check_parameters(name, axis, in);  // C3, C4
  return in[0].with_dtype(dtype);
}

void QuantizeLinear::reference(std::span<const HostView> in, const HostView& out) const {
  const Parameter scale(in, 1, axis), zero_point(in, 2, axis);
  const std::int64_t low = dtype == DType::i8 ? -128 : 0, high = low + 255;
  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const float value = load_float(in[0].at(index)) / load_float(scale.at(index));
    const std::int64_t zero =
        zero_point.is_given() ? load_as_int64(dtype, zero_point.at(index)) : 0;
    store_int64(dtype, next++, code_of(value, zero, low, high));
  });
}

Shape DequantizeLinear::infer(std::span<const Shape> in) const {
  const DType dtype = in[0].dtype();
  if (dtype != DType::i8 && dtype != DType::u8 && dtype != DType::i32) {  // C1
    fail(Errc::unsupported_dtype, name,
         fmt::format("x needs i8, u8 or i32: {}", operands_text(operand_names, in)));
  }
  require_dtype(name, "scale", in[1], DType::f32);
  if (in.size() > 2) require_dtype(name, "zero_point", in[2], dtype);
  check_parameters(name, axis, in);  // C2, C3
  return in[0].with_dtype(DType::f32);
}

void DequantizeLinear::reference(std::span<const HostView> in, const HostView& out) const {
  const Parameter scale(in, 1, axis), zero_point(in, 2, axis);
  const DType dtype = in[0].shape.dtype();
  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t zero =
        zero_point.is_given() ? load_as_int64(dtype, zero_point.at(index)) : 0;
    const std::int64_t difference =
        wrap_to(DType::i32, load_as_int64(dtype, in[0].at(index)) - zero);
    const float value = static_cast<float>(difference) * load_float(scale.at(index));
    store_double(DType::f32, next, double{value});
    next += block_bytes(DType::f32);
  });
}

namespace {

bool is_per_tensor(const Tensor& parameter) {
  return parameter.is_empty() || is_one_number(parameter.shape());
}

/// The axis that scales run along, as a number; the default where there is only one scale.
std::int64_t scale_axis(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                        const AxisRef& axis, std::string_view op,
                        const std::source_location& where) {
  if (is_per_tensor(scale) && is_per_tensor(zero_point)) return QuantizeLinear{}.axis;
  return axis_of(x, axis, op, where);
}

std::vector<Tensor> operands_of(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  std::vector<Tensor> operands{x, scale};
  if (!zero_point.is_empty()) operands.push_back(zero_point);
  return operands;
}

}  // namespace

Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                       const QuantizeOptions& options, const std::source_location& where) {
  const QuantizeLinear op{
      .axis = scale_axis(x, scale, zero_point, options.axis, QuantizeLinear::name, where),
      .dtype = zero_point.is_empty() ? options.dtype : zero_point.dtype(where)};
  const std::vector<Tensor> operands = operands_of(x, scale, zero_point);
  return record(op, std::span<const Tensor>(operands), where);
}

Tensor dequantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                         const AxisRef& axis, const std::source_location& where) {
  const DequantizeLinear op{
      .axis = scale_axis(x, scale, zero_point, axis, DequantizeLinear::name, where)};
  const std::vector<Tensor> operands = operands_of(x, scale, zero_point);
  return record(op, std::span<const Tensor>(operands), where);
}

Tensor requantize(const Tensor& sums, const Tensor& multiplier, const Tensor& zero_point,
                  const AxisRef& axis, const std::source_location& where) {
  const Tensor scaled = dequantize_linear(sums, multiplier, {}, axis, where);
  return quantize_linear(scaled, scalar_like(scaled, 1.0, where), zero_point, {}, where);
}

}  // namespace tenon
