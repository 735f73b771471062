#include "../matmul/matmul.hpp"

#include "../task.hpp"
#include "typed_matmul.hpp"

#include <tenon/ops/matmul.hpp>

namespace tenon::cpu {
namespace {

class MatmulTask final : public Task {
 public:
  MatmulTask(const Step& step, Compiler& compiler)
      : a_(step.inputs[0]), b_(step.inputs[1]), y_(step.output) {
    const int ra = a_.shape.rank(), rb = b_.shape.rank();
    args_.m = a_.shape[ra - 2];
    args_.k = a_.shape[ra - 1];
    args_.n = b_.shape[rb - 1];
    args_.a_row = step_of(a_, ra - 2);
    args_.a_column = step_of(a_, ra - 1);
    args_.b_row = step_of(b_, rb - 2);
    args_.b_column = step_of(b_, rb - 1);
    args_.c_row = args_.n;
    args_.c_batch = args_.m * args_.n;
    find_batches();
    compiler.working_memory(static_cast<std::int64_t>(matmul_scratch_bytes(args_)));
  }

  void run(const TaskContext& context) const noexcept override {
    MatmulArgs args = args_;
    args.isa = active_isa();
    args.scratch = context.working_memory();
    args.interrupt = context.worker.interrupt;
    args.a = context.pointer<const float>(a_);
    args.b = context.pointer<const float>(b_);
    args.c = context.pointer<float>(y_);
    if (!a_starts_.empty()) {
      args.a_starts = a_starts_.data();
      args.b_starts = b_starts_.data();
    }
    matmul(args, context.worker.thread, context.worker.threads);
  }

 private:
  static std::int64_t step_of(const Operand& operand, int axis) {
    return operand.strides[static_cast<std::size_t>(axis)] / 4;
  }
  /// Step of `operand` along axis `axis` of an output of rank `rank`, 0 where it broadcasts.
  static std::int64_t broadcast_step(const Operand& operand, int axis, int rank) {
    const int own = axis - (rank - operand.shape.rank());
    return own < 0 || operand.shape[own] == 1 ? 0 : step_of(operand, own);
  }

  /// Leading axes whose steps are even are one axis of batches; others are written out.
  void find_batches() {
    const int ry = y_.shape.rank();
    for (int axis = 0; axis < ry - 2; ++axis) {
      const std::int64_t size = y_.shape[axis];
      if (size == 1) continue;
      const std::int64_t a = broadcast_step(a_, axis, ry), b = broadcast_step(b_, axis, ry);
      const bool continues = args_.a_batch == a * size && args_.b_batch == b * size;
      if (args_.batches > 1 && !continues) return write_starts_out();
      args_.batches *= size;
      args_.a_batch = a;
      args_.b_batch = b;
    }
  }

  void write_starts_out() {
    const int ry = y_.shape.rank();
    a_starts_ = b_starts_ = {0};
    for (int axis = 0; axis < ry - 2; ++axis) {
      a_starts_ = repeated(a_starts_, y_.shape[axis], broadcast_step(a_, axis, ry));
      b_starts_ = repeated(b_starts_, y_.shape[axis], broadcast_step(b_, axis, ry));
    }
    args_.batches = static_cast<std::int64_t>(a_starts_.size());
  }

  /// Each of `starts`, and `count` - 1 more that are `step` apart.
  static std::vector<std::int64_t> repeated(const std::vector<std::int64_t>& starts,
                                            std::int64_t count, std::int64_t step) {
    std::vector<std::int64_t> result;
    result.reserve(starts.size() * static_cast<std::size_t>(count));
    for (const std::int64_t start : starts) {
      for (std::int64_t i = 0; i < count; ++i) result.push_back(start + i * step);
    }
    return result;
  }

  Operand a_, b_, y_;
  MatmulArgs args_;
  std::vector<std::int64_t> a_starts_, b_starts_;
};

std::optional<std::string> refuses_matmul(const Step& step) {
  const DType dtype = step.output.shape.dtype();
  const bool is_vector = step.inputs[0].shape.rank() < 2 || step.inputs[1].shape.rank() < 2;
  if (dtype == DType::f16 || dtype == DType::bf16) {
    return !is_vector && is_vector_product(step) ? std::nullopt : needs_f32(step);
  }
  if (is_vector) return "an operand is a vector";
  return std::nullopt;
}

std::unique_ptr<Task> make_matmul(const Step& step, Compiler& compiler) {
  // Exact f32 has one order of sums, that of k, as products with constant weights have it.
  const bool is_f32 = step.output.shape.dtype() == DType::f32;
  if (is_vector_product(step) && !(is_f32 && compiler.exact()))
    return make_vector_product(step, compiler);
  if (is_f32) {
    return std::make_unique<MatmulTask>(step, compiler);
  }
  return make_typed_matmul(step, compiler);
}

}  // namespace

extern const Kernel matmul_kernel;
constinit const Kernel matmul_kernel{op_def<Matmul>, refuses_matmul, make_matmul};

}  // namespace tenon::cpu
