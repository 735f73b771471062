// Equations and decompositions of matrices: threads take whole matrices, widened to f64. Those of eigenvectors are
// Eigen's, in the ops themselves; elimination and reflections are kernels of each instruction set.
#include "../linear_algebra/factor_kernels.hpp"
#include "lanes.hpp"

#include <tenon/ops/linear_algebra.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace tenon::cpu {
namespace {

using Matrices = std::span<const DenseMatrix>;

MatrixRows rows_of(const DenseMatrix& a) { return {a.elements, a.columns}; }

/// Calls f(i, j, a_ji, a_ij) for the elements on and below the diagonal. Those above it are read and written by squares of
/// a cache line, in a copy: rows a power of two apart would evict each other.
template <class F>
void for_each_pair(const DenseMatrix& a, F f) {
  constexpr std::int64_t side = 8;
  double square[side][side];
  const std::int64_t n = a.rows;
  const auto visit = [&](std::int64_t top, std::int64_t left, auto height, auto width) {
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t i = 0; i < height; ++i) square[j][i] = a.row(left + j)[top + i];
    }
    for (std::int64_t i = 0; i < height; ++i) {
      const double* const row = a.row(top + i) + left;
      const std::int64_t count = std::min<std::int64_t>(width, top + i - left + 1);
      for (std::int64_t j = 0; j < count; ++j) f(top + i, left + j, square[j][i], row[j]);
    }
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t i = 0; i < height; ++i) a.row(left + j)[top + i] = square[j][i];
    }
  };
  constexpr std::integral_constant<std::int64_t, side> whole;
  for (std::int64_t top = 0; top < n; top += side) {
    for (std::int64_t left = 0; left <= top; left += side) {
      if (top + side <= n) {
        visit(top, left, whole, whole);
      } else {
        visit(top, left, n - top, std::min(side, n - left));
      }
    }
  }
}

void compute(const Cholesky&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  const DenseMatrix& a = in[0];
  for_each_pair(a, [](std::int64_t, std::int64_t, double& upper, double lower) {
    upper = 0.5 * (lower + upper);
  });
  const bool is_definite = factor_kernels().cholesky(a.rows, rows_of(a), room);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for_each_pair(a, [&](std::int64_t i, std::int64_t j, double upper, double) {
    out.row(i)[j] = is_definite ? upper : nan;
  });
  for (std::int64_t i = 0; i < a.rows; ++i)
    std::fill(out.row(i) + i + 1, out.row(i) + a.columns, 0.0);
}

void compute(const TriangularSolve& op, Matrices in, const DenseMatrix& out,
             const FactorRoom& room) {
  const DenseMatrix& a = in[0];
  std::copy_n(in[1].elements, out.rows * out.columns, out.elements);
  factor_kernels().solve(a.rows, out.columns, a.elements, op.transposed ? 1 : a.columns,
                         op.transposed ? a.columns : 1, op.lower != op.transposed, op.unit,
                         rows_of(out), room);
}

/// The places of n rows are the room's first numbers.
struct Eliminated {
  int sign;
  const std::int64_t* rows;

  Eliminated(const DenseMatrix& a, const FactorRoom& room) {
    auto* const places = reinterpret_cast<std::int64_t*>(room.numbers);
    sign = factor_kernels().lu(a.rows, rows_of(a), places, room.from(a.rows));
    rows = places;
  }
};

void compute(const Solve&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  const DenseMatrix& a = in[0];
  const Eliminated done(a, room);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    std::copy_n(in[1].row(done.rows[i]), out.columns, out.row(i));
  }
  for (const bool lower : {true, false}) {
    factor_kernels().solve(a.rows, out.columns, a.elements, a.columns, 1, lower, lower,
                           rows_of(out), room);
  }
}

void compute(const Det&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  double product = Eliminated(in[0], room).sign;
  for (std::int64_t i = 0; i < in[0].rows; ++i) product *= in[0].row(i)[i];
  out.elements[0] = product;
}

void compute(const Slogdet&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  double sign = Eliminated(in[0], room).sign, sum = 0;
  for (std::int64_t i = 0; i < in[0].rows; ++i) {
    const double diagonal = in[0].row(i)[i];
    sign *= diagonal > 0 ? 1 : diagonal < 0 ? -1 : diagonal;
    sum += std::log(std::fabs(diagonal));
  }
  out.elements[0] = sign;
  out.elements[1] = sum;
}

void compute(const Lu&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  const std::int64_t n = in[0].rows;
  if (n == 0) return;
  const DenseMatrix packed{n, n, out.row(1)};
  std::copy_n(in[0].elements, n * n, packed.elements);
  const Eliminated done(packed, room);
  for (std::int64_t i = 0; i < n; ++i) out.row(0)[i] = static_cast<double>(done.rows[i]);
}

/// Multiplies a matrix by the power of two that brings its largest number near 1, where squares
/// would overflow or vanish; returns it.
double scale_to_one(const DenseMatrix& a) {
  const std::span<double> elements(a.elements, static_cast<std::size_t>(a.rows * a.columns));
  double largest = 0;
  for (const double x : elements) largest = std::max(largest, std::fabs(x));
  if (largest == 0 || !std::isfinite(largest) || (largest > 0x1p-300 && largest < 0x1p300))
    return 1;
  const double scale = std::ldexp(1.0, std::clamp(-std::ilogb(largest) - 1, -1022, 1022));
  for (double& x : elements) x *= scale;
  return scale;
}

