#include "../matmul/matmul.hpp"

#include "../task.hpp"
#include "typed_matmul.hpp"

#include <tenon/ops/matmul.hpp>

namespace tenon::cpu {
namespace {

/// Batches that one call covers: leading axes with even strides are one axis; others are walked.
class MatmulTask final : public Task {
 public:
  MatmulTask(const Step& step, Compiler& compiler)
      : a_(step.inputs[0]), b_(step.inputs[1]), y_(step.output) {
    const int ra = a_.shape.rank(), rb = b_.shape.rank(), ry = y_.shape.rank();
    args_.m = a_.shape[ra - 2];
    args_.k = a_.shape[ra - 1];
    args_.n = b_.shape[rb - 1];
    args_.a_row = step_of(a_, ra - 2);
    args_.a_column = step_of(a_, ra - 1);
    args_.b_row = step_of(b_, rb - 2);
    args_.b_column = step_of(b_, rb - 1);
    args_.c_row = args_.n;
    // The innermost batch axis goes into the call, the rest into offsets.
    const int batch_rank = ry - 2;
    args_.batches = batch_rank > 0 ? y_.shape[batch_rank - 1] : 1;
    args_.a_batch = batch_rank > 0 ? broadcast_step(a_, batch_rank - 1, ry) : 0;
    args_.b_batch = batch_rank > 0 ? broadcast_step(b_, batch_rank - 1, ry) : 0;
    args_.c_batch = args_.m * args_.n;
    outer_ = 1;
    for (int i = 0; i + 1 < batch_rank; ++i) outer_ *= y_.shape[i];
    for (std::int64_t o = 0; o < outer_; ++o) {
      std::int64_t rest = o, a = 0, b = 0;
      for (int i = batch_rank - 2; i >= 0; --i) {
        const std::int64_t index = rest % y_.shape[i];
        rest /= y_.shape[i];
        a += index * broadcast_step(a_, i, ry);
        b += index * broadcast_step(b_, i, ry);
      }
      offsets_.push_back({a, b});
    }
    compiler.working_memory(static_cast<std::int64_t>(matmul_scratch_bytes(args_)));
  }

  void run(const TaskContext& context) const noexcept override {
    for (std::size_t o = 0; o < offsets_.size(); ++o) {
      MatmulArgs args = args_;
      args.isa = active_isa();
      args.scratch = context.working_memory();
      args.interrupt = context.worker.interrupt;
      args.a = context.pointer<const float>(a_) + offsets_[o].first;
      args.b = context.pointer<const float>(b_) + offsets_[o].second;
      args.c =
          context.pointer<float>(y_) + static_cast<std::int64_t>(o) * args.batches * args.c_batch;
      matmul(args, context.worker.thread, context.worker.threads);
    }
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

  Operand a_, b_, y_;
  MatmulArgs args_;
  std::int64_t outer_ = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets_;
};

std::optional<std::string> refuses_matmul(const Step& step) {
  const DType dtype = step.output.shape.dtype();
  if (dtype == DType::f16 || dtype == DType::bf16) return needs_f32(step);
  if (step.inputs[0].shape.rank() < 2 || step.inputs[1].shape.rank() < 2)
    return "an operand is a vector";
  return std::nullopt;
}

std::unique_ptr<Task> make_matmul(const Step& step, Compiler& compiler) {
  if (step.output.shape.dtype() == DType::f32) {
    return std::make_unique<MatmulTask>(step, compiler);
  }
  return make_typed_matmul(step, compiler);
}

}  // namespace

extern const Kernel matmul_kernel;
constinit const Kernel matmul_kernel{op_def<Matmul>, refuses_matmul, make_matmul};

}  // namespace tenon::cpu
