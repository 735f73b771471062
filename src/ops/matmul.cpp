#include "ops/gradient.hpp"
#include "ops/matrix_stack.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(matmul, Matmul);

namespace {

double dot_of(const double* a, const double* b, std::int64_t count) noexcept {
  return dot_product(a, b, count);
}

std::uint64_t dot_of(const std::uint64_t* a, const std::uint64_t* b, std::int64_t count) noexcept {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void load_line(DType dtype, const std::byte* first, std::int64_t step, std::span<double> out) {
  read_row(dtype, first, step, out);
}

void load_line(DType dtype, const std::byte* first, std::int64_t step,
               std::span<std::uint64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::uint64_t>(
        load_as_int64(dtype, first + static_cast<std::int64_t>(i) * step));
  }
}

void store(DType dtype, std::byte* element, double value) { store_double(dtype, element, value); }

void store(DType dtype, std::byte* element, std::uint64_t value) {
  store_int64(dtype, element, wrap_to(dtype, static_cast<std::int64_t>(value)));
}

/// T: double, or uint64_t for integers, whose arithmetic wraps.
template <class T>
void multiply(const MatrixStack& a, const MatrixStack& b, const HostView& out) {
  const auto length = static_cast<std::size_t>(a.length);
  std::vector<T> row(length);
  std::vector<T> columns(static_cast<std::size_t>(b.lines) * length);
  const DType dtype = out.shape.dtype();
  const std::int64_t element = block_bytes(dtype);
  std::byte* next = out.data;  // dense: matrices follow one another

  const int leading = std::max(a.leading, b.leading);
  const Shape outer(out.shape.dims().first(static_cast<std::size_t>(leading)), DType::f32);
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    const std::byte* b_matrix = b.matrix(index);
    for (std::int64_t n = 0; n < b.lines; ++n) {
      load_line(dtype, b_matrix + n * b.line_step, b.length_step,
                std::span(columns).subspan(static_cast<std::size_t>(n) * length, length));
    }
    const std::byte* a_matrix = a.matrix(index);
    for (std::int64_t m = 0; m < a.lines; ++m) {
      load_line(dtype, a_matrix + m * a.line_step, a.length_step, std::span(row));
      for (std::int64_t n = 0; n < b.lines; ++n, next += element) {
        store(dtype, next, dot_of(row.data(), columns.data() + n * a.length, a.length));
      }
    }
  });
}

}  // namespace

Shape Matmul::infer(std::span<const Shape> in) const {
  const std::string operands = matrices_text(in);
  for (const Shape& operand : in) {  // C1
    if (!is_floating(operand.dtype()) && !is_integer(operand.dtype())) {
      fail(Errc::unsupported_dtype, name,
           fmt::format("needs integer or floating operands: {}", operands));
    }
  }
  if (in[0].dtype() != in[1].dtype()) {  // C2
    fail(Errc::shape_mismatch, name, fmt::format("dtypes differ: {}", operands));
  }
  return matrix_product(name, in, in[0].dtype());  // C3 to C6
}

void Matmul::reference(std::span<const HostView> in, const HostView& out) const {
  const MatrixStack a(in[0], true);
  const MatrixStack b(in[1], false);
  if (is_floating(out.shape.dtype())) {
    multiply<double>(a, b, out);
  } else {
    multiply<std::uint64_t>(a, b, out);
  }
}

double Matmul::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& a = in[0];
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(a[a.rank() - 1]);
}

std::vector<Tensor> Matmul::gradient(const Backward& at) const {
  const Tensor &a = at.inputs[0], &b = at.inputs[1];
  // Vectors as matrices.
  const Tensor left = a.rank() == 1 ? unsqueeze(a, 0) : a;
  const Tensor right = b.rank() == 1 ? unsqueeze(b, 1) : b;
  Tensor g = at.upstream;
  if (b.rank() == 1) g = unsqueeze(g, g.rank());
  if (a.rank() == 1) g = unsqueeze(g, g.rank() - 1);
  const Tensor of_left = sum_to(matmul(g, transpose(right, -1, -2)), left.shape());
  // One product over all rows where b is a single matrix.
  const bool is_shared = right.rank() == 2 && left.rank() > 2;
  const auto rows = [](const Tensor& t) { return merge_axes(t, 0, t.rank() - 2); };
  const Tensor of_right = is_shared ? matmul(transpose(rows(left), 0, 1), rows(g))
                                    : sum_to(matmul(transpose(left, -1, -2), g), right.shape());
  return {a.rank() == 1 ? squeeze(of_left, 0) : of_left,
          b.rank() == 1 ? squeeze(of_right, 1) : of_right};
}

Tensor matmul(const Tensor& a, const Tensor& b, const std::source_location& where) {
  return record(Matmul{}, {a, b}, where);
}

}  // namespace tenon
