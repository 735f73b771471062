#include "ops/checks.hpp"
#include "ops/convolved.hpp"
#include "ops/matrix_stack.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/integer_product.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/quantize_linear.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(matmul_integer, MatmulInteger);
TENON_DEFINE_OP(conv2d_integer, Conv2dInteger);

namespace {

/// C1 of both ops: inputs 0 and 1 are codes, inputs 2 and 3 their zero points.
void check_codes(std::string_view op, std::span<const Shape> in, const std::string& operands) {
  for (std::size_t i = 0; i < 2; ++i) {
    const DType dtype = in[i].dtype();
    if (dtype != DType::i8 && dtype != DType::u8) {
      fail(Errc::unsupported_dtype, op, fmt::format("needs i8 or u8: {}", operands));
    }
    if (i + 2 < in.size() && in[i + 2].dtype() != dtype) {
      fail(Errc::unsupported_dtype, op,
           fmt::format("a zero point needs the type of its operand: {}", operands));
    }
  }
}

/// One number for the first operand; one, or `outputs`, for the second.
void check_zero_points(std::string_view op, std::span<const Shape> in, std::int64_t outputs,
                       const std::string& operands) {
  if (in.size() > 2 && !is_one_number(in[2])) {
    fail(Errc::shape_mismatch, op,
         fmt::format("the first zero point is not one number: {}", operands));
  }
  if (in.size() > 3 && !is_one_number(in[3]) &&
      (in[3].rank() != 1 || !sizes_agree(in[3][0], outputs))) {
    fail(Errc::shape_mismatch, op,
         fmt::format("the second zero point is neither one number nor one for each output: {}",
                     operands));
  }
}

/// The zero point of input 0 or 1, for one of the outputs.
std::int64_t zero_point(std::span<const HostView> in, std::size_t input, std::int64_t output) {
  if (input + 2 >= in.size()) return 0;
  const HostView& zero = in[input + 2];
  const std::int64_t offset = is_one_number(zero.shape) ? 0 : output * zero.strides[0];
  return load_as_int64(zero.shape.dtype(), zero.data + offset);
}

void store_sum(std::byte*& next, std::int64_t sum) {
  store_int64(DType::i32, next, wrap_to(DType::i32, sum));
  next += block_bytes(DType::i32);
}

}  // namespace

Shape MatmulInteger::infer(std::span<const Shape> in) const {
  const std::string operands = matrices_text(in);
  check_codes(name, in, operands);                       // C1
  const Shape c = matrix_product(name, in, DType::i32);  // C2 to C5
  const Shape& b = in[1];
  check_zero_points(name, in, b.rank() > 1 ? b[b.rank() - 1] : 1, operands);  // C6
  return c;
}

void MatmulInteger::reference(std::span<const HostView> in, const HostView& out) const {
  const MatrixStack a(in[0], true);
  const MatrixStack b(in[1], false);
  const DType a_type = in[0].shape.dtype(), b_type = in[1].shape.dtype();
  const std::int64_t a_zero = zero_point(in, 0, 0);
  std::byte* next = out.data;  // dense: matrices follow one another
  const int leading = std::max(a.leading, b.leading);
  const Shape outer(out.shape.dims().first(static_cast<std::size_t>(leading)), DType::i32);
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    for (std::int64_t m = 0; m < a.lines; ++m) {
      const std::byte* row = a.matrix(index) + m * a.line_step;
      for (std::int64_t n = 0; n < b.lines; ++n) {
        const std::byte* column = b.matrix(index) + n * b.line_step;
        const std::int64_t b_zero = zero_point(in, 1, n);
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < a.length; ++k) {
          sum += (load_as_int64(a_type, row + k * a.length_step) - a_zero) *
                 (load_as_int64(b_type, column + k * b.length_step) - b_zero);
        }
        store_sum(next, sum);
      }
    }
  });
}

double MatmulInteger::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& a = in[0];
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(a[a.rank() - 1]);
}

Shape Conv2dInteger::infer(std::span<const Shape> in) const {
  const Shape& x = in[0];
  const Shape& w = in[1];
  constexpr std::array<std::string_view, 4> names{"x", "w", "x_zero", "w_zero"};
  const std::string operands = operands_text(names, in);
  check_codes(name, in, operands);  // C1
  require_rank(name, "x", x, 4);    // C2
  require_rank(name, "w", w, 4);
  check_channels(name, groups, x, w, operands);                                        // C3, C4
  check_zero_points(name, in, w[0], operands);                                         // C5
  return convolved(name, *this, x, w, w.axis_at(0), operands).with_dtype(DType::i32);  // C6 to C8
}

