#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/rows.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/linear_algebra.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(cholesky, Cholesky);
TENON_DEFINE_OP(triangular_solve, TriangularSolve);
TENON_DEFINE_OP(solve, Solve);
TENON_DEFINE_OP(det, Det);
TENON_DEFINE_OP(slogdet, Slogdet);
TENON_DEFINE_OP(eigh, Eigh);
TENON_DEFINE_OP(svd, Svd);

namespace {

void require_square(std::string_view op, const Shape& shape) {
  if (shape.dtype() != f32 && shape.dtype() != f64) {
    fail(Errc::unsupported_dtype, op, fmt::format("needs f32 or f64, got {}", to_string(shape)));
  }
  const int rank = shape.rank();
  if (rank < 2 || !sizes_agree(shape[rank - 2], shape[rank - 1])) {
    fail(Errc::shape_mismatch, op, fmt::format("needs square matrices, got {}", to_string(shape)));
  }
}

Shape infer_solution(std::string_view op, std::span<const Shape> in) {
  const Shape &a = in[0], &b = in[1];
  if (a.dtype() != b.dtype()) {  // C1
    fail(Errc::unsupported_dtype, op, fmt::format("dtypes of {} differ", list_shapes(in)));
  }
  require_square(op, a);  // C1, C2
  if (b.rank() < 2 || !sizes_agree(a[a.rank() - 1], b[b.rank() - 2])) {
    fail(Errc::shape_mismatch, op, fmt::format("heights of {} differ", list_shapes(in)));
  }
  bool agrees = a.rank() == b.rank();
  for (int i = 0; agrees && i + 2 < a.rank(); ++i) agrees = sizes_agree(a[i], b[i]);
  if (!agrees) {  // C3
    fail(Errc::shape_mismatch, op, fmt::format("leading axes of {} differ", list_shapes(in)));
  }
  return b.without_tags();
}

/// Each matrix of a batch through op.compute; `trailing` axes of the output belong to one result.
template <class Op>
void each_matrix(const Op& op, std::span<const HostView> in, const HostView& out, int trailing) {
  const int leading = in[0].shape.rank() - 2;
  const Shape outer(in[0].shape.dims().first(static_cast<std::size_t>(leading)), f32);
  std::array<std::vector<double>, 2> copies;
  std::array<DenseMatrix, 2> matrices{};
  const auto result_columns = trailing > 0 ? out.shape[leading + trailing - 1] : 1;
  const auto result_rows = trailing > 1 ? out.shape[leading] : 1;
  std::vector<double> result(static_cast<std::size_t>(result_rows * result_columns));
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::int64_t rows = in[i].shape[leading], columns = in[i].shape[leading + 1];
      copies[i].resize(static_cast<std::size_t>(rows * columns));
      matrices[i] = {rows, columns, copies[i].data()};
      for (std::int64_t r = 0; r < rows; ++r) {
        read_row(in[i].shape.dtype(),
                 slice_at(in[i], index) + r * in[i].strides[static_cast<std::size_t>(leading)],
                 in[i].strides[static_cast<std::size_t>(leading + 1)],
                 {matrices[i].row(r), static_cast<std::size_t>(columns)});
      }
    }
    op.compute(std::span(matrices).first(in.size()), {result_rows, result_columns, result.data()});
    const DType dtype = out.shape.dtype();
    std::byte* to = slice_at(out, index);  // dense
    for (const double value : result) {
      store_double(dtype, to, value);
      to += block_bytes(dtype);
    }
  });
}

void symmetrize(const DenseMatrix& a) noexcept {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      a.row(i)[j] = a.row(j)[i] = 0.5 * (a.row(i)[j] + a.row(j)[i]);
    }
  }
}

/// x += factor * y
void add_row(double* x, double factor, const double* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) x[i] += factor * y[i];
}

