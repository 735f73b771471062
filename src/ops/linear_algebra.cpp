#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/rows.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/linear_algebra.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/sort.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(cholesky, Cholesky);
TENON_DEFINE_OP(triangular_solve, TriangularSolve);
TENON_DEFINE_OP(solve, Solve);
TENON_DEFINE_OP(det, Det);
TENON_DEFINE_OP(slogdet, Slogdet);
TENON_DEFINE_OP(eigh, Eigh);
TENON_DEFINE_OP(svd, Svd);
TENON_DEFINE_OP(lu, Lu);
TENON_DEFINE_OP(qr, Qr);

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

/// Height and width of matrices, C1 .. C3 of svd.
std::array<std::int64_t, 2> require_known_matrices(std::string_view op, const Shape& a) {
  if (a.dtype() != f32 && a.dtype() != f64) {
    fail(Errc::unsupported_dtype, op, fmt::format("needs f32 or f64, got {}", to_string(a)));
  }
  const int rank = a.rank();
  if (rank < 2) fail(Errc::shape_mismatch, op, fmt::format("needs matrices, got {}", to_string(a)));
  const std::int64_t m = a[rank - 2], n = a[rank - 1];
  if (!is_static(m) || !is_static(n)) {
    fail(Errc::bad_shape, op,
         fmt::format("needs known sizes, got {}{}", to_string(a), advice_on_symbols(a)));
  }
  return {m, n};
}

/// [.., n, n] as [.., n + 1, n].
Shape with_a_row_above(const Shape& a) {
  const std::int64_t n = a[a.rank() - 2];
  return a.without_tags().with_dim(a.rank() - 2, is_static(n) ? n + 1 : unknown_dim);
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

double cube_of(const Shape& shape) {
  const auto n = static_cast<double>(shape[shape.rank() - 1]);
  return static_cast<double>(shape.elements()) * n;
}

/// A matrix of as many rows and columns as `like` has columns, which may be symbolic: 1 where the row
/// minus the column is >= least, else 0.
Tensor lower_mask(const Tensor& like, std::int64_t least) {
  const std::int64_t n = like.dim(like.rank() - 1);
  const auto from = [&](std::int64_t start) {
    if (!is_static(n)) return iota(like, -1, i64, start).with_tags({});
    const Iota op{.size = n, .start = start, .dtype = i64};
    return record_beside(like, op_def<Iota>(), &op, std::source_location::current());
  };
  return cast(ge(unsqueeze(from(-least), 1), from(0)), like.dtype());
}
Tensor identity(const Tensor& like) { return lower_mask(like, 0) - lower_mask(like, 1); }

Tensor turned(const Tensor& x) { return transpose(x); }

}  // namespace

Shape Cholesky::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  return in[0].without_tags();
}

void Cholesky::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

// With P the lower triangle of L^T dL, its diagonal halved: the symmetric part of L^-T P L^-1.
std::vector<Tensor> Cholesky::gradient(const Backward& at) const {
  const Tensor& l = at.output;
  const Tensor below = lower_mask(l, 0);
  const Tensor p = matmul(turned(l), at.upstream * below) * (below - identity(l) * 0.5);
  const TriangularSolve back{.transposed = true};
  const Tensor s = triangular_solve(l, turned(triangular_solve(l, p, back)), back);
  return {(s + turned(s)) * 0.5};
}

double Cholesky::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) / 3; }

Shape TriangularSolve::infer(std::span<const Shape> in) const { return infer_solution(name, in); }

void TriangularSolve::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

std::vector<Tensor> TriangularSolve::gradient(const Backward& at) const {
  TriangularSolve other = *this;
  other.transposed = !transposed;
  const Tensor& a = at.inputs[0];
  const Tensor b = triangular_solve(a, at.upstream, other);
  const Tensor product = transposed ? matmul(at.output, turned(b)) : matmul(b, turned(at.output));
  const std::int64_t least = unit ? 1 : 0;
  const Tensor mask = lower ? lower_mask(a, least) : turned(lower_mask(a, least));
  return {-(product * mask), b};
}

double TriangularSolve::flops(std::span<const Shape> in, const Shape& out) const {
  return static_cast<double>(out.elements()) * static_cast<double>(in[0][in[0].rank() - 1]);
}

Shape Solve::infer(std::span<const Shape> in) const { return infer_solution(name, in); }

void Solve::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
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

