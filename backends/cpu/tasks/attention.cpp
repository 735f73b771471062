#include "../attention/attention.hpp"

#include "../matmul/tiled_values.hpp"
#include "../task.hpp"

#include <tenon/ops/attention.hpp>

#include <cmath>

namespace tenon::cpu {
namespace {

std::int64_t element_step(const Operand& operand, int axis) {
  return operand.strides[static_cast<std::size_t>(axis)] / block_bytes(operand.shape.dtype());
}

/// What a step's sizes and attributes say: all but pointers and the mask's strides.
AttentionArgs args_of(const Step& step, bool fast) {
  const Operand &q = step.inputs[0], &k = step.inputs[1], &v = step.inputs[2];
  const auto& op = *step.op.as<Attention>();
  AttentionArgs args;
  args.queries = q.shape[1];
  args.keys = k.shape[1];
  args.heads = q.shape[2];
  args.kv_heads = k.shape[2];
  args.head_dim = q.shape[3];
  args.value_dim = v.shape[3];
  args.q_row = element_step(q, 1);
  args.q_head = element_step(q, 2);
  args.k_row = element_step(k, 1);
  args.k_head = element_step(k, 2);
  args.v_row = element_step(v, 1);
  args.v_head = element_step(v, 2);
  args.kv_dtype = k.shape.dtype();
  args.out_head = args.value_dim;
  args.out_row = args.heads * args.value_dim;
  args.scale = static_cast<float>(op.scale != 0 || args.head_dim == 0
                                      ? op.scale
                                      : 1.0 / std::sqrt(static_cast<double>(args.head_dim)));
  args.soft_cap = static_cast<float>(op.softcap);
  args.causal = op.causal;
  args.window = op.window;
  args.past = args.keys - args.queries;
  args.fast = fast && args.head_dim > 0;
  args.isa = active_isa();
  return args;
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
    args_ = args_of(step, !compiler.exact());
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
    if (y_.shape.elements() == 0) return;
    workspace_bytes_ = static_cast<std::int64_t>(attention_workspace_bytes(args_));
    workspace_ = compiler.zeroed_scratch(workspace_bytes_ * batch_);
  }

  void run(const TaskContext& context) const noexcept override {
    AttentionArgs args = args_;
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
    if (y_.shape.elements() == 0) return;
    for (std::int64_t b = 0; b < batch_; ++b) {
      const auto at = [&](const Operand& operand) {
        return context.pointer<const std::byte>(operand) + b * operand.strides[0];
      };
      args.q = reinterpret_cast<const float*>(at(q_));
      args.k = at(k_);
      args.v = at(v_);
      if (is_tiled(y_)) {
        args.tiled = {tiles_of(y_, context.pointer<std::byte>(y_)).tile(0, 0), b * args.queries};
      } else {
        args.out = context.pointer<float>(y_) + b * args.queries * args.out_row;
      }
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

std::optional<std::string> refuses_attention(const Step& step) {
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
    if (rank == 0 || mask.shape[rank - 1] != step.inputs[1].shape[1]) {
      return "the mask broadcasts along keys";
    }
    return needs_dense_rows(mask, "mask");
  }
  return std::nullopt;
}

bool attention_step_writes_tiles(const Step& step, std::int64_t row_size) {
  const AttentionArgs args = args_of(step, true);
  return args.out_row == row_size && attention_writes_tiles(args);
}

}  // namespace

extern const Kernel attention_kernel;
constinit const Kernel attention_kernel{op_def<Attention>, refuses_attention,
                                        make_task<AttentionTask>, attention_step_writes_tiles};

}  // namespace tenon::cpu
