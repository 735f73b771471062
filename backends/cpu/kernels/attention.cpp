#include "../attention/attention.hpp"

#include "../task.hpp"

#include <tenon/ops/attention.hpp>

#include <cmath>

namespace tenon::cpu {
namespace {

std::int64_t element_step(const Operand& operand, int axis) {
  return operand.strides[static_cast<std::size_t>(axis)] / block_bytes(operand.shape.dtype());
}

class AttentionTask final : public Task {
 public:
  AttentionTask(const Step& step, Compiler& compiler)
      : q_(step.inputs[0]), k_(step.inputs[1]), v_(step.inputs[2]), y_(step.output) {
    const auto& op = *step.op.as<Attention>();
    std::size_t next = 3;
    if (op.has_position) position_ = step.inputs[next++];
    if (op.has_mask) mask_ = step.inputs[next];
    batch_ = q_.shape[0];
    capacity_ = k_.shape[1];
    args_.queries = q_.shape[1];
    args_.keys = capacity_;
    args_.heads = q_.shape[2];
    args_.kv_heads = k_.shape[2];
    args_.head_dim = q_.shape[3];
    args_.value_dim = v_.shape[3];
    args_.q_row = element_step(q_, 1);
    args_.q_head = element_step(q_, 2);
    args_.k_row = element_step(k_, 1);
    args_.k_head = element_step(k_, 2);
    args_.v_row = element_step(v_, 1);
    args_.v_head = element_step(v_, 2);
    args_.kv_dtype = k_.shape.dtype();
    args_.out_head = args_.value_dim;
    args_.out_row = args_.heads * args_.value_dim;
    args_.scale = static_cast<float>(
        op.scale != 0 ? op.scale : 1.0 / std::sqrt(static_cast<double>(args_.head_dim)));
    args_.soft_cap = static_cast<float>(op.softcap);
    args_.causal = op.causal;
    args_.window = op.window;
    args_.past = capacity_ - args_.queries;
    args_.fast = !compiler.exact();
    if (mask_) {
      const int rank = mask_->shape.rank();
      const auto step_from_end = [&](int from_end) {
        const int axis = rank - from_end;
        return axis < 0 || mask_->shape[axis] == 1 ? 0 : element_step(*mask_, axis);
      };
      args_.mask_row = step_from_end(2);
      args_.mask_head = step_from_end(3);
      mask_batch_ = step_from_end(4);
    }
    workspace_bytes_ = static_cast<std::int64_t>(attention_workspace_bytes(args_));
    workspace_ = compiler.zeroed_scratch(workspace_bytes_ * batch_);
  }

  void run(const TaskContext& context) const noexcept override {
    AttentionArgs args = args_;
    args.isa = active_isa();
    if (position_) {
      const std::int64_t past = *context.pointer<const std::int32_t>(*position_);
      if (past < 0 || past + args.queries > capacity_) {
        context.fault.report(Errc::out_of_range, "attention: position", past,
                             capacity_ - args.queries + 1);
        return;
      }
      args.past = past;
      args.keys = past + args.queries;
    }
    for (std::int64_t b = 0; b < batch_; ++b) {
      const auto at = [&](const Operand& operand) {
        return context.pointer<const std::byte>(operand) + b * operand.strides[0];
      };
      args.q = reinterpret_cast<const float*>(at(q_));
      args.k = at(k_);
      args.v = at(v_);
      args.out = context.pointer<float>(y_) + b * args.queries * args.out_row;
      if (mask_) args.mask = context.pointer<const float>(*mask_) + b * mask_batch_;
      args.workspace = context.zeroed(workspace_ + b * workspace_bytes_);
      context.worker.share(attention_items(args), 1, [&](std::int64_t begin, std::int64_t end) {
        attention_range(args, begin, end);
      });
    }
  }

 private:
  Operand q_, k_, v_, y_;
  std::optional<Operand> position_, mask_;
  AttentionArgs args_;
  std::int64_t batch_ = 0, capacity_ = 0, mask_batch_ = 0;
  std::int64_t workspace_ = 0, workspace_bytes_ = 0;
};

std::optional<std::string> refuses(const Step& step) {
  const auto& op = *step.op.as<Attention>();
  if (auto why = needs_dtype(step.inputs[0], DType::f32, "q")) return why;
  const DType kv = step.inputs[1].shape.dtype();
  if (kv != DType::f32 && kv != DType::f16 && kv != DType::q8_0)
    return "keys are " + std::string(tenon::name(kv));
  for (std::size_t i = 0; i < 3; ++i) {
    if (auto why = needs_dense_rows(step.inputs[i], i == 0 ? "q" : i == 1 ? "k" : "v")) return why;
  }
  if (step.inputs[0].shape[3] > max_head_dim || step.inputs[2].shape[3] > max_head_dim) {
    return "heads wider than 512";
  }
  if (op.has_mask) {
    const Operand& mask = step.inputs[op.has_position ? 4 : 3];
    const int rank = mask.shape.rank();
    if (rank == 0 || mask.shape[rank - 1] == 1) return "the mask broadcasts along keys";
    return needs_dense_rows(mask, "mask");
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel attention_kernel;
constinit const Kernel attention_kernel{
    op_def<Attention>, refuses, [](const Step& step, Compiler& compiler) -> std::unique_ptr<Task> {
      return std::make_unique<AttentionTask>(step, compiler);
    }};

}  // namespace tenon::cpu