/// Makes a upper triangular by row exchanges, which b shares, and elimination. Returns the sign of
/// the exchanges.
double eliminate(const DenseMatrix& a, const DenseMatrix& b) noexcept {
  const std::int64_t n = a.rows;
  double sign = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i) {
      if (std::fabs(a.row(i)[k]) > std::fabs(a.row(pivot)[k])) pivot = i;
    }
    if (pivot != k) {
      sign = -sign;
      std::swap_ranges(a.row(k), a.row(k) + n, a.row(pivot));
      std::swap_ranges(b.row(k), b.row(k) + b.columns, b.row(pivot));
    }
    const double diagonal = a.row(k)[k];
    if (diagonal == 0) continue;
    for (std::int64_t i = k + 1; i < n; ++i) {
      const double factor = -a.row(i)[k] / diagonal;
      if (factor == 0) continue;
      add_row(a.row(i) + k, factor, a.row(k) + k, n - k);
      add_row(b.row(i), factor, b.row(k), b.columns);
    }
  }
  return sign;
}

double cube_of(const Shape& shape) {
  const auto n = static_cast<double>(shape[shape.rank() - 1]);
  return static_cast<double>(shape.elements()) * n;
}

/// n by n: 1 where the row minus the column is >= least, else 0.
Tensor lower_mask(const Tensor& like, std::int64_t n, std::int64_t least) {
  const auto where = std::source_location::current();
  const Iota rows{.size = n, .start = -least, .dtype = i64}, columns{.size = n, .dtype = i64};
  const Tensor row = unsqueeze(record_beside(like, op_def<Iota>(), &rows, where), 1);
  const Tensor column = record_beside(like, op_def<Iota>(), &columns, where);
  return cast(ge(row, column), like.dtype());
}
Tensor identity(const Tensor& like, std::int64_t n) {
  return lower_mask(like, n, 0) - lower_mask(like, n, 1);
}
std::int64_t order_of(const Tensor& a) { return a.shape()[a.rank() - 1]; }

Tensor turned(const Tensor& x) { return transpose(x); }

}  // namespace

Shape Cholesky::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  return in[0].without_tags();
}

void Cholesky::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

void Cholesky::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  const DenseMatrix& a = in[0];
  symmetrize(a);
  bool is_definite = true;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    double* y = out.row(i);
    for (std::int64_t j = 0; j <= i; ++j) {
      const double rest = a.row(i)[j] - dot_product(y, out.row(j), j);
      is_definite = is_definite && (j < i || rest > 0);
      y[j] = j < i ? rest / out.row(j)[j] : std::sqrt(rest);
    }
    std::fill(y + i + 1, y + a.rows, 0.0);
  }
  if (is_definite) return;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    std::fill(out.row(i), out.row(i) + i + 1, std::numeric_limits<double>::quiet_NaN());
  }
}

// With P the lower triangle of L^T dL, its diagonal halved: the symmetric part of L^-T P L^-1.
std::vector<Tensor> Cholesky::gradient(const Backward& at) const {
  const Tensor& l = at.output;
  const std::int64_t n = order_of(l);
  const Tensor below = lower_mask(l, n, 0);
  const Tensor p = matmul(turned(l), at.upstream * below) * (below - identity(l, n) * 0.5);
  const TriangularSolve back{.transposed = true};
  const Tensor s = triangular_solve(l, turned(triangular_solve(l, p, back)), back);
  return {(s + turned(s)) * 0.5};
}

double Cholesky::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) / 3; }

Shape TriangularSolve::infer(std::span<const Shape> in) const { return infer_solution(name, in); }

void TriangularSolve::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

void TriangularSolve::compute(std::span<const DenseMatrix> in,
                              const DenseMatrix& out) const noexcept {
  const DenseMatrix &a = in[0], &b = in[1];
  const std::int64_t n = a.rows;
  std::copy_n(b.elements, n * b.columns, out.elements);
  const bool forward = lower != transposed;
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = forward ? step : n - 1 - step;
    for (std::int64_t j = forward ? 0 : i + 1; j < (forward ? i : n); ++j) {
      add_row(out.row(i), -(transposed ? a.row(j)[i] : a.row(i)[j]), out.row(j), out.columns);
    }
    if (unit) continue;
    const double diagonal = a.row(i)[i];
    for (std::int64_t c = 0; c < out.columns; ++c) out.row(i)[c] /= diagonal;
  }
}