void compute(const Qr&, Matrices in, const DenseMatrix& out, const FactorRoom& room) {
  const DenseMatrix& a = in[0];
  if (out.rows == 0) return;
  const double scale = scale_to_one(a);
  factor_kernels().qr(a.rows, a.columns, rows_of(a), rows_of(out), room);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    double* const r = out.row(i) + a.rows;
    std::fill_n(r, std::min(i, a.columns), 0.0);
    for (std::int64_t j = i; j < a.columns; ++j) r[j] = a.row(i)[j] / scale;
    if (r[i] >= 0) continue;
    for (std::int64_t j = 0; j < out.columns; ++j) out.row(i)[j] = -out.row(i)[j];
  }
}

template <class Op>
void compute(const Op& op, Matrices in, const DenseMatrix& out, const FactorRoom&) {
  op.compute(in, out);
}

template <class Op>
class MatrixTask final : public Task {
 public:
  MatrixTask(const Step& step, Compiler& compiler)
      : op_(*step.op.as<Op>()), inputs_(step.inputs), y_(step.output) {
    const int leading = inputs_[0].shape.rank() - 2;
    for (int i = 0; i < leading; ++i) count_ *= inputs_[0].shape[i];
    std::int64_t elements = 0;
    for (const Operand& input : inputs_) {
      Loops loops;
      for (int i = 0; i < leading; ++i) {
        loops.push(input.shape[i], input.strides[static_cast<std::size_t>(i)]);
      }
      loops_.push_back(loops);
      elements += input.shape[leading] * input.shape[leading + 1];
    }
    const int trailing = y_.shape.rank() - leading;
    rows_ = trailing > 1 ? y_.shape[leading] : 1;
    columns_ = trailing > 0 ? y_.shape[leading + trailing - 1] : 1;
    std::int64_t size = 0;
    for (const Operand& input : inputs_) {
      size = std::max({size, input.shape[leading], input.shape[leading + 1]});
    }
    constexpr bool is_factored = !std::is_same_v<Op, Eigh> && !std::is_same_v<Op, Svd>;
    const std::int64_t room =
        is_factored && size > 0 ? factor_kernels().room(size, size) + size : 0;
    compiler.working_memory((elements + rows_ * columns_ + room) * 8);
  }

  void run(const TaskContext& context) const noexcept override {
    const Range range = context.share(count_);
    const std::int64_t size = rows_ * columns_, unit = block_bytes(y_.shape.dtype());
    for (std::int64_t m = range.begin; m < range.end && !context.worker.is_interrupted(); ++m) {
      auto* memory = reinterpret_cast<double*>(context.working_memory());
      std::array<DenseMatrix, 2> matrices{};
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        matrices[i] = read(context, i, m, memory);
        memory += matrices[i].rows * matrices[i].columns;
      }
      try {
        compute(op_, std::span(matrices).first(inputs_.size()), {rows_, columns_, memory},
                {memory + size, stop_sign(context.worker.interrupt)});
      } catch (...) {  // no memory
        context.fault.report(std::current_exception());
        return;
      }
      std::byte* const y = context.pointer<std::byte>(y_) + m * size * unit;
      if (unit == 4) {
        auto* const to = reinterpret_cast<float*>(y);
        for (std::int64_t i = 0; i < size; ++i) to[i] = static_cast<float>(memory[i]);
      } else {
        std::copy_n(memory, size, reinterpret_cast<double*>(y));
      }
    }
  }

 private:
  DenseMatrix read(const TaskContext& context, std::size_t input, std::int64_t matrix,
                   double* to) const noexcept {
    const Operand& x = inputs_[input];
    const int rank = x.shape.rank();
    const DenseMatrix result{x.shape[rank - 2], x.shape[rank - 1], to};
    const std::int64_t row = x.strides[static_cast<std::size_t>(rank - 2)];
    const std::int64_t column = x.strides[static_cast<std::size_t>(rank - 1)];
    const std::byte* from = context.pointer<const std::byte>(x) + loops_[input].offset(matrix);
    const bool is_float = x.shape.dtype() == DType::f32;
    for (std::int64_t i = 0; i < result.rows; ++i) {
      if (is_float && column == 4) {
        to = std::copy_n(reinterpret_cast<const float*>(from + i * row), result.columns, to);
        continue;
      }
      for (std::int64_t j = 0; j < result.columns; ++j) {
        const std::byte* at = from + i * row + j * column;
        *to++ = is_float ? static_cast<double>(*reinterpret_cast<const float*>(at))
                         : *reinterpret_cast<const double*>(at);
      }
    }
    return result;
  }

  Op op_;
  std::vector<Operand> inputs_;
  std::vector<Loops> loops_;
  Operand y_;
  std::int64_t count_ = 1, rows_ = 1, columns_ = 1;
};

}  // namespace

#define TENON_MATRIX_KERNEL(id, Struct)                             \
  extern const Kernel id##_kernel;                                  \
  constinit const Kernel id##_kernel {                              \
    op_def<Struct>, takes_everything, make_task<MatrixTask<Struct>> \
  }

TENON_MATRIX_KERNEL(cholesky, Cholesky);
TENON_MATRIX_KERNEL(triangular_solve, TriangularSolve);
TENON_MATRIX_KERNEL(solve, Solve);
TENON_MATRIX_KERNEL(det, Det);
TENON_MATRIX_KERNEL(slogdet, Slogdet);
TENON_MATRIX_KERNEL(eigh, Eigh);
TENON_MATRIX_KERNEL(svd, Svd);
TENON_MATRIX_KERNEL(lu, Lu);
TENON_MATRIX_KERNEL(qr, Qr);

}  // namespace tenon::cpu
