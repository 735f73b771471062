// Equations and decompositions of matrices: threads take whole matrices, widened to f64.
#include "lanes.hpp"

#include <tenon/ops/linear_algebra.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace tenon::cpu {
namespace {

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
    compiler.working_memory((elements + rows_ * columns_) * 8);
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
        op_.compute(std::span(matrices).first(inputs_.size()), {rows_, columns_, memory});
      } catch (...) {  // no memory
        context.fault.report(std::current_exception());
        return;
      }
      std::byte* y = context.pointer<std::byte>(y_) + m * size * unit;
      for (std::int64_t i = 0; i < size; ++i, y += unit) {
        if (unit == 4) {
          *reinterpret_cast<float*>(y) = static_cast<float>(memory[i]);
        } else {
          *reinterpret_cast<double*>(y) = memory[i];
        }
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