std::vector<Tensor> TriangularSolve::gradient(const Backward& at) const {
  TriangularSolve other = *this;
  other.transposed = !transposed;
  const Tensor& a = at.inputs[0];
  const Tensor b = triangular_solve(a, at.upstream, other);
  const Tensor product = transposed ? matmul(at.output, turned(b)) : matmul(b, turned(at.output));
  const std::int64_t n = order_of(a), least = unit ? 1 : 0;
  const Tensor mask = lower ? lower_mask(a, n, least) : turned(lower_mask(a, n, least));
  return {-(product * mask), b};
}

double TriangularSolve::flops(std::span<const Shape> in, const Shape& out) const {
  return static_cast<double>(out.elements()) * static_cast<double>(in[0][in[0].rank() - 1]);
}

Shape Solve::infer(std::span<const Shape> in) const { return infer_solution(name, in); }

void Solve::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

void Solve::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  eliminate(in[0], in[1]);
  TriangularSolve{.lower = false}.compute(in, out);
}

std::vector<Tensor> Solve::gradient(const Backward& at) const {
  const Tensor b = solve(turned(at.inputs[0]), at.upstream);
  return {-matmul(b, turned(at.output)), b};
}

double Solve::flops(std::span<const Shape> in, const Shape& out) const {
  return cube_of(in[0]) * 2 / 3 + TriangularSolve().flops(in, out) * 2;
}

Shape Det::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  const int rank = in[0].rank();
  return in[0].without_tags().without_axis(rank - 1).without_axis(rank - 2);
}

void Det::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 0);
}

void Det::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  double product = eliminate(in[0], {in[0].rows, 0, in[0].elements});
  for (std::int64_t i = 0; i < in[0].rows; ++i) product *= in[0].row(i)[i];
  out.elements[0] = product;
}

std::vector<Tensor> Det::gradient(const Backward& at) const {
  const Tensor factor = unsqueeze(unsqueeze(at.upstream * at.output, -1), -1);
  return {turned(inverse(at.inputs[0])) * factor};
}

double Det::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) * 2 / 3; }

Shape Slogdet::infer(std::span<const Shape> in) const {
  const Shape one = Det().infer(in);
  return one.with_axis(one.rank(), Axis(2));
}

void Slogdet::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 1);
}

void Slogdet::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  double sign = eliminate(in[0], {in[0].rows, 0, in[0].elements}), sum = 0;
  for (std::int64_t i = 0; i < in[0].rows; ++i) {
    const double diagonal = in[0].row(i)[i];
    sign *= diagonal > 0 ? 1 : diagonal < 0 ? -1 : diagonal;
    sum += std::log(std::fabs(diagonal));
  }
  out.elements[0] = sign;
  out.elements[1] = sum;
}

std::vector<Tensor> Slogdet::gradient(const Backward& at) const {
  const Tensor factor = unsqueeze(slice(at.upstream, -1, 1, 2), -1);
  return {turned(inverse(at.inputs[0])) * factor};
}

double Slogdet::flops(std::span<const Shape> in, const Shape& out) const {
  return Det().flops(in, out);
}

Shape Eigh::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  const int rank = in[0].rank();
  const std::int64_t n = in[0][rank - 2];
  return in[0].without_tags().with_dim(rank - 2, is_static(n) ? n + 1 : unknown_dim);
}

void Eigh::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