void Conv2dInteger::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& x = in[0];
  const HostView& w = in[1];
  if (out.shape.elements() == 0) return;
  const auto [rows, columns] = convolution_window(name, *this, w.shape);
  const std::int64_t group_outputs = w.shape[0] / groups, channels = w.shape[1];
  const std::int64_t x_zero = zero_point(in, 0, 0);
  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t output = index[1], first_channel = output / group_outputs * channels;
    const std::int64_t w_zero = zero_point(in, 1, output);
    const auto down = rows.taps_inside(index[2], x.shape[2]);
    const auto across = columns.taps_inside(index[3], x.shape[3]);
    std::int64_t sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          const std::array<std::int64_t, 4> pixel{
              index[0], first_channel + c, rows.input(index[2], r), columns.input(index[3], s)};
          const std::array<std::int64_t, 4> tap{output, c, r, s};
          sum += (load_as_int64(x.shape.dtype(), x.at(pixel)) - x_zero) *
                 (load_as_int64(w.shape.dtype(), w.at(tap)) - w_zero);
        }
      }
    }
    store_sum(next, sum);
  });
}

double Conv2dInteger::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& w = in[1];  // [O, C / groups, KH, KW]
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

namespace {

/// The operands of a product: a zero point of the second asks for one of the first.
std::vector<Tensor> operands_of(const Tensor& x, const Tensor& w, const Tensor& x_zero,
                                const Tensor& w_zero, const std::source_location& where) {
  std::vector<Tensor> operands{x, w};
  if (x_zero.is_empty() && w_zero.is_empty()) return operands;
  operands.push_back(x_zero.is_empty() ? scalar_like(x, 0.0, where) : x_zero);
  if (!w_zero.is_empty()) operands.push_back(w_zero);
  return operands;
}

/// x_scale * w_scale / y_scale, in the order of ONNX Runtime's roundings.
Tensor multiplier(const QuantizedTensor& x, const QuantizedTensor& w, const ScaleAndZero& y,
                  const std::source_location& where) {
  return div(mul(x.scale, w.scale, where), y.scale, where);
}

}  // namespace

Tensor matmul_integer(const Tensor& a, const Tensor& b, const Tensor& a_zero, const Tensor& b_zero,
                      const std::source_location& where) {
  const std::vector<Tensor> operands = operands_of(a, b, a_zero, b_zero, where);
  return record(MatmulInteger{}, std::span<const Tensor>(operands), where);
}

Tensor linear_integer(const Tensor& x, const Tensor& w, const Tensor& x_zero, const Tensor& w_zero,
                      const std::source_location& where) {
  return matmul_integer(x, permute(w, {1, 0}, where), x_zero, w_zero, where);
}

Tensor conv2d_integer(const Tensor& x, const Tensor& w, const Tensor& x_zero, const Tensor& w_zero,
                      const Conv2dInteger& options, const std::source_location& where) {
  const std::vector<Tensor> operands = operands_of(x, w, x_zero, w_zero, where);
  return record(options, std::span<const Tensor>(operands), where);
}

Tensor qlinear_matmul(const QuantizedTensor& a, const QuantizedTensor& b, const ScaleAndZero& y,
                      const std::source_location& where) {
  const Tensor sums = matmul_integer(a.codes, b.codes, a.zero_point, b.zero_point, where);
  return requantize(sums, multiplier(a, b, y, where), y.zero_point, -1, where);
}

Tensor qlinear_linear(const QuantizedTensor& x, const QuantizedTensor& w, const ScaleAndZero& y,
                      const Tensor& bias, const std::source_location& where) {
  Tensor sums = linear_integer(x.codes, w.codes, x.zero_point, w.zero_point, where);
  if (!bias.is_empty()) sums = add(sums, bias, where);
  return requantize(sums, multiplier(x, w, y, where), y.zero_point, -1, where);
}

Tensor qlinear_conv2d(const QuantizedTensor& x, const QuantizedTensor& w, const ScaleAndZero& y,
                      const Tensor& bias, const Conv2dInteger& options,
                      const std::source_location& where) {
  Tensor sums = conv2d_integer(x.codes, w.codes, x.zero_point, w.zero_point, options, where);
  if (!bias.is_empty()) {
    const Tensor plane = unsqueeze(unsqueeze(bias, -1, {}, where), -1, {}, where);
    sums = add(sums, plane, where);
  }
  return requantize(sums, multiplier(x, w, y, where), y.zero_point, 1, where);
}

}  // namespace tenon
