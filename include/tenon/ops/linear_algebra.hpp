#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

// Equations and decompositions of matrices, which are the last two axes; f32 and f64. Leading axes
// are batches, the same in all operands. Everything is computed in f64 and rounded once.

/// A dense matrix, row by row: what `compute` members work on, one matrix of a batch. They may
/// overwrite their inputs, and throw where there is no memory. Blocked algorithms of the library
/// Eigen, on the calling thread.
struct DenseMatrix {
  std::int64_t rows, columns;
  double* elements;
  double* row(std::int64_t i) const noexcept { return elements + i * columns; }
};

/// The lower triangle L with L L^T = (a + a^T) / 2, above it 0. NaN where that is not positive
/// definite.
///
/// Input     a: [.., n, n]; f32 or f64
/// Output    y: shape and dtype of a, no tags
/// Errors    C1 dtype neither f32 nor f64      Errc::unsupported_dtype
///           C2 not square matrices            Errc::shape_mismatch
/// Source    gradient: Murray, arXiv:1602.07527, section 4
struct Cholesky {
  static constexpr std::string_view name = "cholesky";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Cholesky);

/// x with a x = b, or a^T x = b where `transposed`, for a triangular a: only its lower triangle is
/// read where `lower`, else its upper one, and the diagonal is taken as 1 where `unit`. A zero on
/// the diagonal gives infinities and NaN.
///
/// Inputs    a: [.., n, n], b: [.., n, k]; f32 or f64, one dtype
/// Output    x: shape and dtype of b, no tags
/// Errors    C1 dtype neither f32 nor f64, or two                Errc::unsupported_dtype
///           C2 a not square, or b's matrices not of a's height  Errc::shape_mismatch
///           C3 leading axes differ                              Errc::shape_mismatch
struct TriangularSolve {
  static constexpr std::string_view name = "triangular_solve";
  static constexpr int min_inputs = 2, max_inputs = 2;
  bool lower = true;
  bool transposed = false;
  bool unit = false;
  static constexpr auto fields = FieldList{field("lower", &TriangularSolve::lower),
                                           field("transposed", &TriangularSolve::transposed),
                                           field("unit", &TriangularSolve::unit)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(TriangularSolve);

/// x with a x = b, by Gaussian elimination with row exchanges. A singular a gives infinities or
/// NaN.
///
/// Inputs    a: [.., n, n], b: [.., n, k]; f32 or f64, one dtype
/// Output    x: shape and dtype of b, no tags
/// Errors    C1 .. C3 as of triangular_solve
struct Solve {
  static constexpr std::string_view name = "solve";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Solve);

/// The determinant. Its gradient needs the inverse: NaN for a singular matrix.
///
/// Input     a: [.., n, n]; f32 or f64
/// Output    y: [..], dtype of a, no tags
/// Errors    C1, C2 as of cholesky
struct Det {
  static constexpr std::string_view name = "det";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Det);

/// The determinant's sign and the logarithm of its absolute value; 0 and -inf for a singular
/// matrix. The builder returns the two.
///
/// Input     a: [.., n, n]; f32 or f64
/// Output    y: [.., 2], dtype of a, no tags
/// Errors    C1, C2 as of cholesky
struct Slogdet {
  static constexpr std::string_view name = "slogdet";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Slogdet);

/// Eigenvalues, ascending, and eigenvectors of the symmetric matrix (a + a^T) / 2. A vector has
/// length 1, and its component of the largest absolute value (the first of equal ones) is positive.
/// The builder returns the two. The gradient of the vectors is infinite where eigenvalues are equal.
///
/// Input     a: [.., n, n]; f32 or f64
/// Output    y: [.., n + 1, n], dtype of a, no tags: row 0 has the eigenvalues, and below each is
///           its vector
/// Errors    C1, C2 as of cholesky
/// Numerics  NaN where an element is not finite
/// Source    gradient: Giles, Collected matrix derivative results for algorithmic differentiation
///           (2008), section 3.1
struct Eigh {
  static constexpr std::string_view name = "eigh";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Eigh);

/// The singular value decomposition a = u diag(s) v: s descending, of k = min(m, n) values. Vectors
/// have length 1, and the component of the largest absolute value of each row of v (the first of
/// equal ones) is positive. The builder returns the three. The gradient of the vectors is infinite
/// where singular values are equal, or 0 for a matrix that is not square.
///
/// Input     a: [.., m, n]; f32 or f64
/// Output    y: [.., k, m + 1 + n], dtype of a, no tags: in each row a column of u, its singular
///           value, and the row of v
/// Errors    C1 dtype neither f32 nor f64      Errc::unsupported_dtype
///           C2 rank below 2                   Errc::shape_mismatch
///           C3 an unknown size of a matrix    Errc::bad_shape
/// Numerics  NaN where an element is not finite
/// Source    gradient: Townsend, Differentiating the singular value decomposition (2016)
struct Svd {
  static constexpr std::string_view name = "svd";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Svd);

/// p a = l u, by Gaussian elimination with row exchanges: l has ones on its diagonal, and no element
/// larger than 1 below it. A singular a gives a u with zeros on its diagonal. The builder returns
/// the parts.
///
/// Input     a: [.., n, n]; f32 or f64
/// Output    y: [.., n + 1, n], dtype of a, no tags: row 0 says which row of a each row of p a is,
///           and below are u and, under its diagonal, l
/// Errors    C1, C2 as of cholesky
/// Source    gradient: torch.linalg.lu_factor
struct Lu {
  static constexpr std::string_view name = "lu";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Lu);

/// a = q r: the k = min(m, n) columns of q are orthogonal and of length 1, r is upper triangular
/// (upper trapezoidal where m < n), and no element on its diagonal is negative. The builder returns
/// the two. The gradient needs the first k columns of a to be independent.
///
/// Input     a: [.., m, n]; f32 or f64
/// Output    y: [.., k, m + n], dtype of a, no tags: in each row a column of q and the row of r
/// Errors    C1 .. C3 as of svd
/// Source    Householder's reflections; gradient: torch.linalg.qr
struct Qr {
  static constexpr std::string_view name = "qr";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  void compute(std::span<const DenseMatrix> in, const DenseMatrix& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Qr);

struct SignAndLog {
  Tensor sign;     ///< [..]: -1, 0 or 1
  Tensor log_abs;  ///< [..]
};
struct EigenPairs {
  Tensor values;   ///< [.., n]
  Tensor vectors;  ///< [.., n, n]: column i belongs to value i
};
struct SingularValues {
  Tensor u;       ///< [.., m, k]
  Tensor values;  ///< [.., k], descending
  Tensor v;       ///< [.., k, n]: the rows are the right vectors, as numpy's vh
};

struct LuFactors {
  Tensor packed;  ///< [.., n, n]: u, and below the diagonal l without its ones
  Tensor rows;    ///< i64[.., n]: row i of l u is row rows[i] of a
};
struct QrFactors {
  Tensor q;  ///< [.., m, k]
  Tensor r;  ///< [.., k, n]
};

Tensor cholesky(const Tensor& a,
                const std::source_location& where = std::source_location::current());
Tensor triangular_solve(const Tensor& a, const Tensor& b, const TriangularSolve& options = {},
                        const std::source_location& where = std::source_location::current());
Tensor solve(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());
/// solve(a, 1)
Tensor inverse(const Tensor& a,
               const std::source_location& where = std::source_location::current());
Tensor det(const Tensor& a, const std::source_location& where = std::source_location::current());
SignAndLog slogdet(const Tensor& a,
                   const std::source_location& where = std::source_location::current());
EigenPairs eigh(const Tensor& a,
                const std::source_location& where = std::source_location::current());
SingularValues svd(const Tensor& a,
                   const std::source_location& where = std::source_location::current());
LuFactors lu(const Tensor& a, const std::source_location& where = std::source_location::current());
/// x with a x = b, of lu(a): [.., n, k]. Errors as of solve.
Tensor lu_solve(const LuFactors& factors, const Tensor& b,
                const std::source_location& where = std::source_location::current());
QrFactors qr(const Tensor& a, const std::source_location& where = std::source_location::current());

}  // namespace tenon