namespace {

/// One rotation of rows and columns p and q that makes a_pq zero; `vectors` has one in each row.
void rotate_away(const DenseMatrix& a, std::int64_t p, std::int64_t q,
                 const DenseMatrix& vectors) noexcept {
  const double off = a.row(p)[q];
  const double theta = (a.row(q)[q] - a.row(p)[p]) / (2 * off);
  const double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::hypot(theta, 1.0));
  const double c = 1 / std::hypot(t, 1.0), s = t * c;
  const auto mix = [&](double& x, double& y) {
    const double before = x;
    x = c * before - s * y;
    y = s * before + c * y;
  };
  for (std::int64_t i = 0; i < a.rows; ++i) mix(a.row(i)[p], a.row(i)[q]);
  for (std::int64_t i = 0; i < a.rows; ++i) mix(a.row(p)[i], a.row(q)[i]);
  a.row(p)[q] = a.row(q)[p] = 0;
  for (std::int64_t i = 0; i < a.rows; ++i) mix(vectors.row(p)[i], vectors.row(q)[i]);
}

}  // namespace

void Eigh::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  const DenseMatrix& a = in[0];
  const std::int64_t n = a.rows;
  symmetrize(a);
  const DenseMatrix vectors{n, n, out.elements + n};
  std::fill_n(vectors.elements, n * n, 0.0);
  for (std::int64_t i = 0; i < n; ++i) vectors.row(i)[i] = 1;
  // Sweeps converge quadratically; the limit is for NaN.
  bool rotates = true;
  for (int sweep = 0; sweep < 60 && rotates; ++sweep) {
    rotates = false;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        const double off = std::fabs(a.row(p)[q]);
        const double both = std::sqrt(std::fabs(a.row(p)[p])) * std::sqrt(std::fabs(a.row(q)[q]));
        constexpr double tiny = std::numeric_limits<double>::min();
        // Small against both diagonal elements, or so small that it changes neither.
        const double larger = std::max(std::fabs(a.row(p)[p]), std::fabs(a.row(q)[q]));
        if (off <= tiny || off <= 1e-17 * larger || off <= 1e-16 * both) continue;
        rotates = true;
        rotate_away(a, p, q, vectors);
      }
    }
  }
  for (std::int64_t i = 0; i < n; ++i) out.elements[i] = a.row(i)[i];
  for (std::int64_t i = 0; i < n; ++i) {  // ascending
    const std::int64_t least = std::min_element(out.elements + i, out.elements + n) - out.elements;
    if (least == i) continue;
    std::swap(out.elements[i], out.elements[least]);
    std::swap_ranges(vectors.row(i), vectors.row(i) + n, vectors.row(least));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double* v = vectors.row(i);
    const double* largest =
        std::max_element(v, v + n, [](double x, double y) { return std::fabs(x) < std::fabs(y); });
    if (*largest < 0) std::transform(v, v + n, v, [](double x) { return -x; });
  }
  for (std::int64_t i = 0; i < n; ++i) {  // one in each column
    for (std::int64_t j = 0; j < i; ++j) std::swap(vectors.row(i)[j], vectors.row(j)[i]);
  }
}

// V (diag(dw) + F o (V^T dV)) V^T, F_ij = 1 / (w_j - w_i) off the diagonal; its symmetric part.
std::vector<Tensor> Eigh::gradient(const Backward& at) const {
  const std::int64_t n = order_of(at.output);
  const Tensor w = slice(at.output, -2, 0, 1), v = slice(at.output, -2, 1);
  const Tensor dw = slice(at.upstream, -2, 0, 1), dv = slice(at.upstream, -2, 1);
  const Tensor one = identity(at.output, n);
  const Tensor f = (1.0 - one) / (w - turned(w) + one);
  const Tensor inner = one * dw + f * matmul(turned(v), dv);
  const Tensor g = matmul(matmul(v, inner), turned(v));
  return {(g + turned(g)) * 0.5};
}

double Eigh::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) * 50; }

Shape Svd::infer(std::span<const Shape> in) const {
  const Shape& a = in[0];
  if (a.dtype() != f32 && a.dtype() != f64) {  // C1
    fail(Errc::unsupported_dtype, name, fmt::format("needs f32 or f64, got {}", to_string(a)));
  }
  const int rank = a.rank();
  if (rank < 2)
    fail(Errc::shape_mismatch, name, fmt::format("needs matrices, got {}", to_string(a)));
  const std::int64_t m = a[rank - 2], n = a[rank - 1];
  if (!is_static(m) || !is_static(n)) {  // C3
    fail(Errc::bad_shape, name, fmt::format("needs known sizes, got {}", to_string(a)));
  }
  return a.without_tags()
      .with_dim(rank - 2, std::min(m, n))
      .with_dim(rank - 1, checked_add(checked_add(m, n), 1));
}