std::vector<Tensor> Slogdet::gradient(const Backward& at) const {
  const Tensor factor = unsqueeze(slice(at.upstream, -1, 1, 2), -1);
  return {turned(inverse(at.inputs[0])) * factor};
}

double Slogdet::flops(std::span<const Shape> in, const Shape& out) const {
  return Det().flops(in, out);
}

Shape Eigh::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  return with_a_row_above(in[0]);
}

void Eigh::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

namespace {

/// d / e of a gradient d of vectors, which is 0 where only the values matter: 0 for 0 / 0, of equal
/// values. Elsewhere the quotient as it is, with its derivatives by d where d is 0, too.
Tensor quotient_or_zero(const Tensor& d, const Tensor& e) {
  const Tensor zero = scalar_like(d, 0);
  const Tensor is_nothing = logical_and(eq(d, zero), eq(e, scalar_like(e, 0)));
  return where(is_nothing, zero, d / where(is_nothing, scalar_like(e, 1), e));
}

}  // namespace

// V (diag(dw) + F o (V^T dV)) V^T, F_ij = 1 / (w_j - w_i) off the diagonal; its symmetric part.
std::vector<Tensor> Eigh::gradient(const Backward& at) const {
  const Tensor w = slice(at.output, -2, 0, 1), v = slice(at.output, -2, 1);
  const Tensor dw = slice(at.upstream, -2, 0, 1), dv = slice(at.upstream, -2, 1);
  const Tensor one = identity(at.output);
  const Tensor d = (1.0 - one) * matmul(turned(v), dv);
  const Tensor inner = one * dw + quotient_or_zero(d, w - turned(w) + one);
  const Tensor g = matmul(matmul(v, inner), turned(v));
  return {(g + turned(g)) * 0.5};
}

double Eigh::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) * 50; }

Shape Svd::infer(std::span<const Shape> in) const {
  const Shape& a = in[0];
  const auto [m, n] = require_known_matrices(name, a);  // C1 .. C3
  return a.without_tags()
      .with_dim(a.rank() - 2, std::min(m, n))
      .with_dim(a.rank() - 1, checked_add(checked_add(m, n), 1));
}

void Svd::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
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
  const Tensor row = turned(s), one = identity(row);
  const Tensor e = square(row) - square(s) + one;
  const auto skew = [&](const Tensor& x, const Tensor& dx) {
    const Tensor product = matmul(x, turned(dx));
    return quotient_or_zero(product - turned(product), e);
  };
  const Tensor inner = skew(u, du) * row + s * skew(v, dv) + one * ds;
  Tensor g = matmul(turned(u), matmul(inner, v));
  const auto outside = [&](const Tensor& x, const Tensor& dx) {
    return quotient_or_zero(dx - matmul(matmul(dx, turned(x)), x), s);
  };
  if (m > k) g = g + matmul(turned(outside(u, du)), v);
  if (n > k) g = g + matmul(turned(u), outside(v, dv));
  return {g};
}

double Svd::flops(std::span<const Shape> in, const Shape& out) const {
  const int rank = in[0].rank();
  return 20.0 * static_cast<double>(in[0].elements()) * static_cast<double>(out[rank - 2]);
}

Shape Lu::infer(std::span<const Shape> in) const {
  require_square(name, in[0]);  // C1, C2
  return with_a_row_above(in[0]);
}

void Lu::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

namespace {

/// The gradient of a by those of the factors, packed: with a permuted as the rows say,
/// L^-T (the strict lower triangle of L^T dL + the upper one of dU U^T) U^-T, and rows put back.
Tensor lu_gradient(const Tensor& packed, const Tensor& rows, const Tensor& upstream) {
  const Tensor below = lower_mask(packed, 1), above = 1.0 - below;
  const Tensor l = packed * below + identity(packed), u = packed * above;
  const Tensor inner =
      matmul(turned(l), upstream * below) * below + matmul(upstream * above, turned(u)) * above;
  const Tensor left =
      triangular_solve(packed, inner, {.lower = true, .transposed = true, .unit = true});
  const Tensor both = turned(triangular_solve(packed, turned(left), {.lower = false}));
  return take_along(both, broadcast_like(unsqueeze(argsort(rows, -1), -1), both), -2);
}

Tensor rows_of_lu(const Tensor& all) { return cast(squeeze(slice(all, -2, 0, 1), -2), i64); }

}  // namespace

