#include "ops/pointwise.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/matmul.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(matmul, Matmul);

namespace {

/// One leading axis of the result: equal sizes, or a 1 that broadcasts.
Axis broadcast_axis(const Axis& a, const Axis& b, const std::string& operands) {
  const bool tags_agree = a.tag.empty() || b.tag.empty() || a.tag == b.tag;
  if (!tags_agree || (a.size != 1 && b.size != 1 && !sizes_agree(a.size, b.size))) {
    fail(Errc::shape_mismatch, Matmul::name,
         fmt::format("leading axes do not broadcast: {}", operands));
  }
  const Name tag = a.tag.empty() ? b.tag : a.tag;
  if (a.size == 1 || a.size == b.size) return {tag, b.size};
  if (b.size == 1) return {tag, a.size};
  // At least one of them is symbolic, and may be a 1 that broadcasts.
  const std::int64_t known = known_size(a.size, b.size);
  return {tag, is_static(known) ? known : unknown_dim};
}

/// An operand as a stack of matrices of `lines` vectors along the contracted axis.
struct Stack {
  const HostView& view;
  int leading;               ///< number of leading axes
  std::int64_t lines;        ///< M or N
  std::int64_t line_step;    ///< bytes from vector to vector
  std::int64_t length;       ///< K
  std::int64_t length_step;  ///< bytes within a vector

  Stack(const HostView& operand, bool is_left)
      : view(operand), leading(std::max(operand.shape.rank() - 2, 0)) {
    const int rank = operand.shape.rank();
    const int along = is_left || rank == 1 ? rank - 1 : rank - 2;
    length = operand.shape[along];
    length_step = operand.strides[static_cast<std::size_t>(along)];
    const int across = is_left ? rank - 2 : rank - 1;
    lines = rank == 1 ? 1 : operand.shape[across];
    line_step = rank == 1 ? 0 : operand.strides[static_cast<std::size_t>(across)];
  }

  /// The matrix at an index of the result's leading axes.
  const std::byte* matrix(std::span<const std::int64_t> index) const noexcept {
    const std::byte* address = view.data;
    const std::size_t skipped = index.size() - static_cast<std::size_t>(leading);
    for (std::size_t i = 0; i < static_cast<std::size_t>(leading); ++i) {
      if (view.shape[static_cast<int>(i)] != 1) address += index[skipped + i] * view.strides[i];
    }
    return address;
  }
};

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
void multiply(const Stack& a, const Stack& b, const HostView& out) {
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
  const Shape& a = in[0];
  const Shape& b = in[1];
  constexpr std::array<std::string_view, 2> names{"a", "b"};
  const std::string operands = operands_text(names, in);
  for (const Shape& operand : in) {  // C1
    if (!is_floating(operand.dtype()) && !is_integer(operand.dtype())) {
      fail(Errc::unsupported_dtype, name,
           fmt::format("needs integer or floating operands: {}", operands));
    }
  }
  if (a.dtype() != b.dtype()) {  // C2
    fail(Errc::shape_mismatch, name, fmt::format("dtypes differ: {}", operands));
  }
  if (a.rank() == 0 || b.rank() == 0) {  // C3
    fail(Errc::shape_mismatch, name, fmt::format("an operand is a scalar: {}", operands));
  }
  const int b_along = std::max(b.rank() - 2, 0);
  common_axis(name, a, a.rank() - 1, b, b_along, "the contracted axis", operands);  // C4

  const int a_leading = std::max(a.rank() - 2, 0);
  const int leading = std::max(a_leading, b_along);
  std::vector<Axis> axes;
  for (int i = 0; i < leading; ++i) {  // C5
    const int in_a = i - (leading - a_leading);
    const int in_b = i - (leading - b_along);
    if (in_a < 0 || in_b < 0) {
      axes.push_back(in_a < 0 ? b.axis_at(in_b) : a.axis_at(in_a));
    } else {
      axes.push_back(broadcast_axis(a.axis_at(in_a), b.axis_at(in_b), operands));
    }
  }
  if (a.rank() > 1) axes.push_back(a.axis_at(a.rank() - 2));
  if (b.rank() > 1) axes.push_back(b.axis_at(b.rank() - 1));
  require_distinct_tags(name, axes, operands);  // C6
  return {std::span<const Axis>(axes), a.dtype()};
}

void Matmul::reference(std::span<const HostView> in, const HostView& out) const {
  const Stack a(in[0], true);
  const Stack b(in[1], false);
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

Tensor matmul(const Tensor& a, const Tensor& b, const std::source_location& where) {
  return record(Matmul{}, {a, b}, where);
}

}  // namespace tenon