void Svd::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

namespace {

/// Makes vector `i` one of length 1 that is orthogonal to those before it: of the unit vectors, the
/// first that keeps enough of its length.
void complete(const DenseMatrix& out, std::int64_t i, std::int64_t first, std::int64_t length) {
  double* x = out.row(i) + first;
  for (std::int64_t unit = 0; unit < length; ++unit) {
    std::fill_n(x, length, 0.0);
    x[unit] = 1;
    for (int again = 0; again < 2; ++again) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double* y = out.row(j) + first;
        add_row(x, -dot_product(x, y, length), y, length);
      }
    }
    const double size = std::sqrt(dot_product(x, x, length));
    if (size * size * static_cast<double>(length) < 0.5) continue;
    std::transform(x, x + length, x, [size](double value) { return value / size; });
    return;
  }
}

}  // namespace

void Svd::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const noexcept {
  const DenseMatrix& a = in[0];
  const std::int64_t m = a.rows, n = a.columns, k = out.rows;
  // The longer vectors, columns of a or its rows, are rotated until they are orthogonal; the
  // shorter ones gather the rotations.
  const bool tall = m >= n;
  const std::int64_t length = tall ? m : n, at = tall ? 0 : m + 1, other = tall ? m + 1 : 0;
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < length; ++j) out.row(i)[at + j] = tall ? a.row(j)[i] : a.row(i)[j];
    for (std::int64_t j = 0; j < k; ++j) out.row(i)[other + j] = i == j ? 1 : 0;
  }
  bool rotates = true;
  for (int sweep = 0; sweep < 60 && rotates; ++sweep) {
    rotates = false;
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t q = p + 1; q < k; ++q) {
        double *x = out.row(p) + at, *y = out.row(q) + at;
        const double xx = dot_product(x, x, length), yy = dot_product(y, y, length);
        const double xy = dot_product(x, y, length);
        if (!(std::fabs(xy) > 1e-16 * std::sqrt(xx) * std::sqrt(yy))) continue;
        if (std::fabs(xy) < std::numeric_limits<double>::min()) continue;
        rotates = true;
        const double zeta = (yy - xx) / (2 * xy);
        const double t = std::copysign(1.0, zeta) / (std::fabs(zeta) + std::hypot(zeta, 1.0));
        const double c = 1 / std::hypot(t, 1.0), s = c * t;
        const auto mix = [&](double* left, double* right, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) {
            const double before = left[i];
            left[i] = c * before - s * right[i];
            right[i] = s * before + c * right[i];
          }
        };
        mix(x, y, length);
        mix(out.row(p) + other, out.row(q) + other, k);
      }
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    const double* x = out.row(i) + at;
    out.row(i)[m] = std::sqrt(dot_product(x, x, length));
  }
  for (std::int64_t i = 0; i < k; ++i) {  // descending
    std::int64_t largest = i;
    for (std::int64_t j = i + 1; j < k; ++j) {
      if (out.row(j)[m] > out.row(largest)[m]) largest = j;
    }
    if (largest != i) std::swap_ranges(out.row(i), out.row(i) + out.columns, out.row(largest));
  }
  for (std::int64_t i = 0; i < k; ++i) {
    double* row = out.row(i);
    double* x = row + at;
    const double size = row[m];
    if (size > 1e-15 * out.row(0)[m]) {
      std::transform(x, x + length, x, [size](double value) { return value / size; });
    } else if (size <= out.row(0)[m]) {  // what is left of a vector is rounding; a NaN stays
      complete(out, i, at, length);
    }
    const double* v = row + m + 1;
    const double* largest =
        std::max_element(v, v + n, [](double l, double r) { return std::fabs(l) < std::fabs(r); });
    if (*largest < 0) {
      for (std::int64_t j = 0; j < out.columns; ++j) row[j] = j == m ? row[j] : -row[j];
    }
  }
}

