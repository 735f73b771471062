// What ops of linear algebra compute, by Eigen: the only source that sees it, since its solvers take
// long to compile.

// Under another name, so that the linker keeps this file's copies apart from those of a program that
// compiles Eigen for its own processor.
#define Eigen TenonEigen

#include <tenon/ops/linear_algebra.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

namespace tenon {
namespace {

using Matrix = ::Eigen::Matrix<double, ::Eigen::Dynamic, ::Eigen::Dynamic, ::Eigen::RowMajor>;
using MatrixRef = ::Eigen::Ref<Matrix>;
using PivotedLu = ::Eigen::PartialPivLU<MatrixRef>;  // in the matrix's own memory

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

::Eigen::Map<Matrix> map(const DenseMatrix& a) noexcept { return {a.elements, a.rows, a.columns}; }

/// (a + a^T) / 2
void symmetrize(const DenseMatrix& a) noexcept {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      a.row(i)[j] = a.row(j)[i] = 0.5 * (a.row(i)[j] + a.row(j)[i]);
    }
  }
}

/// Whether the component of the largest absolute value, the first of equal ones, is negative.
template <class Vector>
bool points_back(const Vector& v) {
  ::Eigen::Index largest = 0;
  v.cwiseAbs().maxCoeff(&largest);
  return v(largest) < 0;
}

/// The power of two that brings a number near 1; 1 where squares of it neither overflow nor
/// vanish.
double near_one(double largest) {
  if (!(largest > 0) || std::isinf(largest) || (largest > 0x1p-300 && largest < 0x1p300)) return 1;
  return std::ldexp(1.0, std::clamp(-std::ilogb(largest) - 1, -1022, 1022));
}

/// The sign of a row exchange's permutation.
double sign_of(const PivotedLu& lu) { return static_cast<double>(lu.permutationP().determinant()); }

}  // namespace

void Cholesky::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  symmetrize(in[0]);
  auto y = map(out);
  y = map(in[0]);
  MatrixRef lower(y);
  const ::Eigen::LLT<MatrixRef> factor(lower);
  y.triangularView<::Eigen::StrictlyUpper>().setZero();
  const bool is_definite = factor.info() == ::Eigen::Success && y.allFinite();
  if (!is_definite) y.triangularView<::Eigen::Lower>().setConstant(nan);
}

void TriangularSolve::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  const auto a = map(in[0]);
  auto x = map(out);
  x = map(in[1]);
  if (x.size() == 0) return;
  const auto solve_by = [&]<unsigned side>() {
    if (transposed) {
      constexpr unsigned other = (side & ::Eigen::Lower) != 0
                                     ? (side & ~unsigned{::Eigen::Lower}) | ::Eigen::Upper
                                     : (side & ~unsigned{::Eigen::Upper}) | ::Eigen::Lower;
      a.transpose().triangularView<other>().solveInPlace(x);
    } else {
      a.triangularView<side>().solveInPlace(x);
    }
  };
  if (lower) {
    unit ? solve_by.template operator()<::Eigen::UnitLower>()
         : solve_by.template operator()<::Eigen::Lower>();
  } else {
    unit ? solve_by.template operator()<::Eigen::UnitUpper>()
         : solve_by.template operator()<::Eigen::Upper>();
  }
}

void Solve::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  if (out.rows * out.columns == 0) return;
  MatrixRef a(map(in[0]));
  map(out) = PivotedLu(a).solve(map(in[1]));
}

void Det::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  out.elements[0] = 1;
  if (in[0].rows == 0) return;
  MatrixRef a(map(in[0]));
  out.elements[0] = PivotedLu(a).determinant();
}

void Slogdet::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  double sign = 1, sum = 0;
  if (in[0].rows > 0) {
    MatrixRef a(map(in[0]));
    sign = sign_of(PivotedLu(a));
    for (std::int64_t i = 0; i < in[0].rows; ++i) {
      const double diagonal = in[0].row(i)[i];
      sign *= diagonal > 0 ? 1 : diagonal < 0 ? -1 : diagonal;
      sum += std::log(std::fabs(diagonal));
    }
  }
  out.elements[0] = sign;
  out.elements[1] = sum;
}

void Lu::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  const std::int64_t n = in[0].rows;
  if (n == 0) return;
  auto y = map({n, n, out.row(1)});
  y = map(in[0]);
  MatrixRef packed(y);
  const PivotedLu factor(packed);
  const auto& places = factor.permutationP().indices();  // where each row goes
  for (std::int64_t i = 0; i < n; ++i) out.row(0)[places[i]] = static_cast<double>(i);
}

void Qr::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  const std::int64_t m = in[0].rows, n = in[0].columns, k = out.rows;
  if (k == 0) return;
  MatrixRef a(map(in[0]));
  const double scale = near_one(a.lpNorm<::Eigen::Infinity>());
  a *= scale;
  const ::Eigen::HouseholderQR<MatrixRef> factor(a);
  auto y = map(out);
  y.leftCols(m) = Matrix(factor.householderQ() * Matrix::Identity(m, k)).transpose();
  y.rightCols(n) = a.topRows(k).triangularView<::Eigen::Upper>();
  y.rightCols(n) /= scale;
  for (std::int64_t i = 0; i < k; ++i) {
    if (out.row(i)[m + i] < 0) y.row(i) = -y.row(i);
  }
}

void Eigh::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  symmetrize(in[0]);
  auto y = map(out);
  const auto a = map(in[0]);
  if (a.size() == 0) return;
  y.setConstant(nan);
  if (!a.allFinite()) return;
  const ::Eigen::SelfAdjointEigenSolver<Matrix> solver(a);
  if (solver.info() != ::Eigen::Success) return;
  y.row(0) = solver.eigenvalues();
  y.bottomRows(a.rows()) = solver.eigenvectors();
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    auto vector = y.col(i).tail(a.rows());
    if (points_back(vector)) vector = -vector;
  }
}

void Svd::compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const {
  const std::int64_t m = in[0].rows, n = in[0].columns, k = out.rows;
  if (k == 0) return;
  auto y = map(out);
  const auto a = map(in[0]);
  y.setConstant(nan);
  if (!a.allFinite()) return;
  // Of the transpose, which is column-major as the solver's own matrices are: for others it would
  // be compiled twice, in half a minute.
  const ::Eigen::BDCSVD<::Eigen::MatrixXd> svd(a.transpose(),
                                               ::Eigen::ComputeThinU | ::Eigen::ComputeThinV);
  y.leftCols(m) = svd.matrixV().transpose();
  y.col(m) = svd.singularValues();
  y.rightCols(n) = svd.matrixU().transpose();
  for (std::int64_t i = 0; i < k; ++i) {
    if (!points_back(y.row(i).tail(n))) continue;
    y.row(i).head(m) = -y.row(i).head(m);
    y.row(i).tail(n) = -y.row(i).tail(n);
  }
}

}  // namespace tenon