std::vector<Tensor> Lu::gradient(const Backward& at) const {
  return {lu_gradient(slice(at.output, -2, 1), rows_of_lu(at.output), slice(at.upstream, -2, 1))};
}

double Lu::flops(std::span<const Shape> in, const Shape&) const { return cube_of(in[0]) * 2 / 3; }

Shape Qr::infer(std::span<const Shape> in) const {
  const Shape& a = in[0];
  const auto [m, n] = require_known_matrices(name, a);  // C1 .. C3
  return a.without_tags()
      .with_dim(a.rank() - 2, std::min(m, n))
      .with_dim(a.rank() - 1, checked_add(m, n));
}

void Qr::reference(std::span<const HostView> in, const HostView& out) const {
  each_matrix(*this, in, out, 2);
}

namespace {

/// Of a = q r with r square: (dq + q sym(r dr^T - dq^T q)) r^-T, where sym copies the lower triangle
/// to the upper one.
Tensor qr_gradient(const Tensor& q, const Tensor& r, const Tensor& dq, const Tensor& dr) {
  const Tensor inner = matmul(r, turned(dr)) - matmul(turned(dq), q);
  const Tensor lower = inner * lower_mask(r, 0), below = inner * lower_mask(r, 1);
  const Tensor left = dq + matmul(q, lower + turned(below));
  return turned(triangular_solve(r, turned(left), {.lower = false}));
}

}  // namespace

// Columns of a beyond the square part x = q r' are q v: they give q dv, and x also has (a dv^T).
std::vector<Tensor> Qr::gradient(const Backward& at) const {
  const Tensor& a = at.inputs[0];
  const std::int64_t m = a.shape()[a.rank() - 2], n = a.shape()[a.rank() - 1], k = std::min(m, n);
  const auto parts = [m](const Tensor& x) {
    return std::array{turned(slice(x, -1, 0, m)), slice(x, -1, m)};
  };
  const auto [q, r] = parts(at.output);
  const auto [dq, dr] = parts(at.upstream);
  if (n == k) return {qr_gradient(q, r, dq, dr)};
  const Tensor dv = slice(dr, -1, k);
  const Tensor x = qr_gradient(q, slice(r, -1, 0, k), dq + matmul(slice(a, -1, k), turned(dv)),
                               slice(dr, -1, 0, k));
  const std::array pieces{x, matmul(q, dv)};
  return {concat(pieces, -1)};
}

double Qr::flops(std::span<const Shape> in, const Shape& out) const {
  const int rank = in[0].rank();
  return 4.0 * static_cast<double>(in[0].elements()) * static_cast<double>(out[rank - 2]);
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
  located(where, "inverse", [&] { require_square("inverse", shape); });
  return solve(a, broadcast_like(identity(a), a, where), where);
}

Tensor det(const Tensor& a, const std::source_location& where) { return record(Det{}, {a}, where); }

SignAndLog slogdet(const Tensor& a, const std::source_location& where) {
  const Tensor both = record(Slogdet{}, {a}, where);
  return {squeeze(slice(both, -1, 0, 1, 1, where), -1, where),
          squeeze(slice(both, -1, 1, 2, 1, where), -1, where)};
}

EigenPairs eigh(const Tensor& a, const std::source_location& where) {
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

LuFactors lu(const Tensor& a, const std::source_location& where) {
  const Tensor all = record(Lu{}, {a}, where);
  return {slice(all, -2, 1, to_end, 1, where), rows_of_lu(all)};
}

Tensor lu_solve(const LuFactors& factors, const Tensor& b, const std::source_location& where) {
  const Shape &packed = factors.packed.shape(where), &right = b.shape(where);
  located(where, "lu_solve", [&] {
    const std::array shapes{packed, right};
    infer_solution("lu_solve", shapes);
  });
  const Tensor rows = broadcast_like(unsqueeze(factors.rows, -1, {}, where), b, where);
  const Tensor permuted = take_along(b.with_tags({}), rows, -2, where);
  const Tensor below = triangular_solve(factors.packed, permuted, {.unit = true}, where);
  return triangular_solve(factors.packed, below, {.lower = false}, where);
}

QrFactors qr(const Tensor& a, const std::source_location& where) {
  const Tensor all = record(Qr{}, {a}, where);
  const std::int64_t m = a.shape(where)[a.rank(where) - 2];
  return {transpose(slice(all, -1, 0, m, 1, where), -2, -1, where),
          slice(all, -1, m, to_end, 1, where)};
}

}  // namespace tenon