// u [(skew(u^T du) / e) s + s (skew(v^T dv) / e) + ds] v^T with e_ij = s_j^2 - s_i^2, and what du
// and dv have outside the spans of u and v.
std::vector<Tensor> Svd::gradient(const Backward& at) const {
  const Shape& shape = at.inputs[0].shape();
  const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1], k = std::min(m, n);
  const auto parts = [m](const Tensor& x) {  // vectors in rows, values in a column
    return std::array{slice(x, -1, 0, m), slice(x, -1, m, m + 1), slice(x, -1, m + 1)};
  };
  const auto [u, s, v] = parts(at.output);
  const auto [du, ds, dv] = parts(at.upstream);
  const Tensor row = turned(s), one = identity(s, k);
  const Tensor e = square(row) - square(s) + one;
  const auto skew = [&](const Tensor& x, const Tensor& dx) {
    const Tensor product = matmul(x, turned(dx));
    return (product - turned(product)) / e;
  };
  const Tensor inner = skew(u, du) * row + s * skew(v, dv) + one * ds;
  Tensor g = matmul(turned(u), matmul(inner, v));
  const auto outside = [&](const Tensor& x, const Tensor& dx) {
    return (dx - matmul(matmul(dx, turned(x)), x)) / s;
  };
  if (m > k) g = g + matmul(turned(outside(u, du)), v);
  if (n > k) g = g + matmul(turned(u), outside(v, dv));
  return {g};
}

double Svd::flops(std::span<const Shape> in, const Shape& out) const {
  const int rank = in[0].rank();
  return 20.0 * static_cast<double>(in[0].elements()) * static_cast<double>(out[rank - 2]);
}

Tensor cholesky(const Tensor& a, const std::source_location& where) {
  return record(Cholesky{}, {a}, where);
}
Tensor triangular_solve(const Tensor& a, const Tensor& b, const TriangularSolve& options,
                        const std::source_location& where) {
  return record(options, {a, b}, where);
}
Tensor solve(const Tensor& a, const Tensor& b, const std::source_location& where) {
  return record(Solve{}, {a, b}, where);
}

Tensor inverse(const Tensor& a, const std::source_location& where) {
  const Shape& shape = a.shape(where);
  if (!shape.is_static()) {
    fail_at(where, Errc::bad_argument, "inverse",
            fmt::format("needs known sizes, got {}", to_string(shape)));
  }
  located(where, "inverse", [&] { require_square("inverse", shape); });
  const Tensor one = identity(a, shape[shape.rank() - 1]);
  return solve(a, shape.rank() == 2 ? one : broadcast_to(one, shape.dims(), where), where);
}

Tensor det(const Tensor& a, const std::source_location& where) { return record(Det{}, {a}, where); }

SignAndLog slogdet(const Tensor& a, const std::source_location& where) {
  const Tensor both = record(Slogdet{}, {a}, where);
  return {squeeze(slice(both, -1, 0, 1, 1, where), -1, where),
          squeeze(slice(both, -1, 1, 2, 1, where), -1, where)};
}

Eigen eigh(const Tensor& a, const std::source_location& where) {
  const Tensor both = record(Eigh{}, {a}, where);
  return {squeeze(slice(both, -2, 0, 1, 1, where), -2, where),
          slice(both, -2, 1, to_end, 1, where)};
}

SingularValues svd(const Tensor& a, const std::source_location& where) {
  const Tensor all = record(Svd{}, {a}, where);
  const std::int64_t m = a.shape(where)[a.rank(where) - 2];
  return {transpose(slice(all, -1, 0, m, 1, where), -2, -1, where),
          squeeze(slice(all, -1, m, m + 1, 1, where), -1, where),
          slice(all, -1, m + 1, to_end, 1, where)};
}

}  // namespace tenon
